"""Traces that are told in block ids, against a worker that keeps account of full attention: matches end at every 16."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentcache.clock import ManualClock, SystemClock
from agentcache.engine.tokenizer import ChatTokenizer
from agentcache.errors import CacheError, Kind
from agentcache.replay.cli import AT_A_WORKER, ReplayOptions, replay
from agentcache.replay.client import Ask, WorkerClient, worker_client
from agentcache.replay.outcome import Outcome
from agentcache.replay.pacing import Pace
from agentcache.replay.run import Limits, Mode, Played, play
from agentcache.replay.spelling import Spelling, vocabulary
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Link, Origin, Session
from tests.replay.conftest import Served, emptied, keeping_account, serving
from tests.traces import GOLDEN, written

BLOCK = GRID = 16
REST = 5


def call(keep: int, *blocks: int, rest: int = REST, gap_s: float | None = None) -> Call:
    facts = Facts(Gap(seconds=gap_s), prompt_tokens=(keep + len(blocks)) * BLOCK + rest, output_tokens=3)
    return Call(keep, blocks=blocks, facts=facts)


def session(name: str, *calls: Call, scope: str = "", **more: Any) -> Session:
    return Session(name, calls, "here", BLOCK, scope or name, **more)


@dataclass
class Watched:
    """What was sent in which order, through a client of the worker."""

    said: list[str] = field(default_factory=list)

    def watch(self, client: WorkerClient, monkeypatch: pytest.MonkeyPatch) -> None:
        ask, close = client.ask, client.close_session

        async def asked(one: Ask) -> Outcome:
            who = f"{_named(one.session)} below {_named(one.parent)}"
            self.said.append(f"{who} asks")
            outcome = await ask(one)
            self.said.append(f"{who} is answered")
            return outcome

        async def closed(name: str) -> dict[str, Any]:
            self.said.append(f"{_named(name)} closed")
            return await close(name)

        monkeypatch.setattr(client, "ask", asked)
        monkeypatch.setattr(client, "close_session", closed)

    def at(self, what: str) -> list[int]:
        return [at for at, said in enumerate(self.said) if said == what]


def _named(session_id: str) -> str:
    return session_id.rsplit("-", 1)[-1] or "nobody"


async def played(
    served: Served, sessions: Sequence[Session], scale: int = 0, at_once: int = 1, **mode: Any
) -> list[Played]:
    async with worker_client(served.url, SystemClock()) as client:
        await client.connect()
        spelled = Mode("blocks", spelling=Spelling(vocabulary(client.about), scale), **mode)
        return await play(client, sessions, Limits(max_tokens=3, at_once=at_once), spelled, lambda _: None)


def tokens(one: Played) -> list[tuple[int, int]]:
    """Of the prompt, and those from the cache."""
    assert not one.refusals
    return [(answer.prompt_tokens, answer.cached_tokens) for answer in one.answers]


GROWS = (call(0, *range(10)), call(10, 10, 11), call(4, 20, 21), call(6, 30, rest=0), call(7, rest=0))


@pytest.mark.asyncio
async def test_what_a_call_keeps_is_cached_and_no_more(counting: Served) -> None:
    """Of a prompt that is all known the last token is computed, so its last pages are."""
    (one,) = await played(counting, [session("one", *GROWS)])
    kept = [0, 10 * BLOCK, 4 * BLOCK, 6 * BLOCK, 7 * BLOCK - GRID]
    assert tokens(one) == [(165, kept[0]), (197, kept[1]), (101, kept[2]), (112, kept[3]), (112, kept[4])]


@pytest.mark.asyncio
async def test_blocks_of_one_scope_are_equal_and_those_of_another_are_not(counting: Served) -> None:
    sessions = [
        session("one", GROWS[0], scope="s"),
        session("same", call(0, *range(7)), scope="s"),
        session("other", GROWS[0], scope="t"),
        session("shifted", call(0, 1, 0, *range(2, 10)), scope="s"),
    ]
    assert [tokens(one)[0][1] for one in await played(counting, sessions)] == [0, 7 * BLOCK, 0, 0]


@pytest.mark.asyncio
async def test_hidden_prefixes_of_one_name_are_equal(counting: Served) -> None:
    """2 whole blocks and a part of the third: only whole ones are shared."""
    hidden = [Hidden("tools", 40), Hidden("tools", 40), Hidden("others", 40)]
    sessions = [session(name, GROWS[0], hidden=prefix) for name, prefix in zip("abc", hidden, strict=True)]
    assert [tokens(one)[0][1] for one in await played(counting, sessions)] == [0, 2 * BLOCK, 0]


@pytest.mark.asyncio
async def test_no_block_is_spelled_in_tokens_that_mean_something_to_the_worker(counting: Served) -> None:
    """What is written as control tokens, and what ends an answer."""
    async with worker_client(counting.url, SystemClock()) as client:
        await client.connect()
        known = vocabulary(client.about)
    tokenizer = counting.worker.tokenizer
    assert isinstance(tokenizer, ChatTokenizer)
    written_as_text = [token for token in known if tokenizer.decode([token]) == tokenizer.spell([token])]
    assert known == written_as_text
    assert not {*known} & {*tokenizer.stop_tokens}
    assert len(known) + len(tokenizer.special_tokens) == counting.worker.info.vocab_size


@pytest.mark.asyncio
async def test_a_fork_has_the_history_of_its_parent(counting: Served) -> None:
    origin = Origin("one", Link.FORK, 2)
    forked = session("fork", call(0, *range(12), 40), call(13, 41), scope="one", origin=origin)
    _, fork = await played(counting, [session("one", *GROWS[:2]), forked])
    assert [found for _, found in tokens(fork)] == [12 * BLOCK, 13 * BLOCK]


@pytest.mark.asyncio
async def test_blocks_that_are_sent_smaller_keep_what_is_shared(counting: Served) -> None:
    """4 tokens a block, and 2 for the 5 that are less than one; the cache is cut at every 16."""
    (one,) = await played(counting, [session("one", *GROWS[:4])], scale=4)
    assert tokens(one) == [(42, 0), (50, 32), (26, 16), (28, 16)]


@pytest.mark.asyncio
async def test_a_sub_agent_begins_when_its_parent_has_come_so_far_and_closes_before_it(
    counting: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one begins at the end of a parent that has fewer calls than the trace says."""
    parent = session("parent", call(0, 0, 1), call(2, 2), call(3, 3))
    children = [
        session(name, call(0, 7), call(1, 8), origin=Origin(above, Link.SPAWN, after))
        for name, above, after in (("early", "parent", 0), ("child", "parent", 2), ("late", "child", 9))
    ]
    watched = Watched()
    async with worker_client(counting.url, SystemClock()) as client:
        await client.connect()
        mode = Mode("family", spelling=Spelling(vocabulary(client.about)))
        watched.watch(client, monkeypatch)
        found = await play(client, [parent, *children], Limits(max_tokens=2), mode, lambda _: None)
    assert [one.name for one in found] == ["parent", "early", "child", "late"]
    parents, answered = watched.at("parent below nobody asks"), watched.at("parent below nobody is answered")
    assert parents[0] == 0
    assert parents[1] < watched.at("early below parent asks")[0] < parents[2]
    assert answered[1] < watched.at("child below parent asks")[0]
    assert watched.at("child below parent is answered")[1] < watched.at("late below child asks")[0]
    assert len(watched.at("late below child is answered")) == 2
    assert watched.at("late closed") < watched.at("child closed") < watched.at("parent closed")


@pytest.mark.asyncio
async def test_sub_agents_are_below_their_parents_at_the_worker(counting: Served) -> None:
    child = session("child", call(0, 7), origin=Origin("parent", Link.SPAWN, 1))
    one, other = await played(counting, [session("parent", call(0, 0)), child], keep_open=True)
    async with worker_client(counting.url, SystemClock()) as client:
        parents = {view["session_id"]: view["parent"] for view in (await client.sessions())["data"]}
        for open_still in (other, one):
            await client.close_session(open_still.session)
    assert parents == {one.session: None, other.session: one.session}


class Time:
    """A clock that moves by what is slept, and what was."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000_000)
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(round(seconds * 1e9))


@pytest.mark.asyncio
@pytest.mark.parametrize(("speed", "slept"), [(0.0, []), (1.0, [3.0, 8.0, 10.0]), (4.0, [0.75, 2.0, 2.5])])
async def test_recorded_gaps_are_waited_for_at_the_speed_asked(
    counting: Served, speed: float, slept: list[float]
) -> None:
    """Neither one that is not known, nor the one before a session's first call; a sub-agent's comes after its parent's
    call."""
    calls = (call(0, 0, gap_s=50.0), call(1, 1, gap_s=3.0), call(2, 2), call(3, 3, gap_s=8.0))
    child = session("child", call(0, 9, gap_s=10.0), origin=Origin("one", Link.SPAWN, 4))
    time = Time()
    pace = Pace(speed, time.clock, time.sleep)
    await played(counting, [session("one", *calls), child], pace=pace)
    assert time.slept == slept


@pytest.mark.asyncio
async def test_time_that_has_gone_by_is_not_waited_for_again() -> None:
    time = Time()
    ended_ns = time.clock.now_ns()
    time.clock.advance(2_000_000_000)
    await Pace(1.0, time.clock, time.sleep).wait(ended_ns, Gap(seconds=5.0))
    await Pace(1.0, time.clock, time.sleep).wait(ended_ns, Gap(seconds=4.0))
    assert time.slept == [3.0]


def admitted(served: Served) -> int:
    return asyncio.run(served.worker.thread.call(lambda engine: engine.load().admitted_total))


def options(**changes: Any) -> ReplayOptions:
    return ReplayOptions(**{**AT_A_WORKER, "max_tokens": 2, "as_json": True, **changes})  # type: ignore[typeddict-item]


def test_a_recorded_trace_is_replayed_whole(capsys: pytest.CaptureFixture[str], counting: Served) -> None:
    """Blocks of 4 tokens: 17 + 21 + 25 + 9 of the agent, 8 + 12 and 8 of its sub-agents."""
    assert replay(GOLDEN / "weka.jsonl", counting.url, **options()) == 0
    report = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in report["sessions"]] == ["trace_7", "trace_7/a1", "trace_7/a1+2"]
    assert report["totals"]["turns"] == 7
    assert report["totals"]["prompt_tokens"] == 100
    assert report["totals"]["cached_tokens"] == 2 * GRID
    assert (report["block_tokens"], report["sent_block_tokens"]) == ([4], [4])
    assert "speed" not in report


def test_sub_agents_that_are_told_behind_others_begin_below_their_parents(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, counting: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dynamo's rows are in the order of time."""
    header = {
        "schema": "dynamo.agentic_mooncake",
        "version": 2,
        "block_size": BLOCK,
        "hash_id_scope": "local",
    }

    def row(name: str, *after: str) -> dict[str, Any]:
        waits = [{"request_id": one, "trigger": "completion", "delay_ms": 0} for one in after]
        said = {"request_id": name, "session_id": name, "play_id": "p", "hash_ids": [7, 8]}
        return {**said, "input_length": 2 * BLOCK, "not_before_ms": 0, "dependencies": waits}

    path = written(tmp_path, "t.jsonl", header, row("a"), row("b"), row("c", "a"), row("d", "b"))
    ask, sent = WorkerClient.ask, []

    async def watched(client: WorkerClient, one: Ask) -> Outcome:
        sent.append((_named(one.session), _named(one.parent)))
        return await ask(client, one)

    monkeypatch.setattr(WorkerClient, "ask", watched)
    assert replay(path, counting.url, **options(concurrency=1)) == 0
    assert sent == [("a", "nobody"), ("c", "a"), ("b", "nobody"), ("d", "b")]
    report = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in report["sessions"]] == ["a", "c", "b", "d"]


def test_prompts_over_the_context_are_passed_over_or_scaled(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, counting: Served
) -> None:
    """400 blocks of 512 tokens, for a context of 131,072."""
    lines = [
        {
            "timestamp": at,
            "input_length": 512 * blocks + 100,
            "output_length": 5,
            "hash_ids": [*range(blocks + 1)],
        }
        for at, blocks in enumerate((3, 400))
    ]
    path = written(tmp_path, "mooncake.jsonl", *lines)
    assert replay(path, counting.url, **options()) == 1
    short, long = json.loads(capsys.readouterr().out)["sessions"]
    assert (short["turns"], short["prompt_tokens"]) == (1, 1636)
    assert [(one["skipped"], one["code"]) for one in long["refused"]] == [(True, "context_length_exceeded")]
    assert replay(path, counting.url, **options(scale=8, speed=2.0, as_json=False)) == 0
    shown = capsys.readouterr().out
    assert "blocks of 512 tokens, each sent as 8 tokens." in shown
    assert "divided by 2." in shown
    assert replay(path, counting.url, **options(scale=8, speed=2.0, concurrency=1)) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["block_tokens"], report["sent_block_tokens"], report["speed"]) == ([512], [8], 2.0)
    assert [one["prompt_tokens"] for one in report["sessions"]] == [3 * 8 + 2, 400 * 8 + 2]


def test_a_prompt_that_is_too_long_to_be_read_is_passed_over(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Some 10 million bytes, more than sockets buffer, where 8,192 are read."""
    rows = [
        {"timestamp": at, "input_length": tokens, "output_length": 5, "hash_ids": [*range(4_000)]}
        for at, tokens in enumerate((512, 2_000_000))
    ]
    path = written(tmp_path, "mooncake.jsonl", *rows)
    with serving(keeping_account("tiny-full", body_limit_bytes=8192)) as small, emptied(small):
        assert replay(path, small.url, **options()) == 1
    _, long = json.loads(capsys.readouterr().out)["sessions"]
    assert [(one["skipped"], one["code"]) for one in long["refused"]] == [(True, "body_too_large")]


def test_a_compared_replay_spells_the_same_twice(capsys: pytest.CaptureFixture[str], served: Served) -> None:
    """On a worker that computes; the context has room for all."""
    assert replay(GOLDEN / "weka.jsonl", served.url, **options(compare_cold=3)) == 0
    compared = json.loads(capsys.readouterr().out)["compared_cold"]
    assert compared["turns"] == compared["same_first_logits"] == compared["same_outputs"] == 7


def test_a_trace_without_content_and_a_damaged_one_are_refused_before_anything_is_sent(
    tmp_path: Path, counting: Served
) -> None:
    sent = admitted(counting)
    good = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
    damaged = written(tmp_path, "damaged.jsonl", good, {**good, "hash_ids": []})
    for path, said in (
        (GOLDEN / "azure.csv", "neither text nor blocks"),
        (damaged, "line 2.*0 blocks, too few"),
    ):
        with pytest.raises(CacheError, match=said) as caught:
            replay(path, counting.url, **options())
        assert caught.value.kind is Kind.BAD_TRACE
    assert admitted(counting) == sent


def test_text_is_not_scaled(trace: Path, counting: Served) -> None:
    with pytest.raises(CacheError, match="--scale is for traces that are told in blocks") as caught:
        replay(trace, counting.url, **options(scale=4))
    assert caught.value.kind is Kind.BAD_REQUEST

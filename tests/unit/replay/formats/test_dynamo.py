"""Dynamo's agentic rows, with a header and without: golden ones by hand, damaged ones, and ours read back."""

from dataclasses import replace
from pathlib import Path

import pytest

from agentcache.replay.as_dynamo import dynamo_lines
from agentcache.replay.readers import open_trace
from agentcache.replay.synth import synthesize
from agentcache.replay.trace import Call, Facts, Gap, Link, Origin, Session
from agentcache.waits import WaitKind
from tests.traces import golden, golden_lines, written


def call(keep: int, blocks: tuple[int, ...], facts: Facts) -> Call:
    return Call(keep, blocks=blocks, facts=facts)


def known(seconds: float | None, tokens: int, output: int, measured: bool = True) -> Facts:
    gap = Gap(seconds=seconds, measured=measured)
    return Facts(gap, prompt_tokens=tokens, output_tokens=output, model="m")


def test_requests_with_dependencies() -> None:
    """Of 130 tokens two blocks of 64 are whole. What waits for a child too, and what begins with another, has no wait
    that is its own; ids mean something in their play only."""
    main, child, other, alone = golden("dynamo.jsonl")
    assert main == Session(
        "main",
        (call(0, (1, 2), known(None, 130, 9)), call(2, (4,), known(1.5, 200, 5, measured=False))),
        main.place,
        64,
        "p",
        Origin(start_s=0.0),
    )
    assert child == Session(
        "child",
        (call(0, (7,), known(0.25, 64, 2)), call(1, (9,), known(0.01, 128, 2))),
        child.place,
        64,
        "p",
        Origin("main", Link.SPAWN, 1),
    )
    assert other == Session(
        "other",
        (call(0, (8,), known(0.02, 64, 2, measured=False)),),
        other.place,
        64,
        "p",
        Origin("main", Link.SPAWN, 1),
    )
    first = (call(0, (1,), known(None, 64, 3)),)
    assert alone == Session("main+2", first, alone.place, 64, "q", Origin(start_s=2.5))


def test_requests_that_wait_for_others() -> None:
    """Blocks of 128 tokens are the largest that fit all lines. A child that a row branches to begins after it."""
    root, kid, joined = golden("dynamo-waits.jsonl")
    tools: tuple[tuple[str, float | None], ...] = (("bash", 2.5), ("read", None))
    assert root == Session(
        "run:root",
        (
            call(0, (0, 1), Facts(prompt_tokens=300, output_tokens=20, finish="tool_calls", tools=tools)),
            call(2, (5, 6), Facts(Gap(WaitKind.TOOL, 2.51), prompt_tokens=512, output_tokens=6)),
            call(4, (), Facts(Gap(seconds=0.001, measured=False), prompt_tokens=512, output_tokens=6)),
        ),
        root.place,
        128,
        origin=Origin(start_s=1.0),
    )
    assert kid == Session(
        "run:kid",
        (call(0, (9,), Facts(prompt_tokens=128, output_tokens=4)),),
        kid.place,
        128,
        origin=Origin("run:root", Link.SPAWN, 1),
    )
    assert joined.origin == Origin("run:kid", Link.SPAWN, 1)
    assert joined.calls[0].facts.gap == Gap(seconds=0.005, measured=False)


def test_plays_with_clocks_of_their_own(tmp_path: Path) -> None:
    log = golden_lines("dynamo.jsonl")
    log[6]["not_before_ms"] = 0.0
    first, *_, last = open_trace(written(tmp_path, "t.jsonl", *log)).sessions()
    assert (first.origin.start_s, last.origin.start_s) == (None, None)


def read_back(folder: Path, *sessions: Session) -> list[Session]:
    return list(open_trace(written(folder, "t.jsonl", *dynamo_lines(sessions))).sessions())


def test_a_trace_in_blocks_comes_back(tmp_path: Path) -> None:
    """All but whom a call waits for, and the numbers of the blocks: those are one play's."""
    told = list(synthesize("claude-code", 6, seed=11))
    assert any(session.origin.parent for session in told)
    for before, after in zip(told, read_back(tmp_path, *told), strict=True):
        assert (after.name, after.block_tokens) == (before.name, 64)
        assert after.origin == replace(before.origin, start_s=after.origin.start_s)
        for old, new in zip(before.calls, after.calls, strict=True):
            assert (new.keep, len(new.blocks)) == (old.keep, len(old.blocks))
            assert new.facts.prompt_tokens == old.facts.prompt_tokens
            assert new.facts.output_tokens == old.facts.output_tokens
        for old, new in zip(before.calls[1:], after.calls[1:], strict=True):
            assert new.facts.gap.seconds == pytest.approx(old.facts.gap.seconds, abs=1e-6)
            assert new.facts.gap.measured


def test_a_digest_tells_traces_apart() -> None:
    first, same, other = (next(dynamo_lines(synthesize("swe-agent", 2, seed))) for seed in (1, 1, 2))
    assert first == same
    assert first["source"]["digest"] != other["source"]["digest"]


def test_golden_rows_come_back() -> None:
    """A request on which nothing waits is where the sub-agent begins; equal blocks stay equal."""
    written_ = list(dynamo_lines(golden("dynamo.jsonl")))
    header, rows = written_[0], {line["request_id"]: line for line in written_[1:]}
    assert (header["schema"], header["version"], header["block_size"]) == ("dynamo.agentic_mooncake", 2, 64)
    assert rows["child:0"]["dependencies"] == [
        {"request_id": "main:0", "trigger": "completion", "delay_ms": 250.0, "relation": "spawn"}
    ]
    assert rows["child:1"]["dependencies"] == [
        {"request_id": "child:0", "trigger": "completion", "delay_ms": 10.0, "relation": "sequence"}
    ]
    assert {line["play_id"] for line in rows.values()} == {"main", "main+2"}
    assert rows["main+2:0"]["not_before_ms"] == 2500.0
    assert rows["main:1"]["hash_ids"][:2] == rows["main:0"]["hash_ids"][:2]
    ids = [rows[name]["hash_ids"] for name in ("main:0", "main:1", "child:0", "child:1", "main+2:0")]
    assert [len(one) for one in ids] == [3, 4, 1, 2, 1]
    rest = [rows["main:0"]["hash_ids"][-1], rows["main:1"]["hash_ids"][-1]]
    assert sum(one.count(rest[0]) + one.count(rest[1]) for one in ids) == 2


def test_a_trace_in_messages_is_told_in_pieces_of_text() -> None:
    """Four characters a token; two sessions that begin alike have the same first blocks."""
    long = "x" * 600

    def session(name: str, end: str) -> Session:
        first = Call(
            0, ({"role": "user", "content": long + end},), {"role": "assistant", "content": "A" * 40}
        )
        second = Call(1, ({"role": "user", "content": "more"},), facts=Facts(Gap(WaitKind.TOOL, 2.0)))
        return Session(name, (first, second), "", origin=Origin(start_s=1e9 + len(end)))

    rows = list(dynamo_lines([session("a", "1"), session("b", "22")]))[1:]
    first, second, other, _ = rows
    assert (first["input_length"], first["output_length"]) == (158, 19)  # 629 and 73 characters
    assert first["hash_ids"][:2] == other["hash_ids"][:2] == second["hash_ids"][:2]
    assert first["hash_ids"][2] not in other["hash_ids"] + second["hash_ids"]
    assert (first["not_before_ms"], other["not_before_ms"]) == (0.0, 1000.0)
    assert second["dependencies"][0]["delay_ms"] == 2000.0


def test_an_agent_that_begins_before_any_answer_begins_with_the_first_request() -> None:
    block = Call(0, blocks=(1,), facts=Facts(Gap(seconds=3.0), prompt_tokens=64, output_tokens=1))
    parent = Session("a", (block,), "", 64)
    child = Session("b", (block,), "", 64, origin=Origin("a", Link.SPAWN, 0))
    _, row = list(dynamo_lines([parent, child]))[1:]
    assert row["dependencies"] == [
        {"request_id": "a:0", "trigger": "dispatch", "delay_ms": 3000.0, "relation": "spawn"}
    ]


def test_a_fork_is_told_as_spawned_with_what_it_has_of_its_parent() -> None:
    """Dynamo knows the relations sequence, spawn, join and replay_barrier, and refuses others."""
    facts = Facts(prompt_tokens=128, output_tokens=1)
    parent = Session("a", (Call(0, blocks=(1, 2), facts=facts),), "", 64)
    fork = Session("b", (Call(0, blocks=(1, 3), facts=facts),), "", 64, origin=Origin("a", Link.FORK, 1))
    first, row = list(dynamo_lines([parent, fork]))[1:]
    assert row["dependencies"][0]["relation"] == "spawn"
    assert row["hash_ids"][0] == first["hash_ids"][0]
    assert row["hash_ids"][1] != first["hash_ids"][1]

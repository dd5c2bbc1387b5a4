"""What a run promises when it does not go to its end."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from agentcache.clock import SystemClock
from agentcache.errors import CacheError, Kind
from agentcache.replay.client import worker_client
from agentcache.replay.outcome import Answer, Outcome, Refused
from agentcache.replay.readers import open_trace
from agentcache.replay.references import Site, read_references
from agentcache.replay.run import Limits, Mode, play
from agentcache.replay.trace import Call, Link, Origin, Session
from agentcache.worker.app import create_app
from tests.replay.conftest import Served
from tests.routing import serving
from tests.serving import no_references, own_worker

pytestmark = pytest.mark.asyncio


def unheard(_: Outcome) -> None:
    """Progress that nobody looks at."""


async def test_a_trace_that_breaks_midway_closes_the_sessions_begun(trace: Path, served: Served) -> None:
    def broken() -> Iterator[Session]:
        sessions = open_trace(trace).sessions()
        yield next(sessions)
        yield next(sessions)
        raise CacheError(Kind.BAD_TRACE, "line 3")

    async with worker_client(served.url, SystemClock()) as client:
        await client.connect()
        with pytest.raises(CacheError, match="line 3"):
            await play(client, broken(), Limits(max_tokens=2, at_once=3), Mode("broken"), unheard)
    await served.answered()
    async with worker_client(served.url, SystemClock()) as client:
        assert (await read_references(Site(client, (client,)))).left == 0


async def test_a_turn_given_up_that_comes_after_the_close_opens_nothing(
    trace: Path, checkpoint: Path
) -> None:
    """Two connections: nobody promises that a request, or its end, is heard before the close sent after it."""
    came, may_go_on, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with own_worker(checkpoint) as worker:
        app = create_app(worker)

        async def late(scope: Scope, receive: Receive, send: Send) -> None:
            if not scope["path"].endswith("/completions"):
                await app(scope, receive, send)
                return
            come = [await receive()]
            came.set()
            await may_go_on.wait()

            async def gone_once_answered() -> Message:
                if come:
                    return come.pop()
                await answered.wait()
                return await receive()

            async def answering(message: Message) -> None:
                answered.set()
                await send(message)

            await app(scope, gone_once_answered, answering)

        async with serving(late) as url, worker_client(url, SystemClock()) as client:
            await client.connect()
            sessions = open_trace(trace).sessions()
            playing = asyncio.create_task(play(client, sessions, Limits(1, 1), Mode("late"), unheard))
            await came.wait()
            playing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await playing
            may_go_on.set()
        await worker.thread.call(no_references)


async def test_one_more_session_is_read_than_run_at_once(trace: Path, served: Served) -> None:
    """The next one may be a sub-agent of the last."""
    read: list[str] = []
    heard: list[int] = []

    def watched() -> Iterator[Session]:
        for session in open_trace(trace).sessions():
            read.append(session.name)
            yield session

    async with worker_client(served.url, SystemClock()) as client:
        await client.connect()
        mode = Mode("watched")
        await play(client, watched(), Limits(3, 1, 2, 1), mode, lambda _: heard.append(len(read)))
    assert heard == [2, 3, 3]


async def test_references_are_seen_while_sessions_are_open_and_gone_once_closed(
    trace: Path, served: Served
) -> None:
    async with worker_client(served.url, SystemClock()) as client:
        await client.connect()
        mode = Mode("held", keep_open=True)
        played = await play(client, open_trace(trace).sessions(), Limits(max_tokens=2), mode, unheard)
        held = await read_references(Site(client, (client,)))
        assert held.sessions == {one.session for one in played}
        assert held.markers == len(played)
        assert held.slots > 0
        assert held.leases == 0
        for one in played:
            await client.close_session(one.session)
            await client.close_session(one.session)
        assert (await read_references(Site(client, (client,)))).left == 0


async def test_a_cold_run_finds_nothing_and_leaves_nothing(trace: Path, served: Served) -> None:
    async with worker_client(served.url, SystemClock()) as client:
        await client.connect()
        for _ in range(2):
            mode = Mode("cold", reuse=False, digest=True)
            (one,) = await play(client, open_trace(trace).sessions(), Limits(1, 3, 2), mode, unheard)
            assert [answer.cached_tokens for answer in one.answers] == [0, 0, 0]
        warm = Mode("warm", digest=True)
        (again,) = await play(client, open_trace(trace).sessions(), Limits(1, 1, 2), warm, unheard)
        assert again.answers[0].cached_tokens == 0
        assert again.answers[0].first_logits == one.answers[0].first_logits
        assert len(again.answers[0].first_logits) == 64


async def test_a_refusal_that_is_no_skip_ends_its_session_only(trace: Path, served: Served) -> None:
    """An empty prompt is nothing that a smaller turn could mend. Those who wait for its session begin at its end."""
    good = next(open_trace(trace).sessions())
    bad = Session("bad", (Call(0, (), {}), *good.calls), "here")
    child = replace(good, name="child", origin=Origin("bad", Link.SPAWN, 2))
    async with worker_client(served.url, SystemClock()) as client:
        await client.connect()
        first, begun, second = await play(
            client, [bad, child, good], Limits(max_tokens=1), Mode("refused"), unheard
        )
    assert [type(turn) for turn in first.turns] == [Refused]
    assert first.refusals[0][1].code == "empty_prompt"
    assert [type(turn) for turn in begun.turns] == [type(turn) for turn in second.turns] == [Answer] * 4


async def test_session_ids_fit_a_header_and_stay_apart() -> None:
    mode = Mode("run")
    ids = [mode.session_id(ordinal, "née / x\n" * 60) for ordinal in (0, 1)]
    assert len(set(ids)) == 2
    assert all(len(one) <= 140 and one.isascii() and one.isprintable() for one in ids)
    assert Mode("run", reuse=False).session_id(0, "x") == ""

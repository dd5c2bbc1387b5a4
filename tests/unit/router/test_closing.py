"""Acknowledged closes: every holder's word, or that it has not spoken; nothing is said that is not so."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
import structlog

from agentcache.clock import ManualClock
from agentcache.errors import CacheError, Kind
from agentcache.router.closing import PENDING, CloseAnswer, Closer
from agentcache.router.fleet import WorkerView
from agentcache.router.sglang import FIRST_PAUSE_S, PlainServers
from agentcache.router.upstream import Reply
from agentcache.store.api import (
    ClosedFamily,
    ClosedOne,
    CloseVerdict,
    Closing,
    Opening,
    SessionRef,
    StoreRules,
)
from agentcache.store.memory import MemoryStore
from agentcache.wire import Outcome, Receipt
from tests.desks import PART, DeskWorker, receipt_of, silent
from tests.patience import pass_time, until

pytestmark = pytest.mark.asyncio
ROOT = SessionRef("t", "root")
SGLANG = WorkerView("sgl:1", "http://127.0.0.1:1", "sglang")
PLAIN = WorkerView("plain:1", "http://127.0.0.1:2", "openai")
LONG_S = 20.0


class Flaky(MemoryStore):
    """A store that fails when it is told to, call by call, and may hold its answers back."""

    def __init__(self, rules: StoreRules) -> None:
        super().__init__(rules, lambda: 1_000_000, lambda: "e1")
        self.failures: list[bool] = []
        self.held: list[asyncio.Event] = []
        self.closes = 0
        self.read_to = ""

    async def close(self, ref: SessionRef, closing: Closing) -> ClosedFamily:
        self._fail()
        self.closes += 1
        family = await super().close(ref, closing)
        for event in self.held:
            await event.wait()
        return family

    async def receipts(self, router: str, after: str, wait_s: float) -> tuple[tuple[str, Receipt], ...]:
        self.read_to = after
        if not self.held:
            self._fail()
        return await super().receipts(router, after, wait_s)

    def _fail(self) -> None:
        if self.failures and self.failures.pop(0):
            raise CacheError(Kind.STORE_FAILED, "did not answer")


@dataclass
class Post:
    """Servers over HTTP: statuses in turn, 0 for no answer; the last one stays."""

    statuses: list[int]
    sent: list[tuple[str, bytes]] = field(default_factory=list)

    async def __call__(self, url: str, body: bytes, _headers: Mapping[str, str], _timeout_s: float) -> Reply:
        self.sent.append((url, body))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if not status:
            raise CacheError(Kind.UPSTREAM_FAILED, "gave no answer")
        return Reply(status, b"")


@dataclass
class World:
    """A store, and what a closer needs beside it."""

    store: Flaky
    post: Post
    clock: ManualClock = field(default_factory=ManualClock)
    paused: list[float] = field(default_factory=list)

    async def pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        await asyncio.sleep(0)

    def closer(self, wait_s: float) -> Closer:
        known = {view.id: view for view in (SGLANG, PLAIN)}
        names = (f"op{number}" for number in count())
        servers = PlainServers(known.get, self.post, self.pause)
        return Closer(self.store, "r1", lambda: next(names), servers, wait_s, self.clock)

    async def worker(self, name: str) -> DeskWorker:
        return await DeskWorker(self.store, name).start()

    async def opened(self, session: str, *workers: str, **opening: Any) -> int:
        """An open session with these holders, the last one its own worker."""
        ref = SessionRef("t", session)
        generation = (await self.store.open(ref, Opening(**opening))).generation
        for placement, worker in enumerate(workers):
            await self.store.assign(ref, generation, placement, worker)
        return generation


@pytest.fixture
def world() -> World:
    return World(Flaky(StoreRules(close_limit=10)), Post([200]))


@asynccontextmanager
async def running(closer: Closer, *workers: DeskWorker) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(one) for one in (closer.run(), *(worker.run() for worker in workers))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await closer.stop()


def outcomes(answer: CloseAnswer, session: str = "root") -> dict[str, str]:
    (one,) = (one for one in answer.sessions if one.session == session)
    return {told.worker: told.outcome for told in one.told}


async def test_the_answer_has_a_word_of_every_holder(world: World) -> None:
    workers = [await world.worker(name) for name in ("w1", "w2")]
    generation = await world.opened("root", "w1", "w2")
    closer = world.closer(LONG_S)
    async with running(closer, *workers):
        answer = await closer.close(ROOT)
    assert (answer.verdict, answer.generation, answer.more) == (CloseVerdict.CLOSED, generation, False)
    assert outcomes(answer) == {"w1": "released", "w2": "released"}
    (one,) = answer.sessions
    assert [(told.released, told.markers, told.mode) for told in one.told] == [((PART,), 1, "release")] * 2


async def test_a_holder_that_does_not_speak_in_time_is_pending(world: World) -> None:
    loud, mute = await world.worker("w1"), await world.worker("w2")
    mute.respond = silent
    await world.opened("root", "w1", "w2")
    closer = world.closer(LONG_S)
    async with running(closer, loud, mute):
        closing = asyncio.ensure_future(closer.close(ROOT))
        await until(lambda: world.store.read_to and mute.closes())
        pass_time(LONG_S)
        answer = await closing
    assert (answer.verdict, outcomes(answer)) == (CloseVerdict.CLOSED, {"w1": "released", "w2": PENDING})


async def test_receipts_that_come_before_the_store_s_answer_count(world: World) -> None:
    worker = await world.worker("w1")
    await world.opened("root", "w1")
    answered = asyncio.Event()
    world.store.held.append(answered)
    closer = world.closer(0.0)
    async with running(closer, worker):
        closing = asyncio.ensure_future(closer.close(ROOT))
        await until(lambda: world.store.read_to)
        answered.set()
        assert outcomes(await closing) == {"w1": "released"}


async def test_a_worker_that_started_anew_has_nothing_left(world: World) -> None:
    worker = await world.worker("w1")
    await world.opened("root", "w1")

    async def restarted() -> None:
        while not world.store.closes:
            await asyncio.sleep(0)
        await worker.restart("i2")

    closer = world.closer(LONG_S)
    async with running(closer):
        answer, _ = await asyncio.gather(closer.close(ROOT), restarted())
    assert outcomes(answer) == {"w1": "restarted"}


async def test_a_failure_is_said_and_logged(world: World) -> None:
    worker = await world.worker("w1")
    worker.respond = lambda _, notice: receipt_of("w1", notice, Outcome.FAILED, "the engine is stuck")
    await world.opened("root", "w1")
    closer = world.closer(LONG_S)
    with structlog.testing.capture_logs() as lines:
        async with running(closer, worker):
            answer = await closer.close(ROOT)
    assert outcomes(answer) == {"w1": "failed"}
    assert answer.sessions[0].told[0].said == "the engine is stuck"
    assert [(line["event"], line["worker"], line["why"]) for line in lines] == [
        ("close_failed", "w1", "the engine is stuck")
    ]


async def test_closing_again_is_the_same_and_tells_nobody(world: World) -> None:
    worker = await world.worker("w1")
    generation = await world.opened("root", "w1")
    closer = world.closer(LONG_S)
    async with running(closer, worker):
        await closer.close(ROOT)
        again = await closer.close(ROOT)
        fenced = await closer.close(ROOT, generation)
    assert again == fenced == CloseAnswer(CloseVerdict.ALREADY, generation)
    assert len(worker.closes()) == 1


async def test_two_closes_at_once_are_one(world: World) -> None:
    worker = await world.worker("w1")
    await world.opened("root", "w1")
    closer = world.closer(LONG_S)
    async with running(closer, worker):
        answers = await asyncio.gather(closer.close(ROOT), closer.close(ROOT))
    assert sorted(answer.verdict for answer in answers) == [CloseVerdict.ALREADY, CloseVerdict.CLOSED]
    assert len(worker.closes()) == 1


async def test_what_is_not_there_or_not_current_is_not_closed(world: World) -> None:
    generation = await world.opened("root")
    closer = world.closer(LONG_S)
    assert await closer.close(SessionRef("t", "none")) == CloseAnswer(CloseVerdict.UNKNOWN)
    assert await closer.close(SessionRef("other", "root")) == CloseAnswer(CloseVerdict.UNKNOWN)
    assert await closer.close(ROOT, generation + 1) == CloseAnswer(CloseVerdict.STALE, generation)
    assert (await world.store.look(ROOT)).state == "open"


async def test_a_family_larger_than_one_call_is_closed_to_its_end(world: World) -> None:
    worker = await world.worker("w1")
    await world.opened("root", "w1")
    for number in range(35):
        await world.opened(f"child{number}", "w1", parent="root")
    closer = world.closer(LONG_S)
    async with running(closer, worker):
        answer = await closer.close(ROOT)
    assert (answer.more, len(answer.sessions), answer.sessions[0].session) == (False, 36, "root")
    assert all(set(outcomes(answer, one.session).values()) == {"released"} for one in answer.sessions)
    assert world.store.closes == 4


async def test_a_session_that_is_opened_again_while_its_family_is_closed_stays_open(world: World) -> None:
    closed = await world.opened("root")
    for number in range(25):
        await world.opened(f"child{number}", parent="root")
    world.store.held.append(asyncio.Event())
    closing = asyncio.ensure_future(world.closer(LONG_S).close(ROOT))
    await until(lambda: world.store.closes)
    opened = await world.opened("root")
    await world.opened("new", parent="root")
    world.store.held.pop().set()
    answer = await closing
    assert (answer.verdict, answer.generation, answer.more) == (CloseVerdict.CLOSED, closed, True)
    assert len(answer.sessions) == 10
    assert (await world.store.look(ROOT)).generation == opened
    assert (await world.store.look(SessionRef("t", "new"))).state == "open"


async def test_how_each_session_is_closed_is_its_own_unless_it_is_said(world: World) -> None:
    worker = await world.worker("w1")
    await world.opened("root", "w1", on_close="demote")
    await world.opened("child", "w1", parent="root", on_close="drop")
    await world.opened("other", "w1", on_close="demote")
    closer = world.closer(LONG_S)
    async with running(closer, worker):
        await closer.close(ROOT)
        await closer.close(SessionRef("t", "other"), mode="release")
    assert worker.closes() == [("root", "demote"), ("child", "drop"), ("other", "release")]


async def test_a_close_in_doubt_is_never_said_to_be_done(world: World) -> None:
    await world.opened("root")
    world.store.failures = [True]
    with pytest.raises(CacheError) as caught:
        await world.closer(LONG_S).close(ROOT)
    assert caught.value.kind is Kind.STORE_FAILED


async def test_what_is_left_when_the_store_goes_away_is_said(world: World) -> None:
    await world.opened("root")
    for number in range(35):
        await world.opened(f"child{number}", parent="root")
    world.store.failures = [False, False, True]
    answer = await world.closer(LONG_S).close(ROOT)
    assert (answer.verdict, answer.more, len(answer.sessions)) == (CloseVerdict.CLOSED, True, 20)


async def test_receipts_are_read_again_after_the_store_was_away(world: World) -> None:
    worker = await world.worker("w1")
    await world.opened("root", "w1")
    closer = world.closer(LONG_S)
    world.store.failures = [False, True, True, True]
    with structlog.testing.capture_logs() as lines:
        async with running(closer, worker):
            assert outcomes(await closer.close(ROOT)) == {"w1": "released"}
    assert world.paused == [0.5] * 3
    assert [line["event"] for line in lines] == ["receipts_unread"]


# servers that are no workers of ours


async def test_sglang_is_told_over_http_under_the_name_that_it_knows(world: World) -> None:
    await world.opened("root", "sgl:1")
    closer = world.closer(LONG_S)
    answer = await closer.close(ROOT)
    assert outcomes(answer) == {"sgl:1": "released"}
    assert world.post.sent == [("http://127.0.0.1:1/close_session", b'{"session_id":"t/root"}')]


async def test_sglang_that_refuses_it_has_failed(world: World) -> None:
    world.post.statuses = [404]
    await world.opened("root", "sgl:1")
    with structlog.testing.capture_logs() as lines:
        answer = await world.closer(LONG_S).close(ROOT)
    assert outcomes(answer) == {"sgl:1": "failed"}
    assert answer.sessions[0].told[0].said == "/close_session answered 404"
    assert [line["event"] for line in lines] == ["close_failed"]


async def test_a_slow_sglang_is_pending_and_told_to_the_end(world: World) -> None:
    world.post.statuses = [500, 500, 200]
    await world.opened("root", "sgl:1")
    going_on, told = asyncio.Event(), asyncio.Event()

    async def pause(seconds: float) -> None:
        await going_on.wait()
        if seconds > FIRST_PAUSE_S:
            told.set()

    world.pause = pause  # type: ignore[method-assign]
    closer = world.closer(0.0)
    assert outcomes(await closer.close(ROOT)) == {"sgl:1": PENDING}
    going_on.set()
    await told.wait()
    await closer.stop()


async def test_other_servers_hold_nothing_by_session(world: World) -> None:
    await world.opened("root", "plain:1")
    assert outcomes(await world.closer(LONG_S).close(ROOT)) == {"plain:1": "unknown"}
    assert world.post.sent == []


async def test_a_request_that_ended_after_its_session_closes_there_again(world: World) -> None:
    closer = world.closer(LONG_S)
    for worker in ("sgl:1", "plain:1", "w1"):
        await closer.close_plain(ROOT, 7, worker)
    while not world.post.sent:
        await asyncio.sleep(0)
    assert [url for url, _ in world.post.sent] == ["http://127.0.0.1:1/close_session"]


async def test_what_the_sweeper_ended_is_told_in_the_background(world: World) -> None:
    taken = asyncio.Event()

    async def post(url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> Reply:
        taken.set()
        return await Post.__call__(world.post, url, body, headers, timeout_s)

    closer = Closer(
        world.store, "r1", lambda: "op", PlainServers({SGLANG.id: SGLANG}.get, post, world.pause), LONG_S
    )
    closer.lapsed(ClosedOne("late", 7, ("w1", "sgl:1"), "t"))
    await taken.wait()
    await closer.stop()
    assert world.post.sent == [("http://127.0.0.1:1/close_session", b'{"session_id":"t/late"}')]

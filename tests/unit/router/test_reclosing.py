"""Closes of the last while are done again when the store has lost its data."""

import asyncio
from dataclasses import dataclass, field
from itertools import count

import pytest

from agentcache.clock import ManualClock
from agentcache.errors import CacheError, Kind
from agentcache.router.closing import Closer
from agentcache.router.reclosing import Reclosing
from agentcache.router.sglang import PlainServers
from agentcache.router.upstream import Reply
from agentcache.store.api import (
    ClosedFamily,
    CloseVerdict,
    Closing,
    Offer,
    Opening,
    SessionRef,
    StoreRules,
)
from agentcache.store.memory import MemoryStore
from agentcache.wire import TAG_VALID_S
from tests.desks import DeskWorker
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.asyncio
SECOND_NS = 10**9


@dataclass
class Script:
    """A store that says which epoch it is, and notes what is closed; `failing` closes do not answer."""

    epoch: str = "e1"
    failing: int = 0
    closes: list[tuple[str, int | None, str, bool]] = field(default_factory=list)

    async def prepare(self) -> str:
        return self.epoch

    async def close(self, ref: SessionRef, closing: Closing) -> ClosedFamily:
        if self.failing:
            self.failing -= 1
            raise CacheError(Kind.STORE_FAILED, "did not answer")
        self.closes.append((ref.session, closing.generation, closing.mode, closing.again))
        return ClosedFamily(CloseVerdict.CLOSED)


def made(store: Script, limit: int = 1000) -> tuple[Reclosing, ManualClock]:
    clock = ManualClock()
    return Reclosing(store, clock, limit=limit), clock


def close(reclosing: Reclosing, *sessions: str) -> None:
    for session in sessions:
        reclosing.remember(SessionRef("t", session), 7, "demote")


async def test_nothing_is_done_again_while_nothing_is_lost() -> None:
    store = Script()
    reclosing, _ = made(store)
    close(reclosing, "a")
    assert [await reclosing.lost(), await reclosing.lost()] == [False, False]
    assert (await reclosing.catch_up(), store.closes) == (0, [])


async def test_what_was_closed_is_closed_again_once_as_it_was() -> None:
    store = Script()
    reclosing, _ = made(store)
    await reclosing.lost()
    close(reclosing, "a", "b")
    store.epoch = "e2"
    assert await reclosing.lost()
    assert await reclosing.catch_up() == 2
    assert store.closes == [("a", 7, "demote", True), ("b", 7, "demote", True)]
    assert not await reclosing.lost()
    assert await reclosing.catch_up() == 0


async def test_what_was_closed_long_ago_is_left() -> None:
    store = Script()
    reclosing, clock = made(store)
    await reclosing.lost()
    close(reclosing, "old")
    clock.advance(TAG_VALID_S * SECOND_NS // 2)
    close(reclosing, "young")
    clock.advance(TAG_VALID_S * SECOND_NS // 2 + 1)
    store.epoch = "e2"
    await reclosing.lost()
    await reclosing.catch_up()
    assert [session for session, *_ in store.closes] == ["young"]


async def test_of_too_many_the_last_are_kept() -> None:
    store = Script()
    reclosing, _ = made(store, limit=100)
    await reclosing.lost()
    close(reclosing, *(f"s{number}" for number in range(250)))
    store.epoch = "e2"
    await reclosing.lost()
    assert await reclosing.catch_up() == 100
    assert {session for session, *_ in store.closes} == {f"s{number}" for number in range(150, 250)}


async def test_what_the_store_did_not_answer_stays_due() -> None:
    store = Script(failing=1)
    reclosing, _ = made(store)
    await reclosing.lost()
    close(reclosing, "a", "b")
    store.epoch = "e2"
    await reclosing.lost()
    with pytest.raises(CacheError):
        await reclosing.catch_up()
    assert await reclosing.catch_up() == 2
    assert {session for session, *_ in store.closes} == {"a", "b"}


async def test_a_session_that_a_worker_brought_back_is_closed_there_again() -> None:
    epochs = (f"e{number}" for number in count())
    store = MemoryStore(StoreRules(), lambda: 1_000_000, lambda: next(epochs))

    def find(_worker: str) -> None:
        """There are no plain servers."""

    async def post(*_: object) -> Reply:
        raise AssertionError("nobody listens")

    closer = Closer(store, "r1", lambda: "op", PlainServers(find, post), PATIENCE_S)
    worker = await DeskWorker(store, "w1").start()
    ref, other = SessionRef("t", "s"), SessionRef("t", "open")
    generations = [(await store.open(one, Opening())).generation for one in (ref, other)]
    for one, generation in zip((ref, other), generations, strict=True):
        await store.assign(one, generation, 0, "w1")
    running = [asyncio.ensure_future(loop) for loop in (closer.run(), worker.run())]
    await closer.close(ref)
    await store.forget()
    await worker.start()
    offers = [Offer(one, g, 1, 0.0, 60.0) for one, g in zip((ref, other), generations, strict=True)]
    await store.offer("w1", offers, lost=True)
    while (await store.look(ref)).state != "closed" or len(worker.closes()) < 2:
        await asyncio.sleep(0)
    assert (await store.look(other)).state == "open"
    assert worker.closes() == [("s", "release")] * 2
    for loop in running:
        loop.cancel()
    await asyncio.gather(*running, return_exceptions=True)

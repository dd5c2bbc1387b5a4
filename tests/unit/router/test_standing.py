"""How a request stands to its session: every word of the store, and none."""

import asyncio
import itertools
from typing import Any

import pytest

from agentcache.clock import ManualClock
from agentcache.errors import CacheError, Kind
from agentcache.router.bindings import Bindings
from agentcache.router.endings import Endings
from agentcache.router.identity import Identity
from agentcache.router.standing import (
    STORE_DOWN,
    STORE_PAUSE_NS,
    Standing,
    StandingRules,
    Standings,
    StoreState,
)
from agentcache.router.tenants import Tenant
from agentcache.store.api import Closing, Opening, SessionRef, StoreRules, TagVerdict
from agentcache.types import SessionState
from tests.routing import FailingStore

pytestmark = pytest.mark.asyncio
ME = Tenant("t", session_limit=2)
S = SessionRef("t", "s")


class Desk:
    """Standings over a store in memory whose clock, and whose health, a test moves."""

    def __init__(self, serve: bool = True) -> None:
        self.now_ms = 1_700_000_000_000
        self.clock = ManualClock(1)
        self.listed = True
        self.late: list[tuple[SessionRef, int, str]] = []
        numbers = itertools.count()
        self.store = FailingStore(StoreRules(ttl_s=100), lambda: self.now_ms, lambda: f"epoch{next(numbers)}")
        self.state = StoreState(self.clock, lambda: self.listed)
        self.endings = Endings(self._pause)
        rules = StandingRules(serve, self._ended_late)
        self.standings = Standings(self.store, self.state, Bindings(self.clock, 300), self.endings, rules)

    async def enter(self, request: str, session: str = "s", only: str = "", **more: Any) -> Standing:
        return await self.standings.enter(request, ME, Identity(session=session, **more), only)

    async def told(self) -> None:
        await self.endings.drained(5)

    async def _pause(self, _seconds: float) -> None:
        await asyncio.sleep(0)

    async def _ended_late(self, ref: SessionRef, generation: int, worker: str) -> None:
        self.late.append((ref, generation, worker))


async def test_a_request_without_a_session_asks_nobody() -> None:
    desk = Desk()
    desk.store.down = True
    standing = await desk.enter("r", session="")
    assert (standing.named, standing.referenced) == (False, False)
    desk.standings.leave(standing, "w1", registered=True)
    assert not desk.endings.pending


async def test_a_new_session_is_taken_by_the_only_worker_at_once() -> None:
    desk = Desk()
    standing = await desk.enter("r", only="w1")
    assert (standing.tagged.verdict, standing.tagged.worker, standing.bound) == (TagVerdict.OPENED, "w1", "")
    settled = await desk.standings.settle(standing, "w1")
    assert (settled.bound, settled.tagged.placement) == ("w1", standing.tagged.placement)
    assert desk.standings.bindings.find(S) == "w1"


async def test_the_first_writer_has_the_session_and_the_other_adopts() -> None:
    desk = Desk()
    one, two = await desk.enter("r1"), await desk.enter("r2")
    assert (await desk.standings.settle(one, "w1")).bound == "w1"
    assert (await desk.standings.settle(two, "w2")).bound == "w1"


async def test_a_session_that_idled_out_says_so_with_its_next_generation() -> None:
    desk = Desk()
    first = await desk.standings.settle(await desk.enter("r1"), "w1")
    desk.standings.leave(first, "w1", registered=True)
    await desk.told()
    desk.now_ms += 200_000
    await desk.store.sweep(10)
    again = await desk.enter("r2")
    assert again.referenced
    assert again.state in ("", SessionState.EXPIRED)
    assert again.generation > first.generation


async def test_an_end_tells_the_store_and_a_late_one_is_told_to_who_must_close_again() -> None:
    desk = Desk()
    standing = await desk.standings.settle(await desk.enter("r"), "w1")
    assert (await desk.store.look(S)).in_flight == 1
    await desk.store.close(S, Closing())
    desk.standings.leave(standing, "w1", registered=True)
    await desk.told()
    assert desk.late == [(S, standing.tagged.generation, "w1")]


async def test_a_request_that_went_nowhere_ends_without_a_word_to_anybody_else() -> None:
    desk = Desk()
    standing = await desk.enter("r")
    await desk.store.close(S, Closing())
    desk.standings.leave(standing, "", registered=False)
    await desk.told()
    assert desk.late == []


async def test_after_a_failure_the_store_is_left_alone_for_a_moment_and_then_asked_again() -> None:
    desk = Desk()
    await desk.standings.settle(await desk.enter("r1"), "w1")
    desk.store.down = True
    down = await desk.enter("r2")
    assert (down.referenced, down.state, down.why, down.bound) == (False, "none", STORE_DOWN, "w1")
    desk.store.down = False
    assert not (await desk.enter("r3")).referenced
    desk.clock.advance(STORE_PAUSE_NS)
    assert (await desk.enter("r4")).referenced
    desk.listed = False
    assert not (await desk.enter("r5")).referenced


@pytest.mark.parametrize("more", [{"strict": True}, {"fence": 1}])
async def test_who_insists_is_refused_while_the_store_is_down(more: dict[str, Any]) -> None:
    desk = Desk()
    desk.store.down = True
    with pytest.raises(CacheError) as caught:
        await desk.enter("r", **more)
    assert caught.value.kind is Kind.STORE_FAILED


async def test_everybody_with_a_session_is_refused_where_settings_say_so() -> None:
    desk = Desk(serve=False)
    desk.store.down = True
    with pytest.raises(CacheError):
        await desk.enter("r")
    assert not (await desk.enter("r", session="")).named


async def test_a_tenant_with_enough_sessions_is_served_without_and_refused_if_it_insists() -> None:
    desk = Desk()
    for session in ("a", "b"):
        await desk.enter(session, session=session)
    more = await desk.enter("r", session="c")
    assert (more.referenced, more.state) == (False, "none")
    with pytest.raises(CacheError) as caught:
        await desk.enter("r2", session="c", strict=True)
    assert caught.value.kind is Kind.SESSION_LIMIT


async def test_entering_again_rises_above_what_the_worker_knows_and_leaves_nothing_in_flight() -> None:
    desk = Desk()
    standing = await desk.standings.settle(await desk.enter("r"), "w1")
    known = standing.generation + 10**9
    again = await desk.standings.again(standing, ME, Identity(session="s"), known)
    assert again.referenced
    assert again.generation > known
    assert again.bound == "w1"
    desk.standings.leave(again, "w1", registered=True)
    await desk.told()
    assert (await desk.store.look(S)).in_flight == 0


async def test_entering_again_after_a_fence_of_somebody_else_needs_no_new_generation() -> None:
    desk = Desk()
    standing = await desk.enter("r")
    raised = await desk.store.raise_above(S, standing.generation)
    again = await desk.standings.again(standing, ME, Identity(session="s"), raised)
    assert again.generation == raised


async def test_a_session_rises_above_what_its_worker_has_let_go_of() -> None:
    desk = Desk()
    standing = await desk.standings.settle(await desk.enter("r"), "w1")
    desk.standings.let_go(standing, closed=False)
    await desk.told()
    assert (await desk.store.look(S)).generation > standing.generation


async def test_a_session_that_its_worker_knows_to_be_closed_is_closed_again() -> None:
    desk = Desk()
    standing = await desk.standings.settle(await desk.enter("r"), "w1")
    desk.standings.let_go(standing, closed=True)
    await desk.told()
    record = await desk.store.look(S)
    assert (record.state, record.generation) == (SessionState.CLOSED, standing.generation)
    opened = await desk.store.open(S, Opening())
    desk.standings.let_go(standing, closed=True)
    await desk.told()
    assert (await desk.store.look(S)).generation == opened.generation


async def test_a_late_turn_raises_nothing_where_its_session_has_moved() -> None:
    desk = Desk()
    standing = await desk.standings.settle(await desk.enter("r"), "w1")
    await desk.store.assign(S, standing.generation, standing.tagged.placement, "w2")
    desk.standings.let_go(standing, closed=False)
    await desk.told()
    assert (await desk.store.look(S)).generation == standing.generation


async def test_a_session_that_closed_meanwhile_is_no_reference() -> None:
    desk = Desk()
    standing = await desk.enter("r")
    await desk.store.close(S, Closing())
    settled = await desk.standings.settle(standing, "w1")
    assert (settled.referenced, settled.state) == (False, SessionState.CLOSED)
    assert desk.standings.bindings.find(S) == ""

"""Forks behind a router: the notice that a parent's worker gets, the tag of a request, and what follows them."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from agentcache.records import Paused
from agentcache.router.closing import Closer
from agentcache.router.sglang import PlainServers
from agentcache.store.api import CloseVerdict, Closing, Opening
from agentcache.wire import Hints, Notice, Order, Outcome
from agentcache.worker.link_orders import Following
from tests.linking import TENANT, LinkWorld, ref

pytestmark = pytest.mark.asyncio
FORK = Opening(parent="parent", fork=True)


@pytest.fixture
def world() -> LinkWorld:
    return LinkWorld()


async def forked(world: LinkWorld, child: str = "child") -> None:
    """A parent with a turn here, and a child that was opened as a fork of it."""
    await world.step()
    await world.turn("parent")
    await world.store.open(ref(child), FORK)
    await world.step()


async def test_a_fork_is_referenced_here_before_its_first_request(world: LinkWorld) -> None:
    await forked(world)
    child, parent = world.view("child"), world.view("parent")
    assert (child.markers, child.held, child.parent) == (1, parent.held, parent.session)
    assert (await world.store.look(ref("child"))).worker == "w1"


async def test_what_it_inherited_stays_when_its_parent_is_closed_elsewhere(world: LinkWorld) -> None:
    """A move of the parent takes the parent's reference only."""
    await forked(world)
    await world.move("parent", "w2")
    await world.step()
    assert world.referenced == {f"{TENANT}/child"}


async def test_the_first_turn_of_a_fork_takes_the_place_of_what_it_inherited(world: LinkWorld) -> None:
    await forked(world)
    await world.turn("child")
    assert world.view("child").markers == 1
    await world.close("parent")
    await world.step()
    assert world.engine.cache.stats().open_references == 0


async def test_a_fork_whose_request_came_before_the_notice(world: LinkWorld) -> None:
    await world.step()
    await world.turn("parent")
    await world.store.open(ref("child"), FORK)
    tag = await world.tagged("child")
    world.begin(tag)
    await world.step()
    assert world.view("child").markers == 1
    world.finish()
    await world.done(tag)
    assert world.view("child").markers == 1


async def test_a_late_notice_brings_nothing_back(world: LinkWorld) -> None:
    """Closed, or registered: the notice comes after it, and once more."""
    await world.step()
    await world.turn("parent")
    opened = await world.store.open(ref("child"), FORK)
    notice = Notice(Order.FORK, TENANT, "child", opened.generation, 1, parent="parent")
    following = Following("w1")
    await world.turn("child")
    before = world.view("child").held
    (receipt,) = following.obey(world.engine, [notice])
    assert (receipt.outcome, world.view("child").held) == (Outcome.RELEASED, before)
    await world.store.close(ref("child"), Closing())
    await world.step()
    (receipt,) = following.obey(world.engine, [notice])
    assert receipt.outcome is Outcome.UNKNOWN
    assert world.referenced == {f"{TENANT}/parent"}
    (receipt,) = following.obey(world.engine, [replace(notice, generation=1)])
    assert receipt.outcome is Outcome.UNKNOWN


async def test_a_notice_that_comes_again_ends_no_pause(world: LinkWorld) -> None:
    """The child has had its turn, and waits for a tool."""
    await forked(world)
    await world.turn("child")
    child = world.view("child")
    world.engine.cache.pause_session(child.session, Paused("tests", 20.0))
    notice = Notice(Order.FORK, TENANT, "child", child.generation, 1, parent="parent")
    (receipt,) = Following("w1").obey(world.engine, [notice])
    assert receipt.outcome is Outcome.RELEASED
    assert world.view("child").paused == Paused("tests", 20.0)


async def test_a_request_that_forks_says_so_in_its_tag(world: LinkWorld) -> None:
    await world.step()
    await world.turn("parent")
    tag = replace(await world.tagged("child", parent="parent"), hints=Hints(fork=True))
    ticket = world.enter(tag)
    assert ticket.registers
    assert world.view("child").markers == 1
    world.engine.cache.leave(ticket)
    spawned = await world.tagged("other", parent="parent")
    world.engine.cache.leave(world.enter(spawned))
    assert world.view("other").markers == 0


async def test_a_fork_that_is_never_used_idles_out(world: LinkWorld) -> None:
    await world.step()
    await world.turn("parent")
    await world.store.open(ref("child"), Opening(parent="parent", fork=True, ttl_s=20))
    await world.step()
    assert world.view("child").markers == 1
    world.wait(21)
    await world.store.sweep(10)
    await world.step()
    assert world.referenced == {f"{TENANT}/parent"}


@pytest.mark.timeout(300)
async def test_thousands_of_forks_are_closed_by_one_call(world: LinkWorld) -> None:
    """5,000 children with a reference each on one worker: one close, a word of the worker for each, nothing left."""
    await forked(world)
    for number in range(5000):
        await world.store.open(ref(f"c{number}"), FORK)
    while world.engine.cache.stats().open_references < 5002:
        await world.link.read_mail()
    closer = Closer(world.store, "router", lambda: "op", no_plain_servers(), wait_s=60.0)
    reading = asyncio.ensure_future(closer.run())
    closing = asyncio.ensure_future(closer.close(ref("parent")))
    while not closing.done():
        await world.link.read_mail()
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    answer: Any = closing.result()
    assert (answer.verdict, answer.more, len(answer.sessions)) == (CloseVerdict.CLOSED, False, 5002)
    assert {told.outcome for one in answer.sessions for told in one.told} == {str(Outcome.RELEASED)}
    stats = world.engine.cache.stats()
    assert (stats.open_references, stats.sessions.open) == (0, 0)
    world.engine.cache.check()


def no_plain_servers() -> PlainServers:
    async def post(*_: object) -> Any:
        raise AssertionError("there are none")

    return PlainServers(lambda _: None, post)

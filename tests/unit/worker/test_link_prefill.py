"""A worker that computes prompts for others behind a router: its part of a session ends as the session does."""

import pytest
from msgspec.structs import replace

from agentcache.store.api import SessionRecord
from agentcache.wire import Hints, Outcome, Role, Tag, WorkerCard, WorkerLoad
from tests.linking import LinkWorld, ref

pytestmark = pytest.mark.asyncio


@pytest.fixture
def world() -> LinkWorld:
    world = LinkWorld()
    world.link = world.linked("w1", "start", Role.PREFILL)
    return world


async def lent(world: LinkWorld, worker: str = "w1") -> SessionRecord:
    now = await world.store.look(ref("s"))
    assert (await world.store.assign(ref("s"), now.generation, now.placement, worker, prefill=True)).worker
    return await world.store.look(ref("s"))


async def prompted(world: LinkWorld) -> Tag:
    """A session at `w2`, for which this worker is about to compute a prompt."""
    await world.step()
    await world.store.register(WorkerCard("w2", "one", "http://w2", "tiny-all", 4096, 4, 32, 8, 64))
    await turn_elsewhere(world)
    await lent(world)
    return await tag_here(world)


async def tag_here(world: LinkWorld) -> Tag:
    tag = await world.tagged("s", worker="w2")
    return replace(tag, hints=Hints(strict=True, prefill=True))


async def turn(world: LinkWorld) -> Tag:
    """A prompt here, and the turn of the session's own worker."""
    tag = await tag_here(world)
    world.serve(tag)
    await world.done(tag, worker="w2")
    return tag


async def test_it_references_what_it_computed_until_the_session_is_closed(world: LinkWorld) -> None:
    await prompted(world)
    for _ in range(3):
        await turn(world)
        await world.step()
        assert world.referenced == {"acme/s"}
    await world.close("s")
    await world.step()
    assert world.referenced == set()
    (receipt,) = await world.answers()
    assert (receipt.worker, receipt.outcome, receipt.markers) == ("w1", Outcome.RELEASED, 1)


async def test_a_prompt_that_ends_after_the_close_leaves_no_reference(world: LinkWorld) -> None:
    tag = await prompted(world)
    world.begin(tag)
    await world.close("s")
    await world.step()
    world.finish()
    assert world.referenced == set()
    assert world.engine.cache.stats().open_references == 0


async def test_a_close_that_comes_before_the_prompt_keeps_it_out(world: LinkWorld) -> None:
    tag = await prompted(world)
    await world.close("s")
    await world.step()
    with pytest.raises(Exception, match="closed"):
        world.begin(tag)


async def test_an_idle_session_ends_on_both(world: LinkWorld) -> None:
    tag = await prompted(world)
    world.serve(tag)
    await world.done(tag, worker="w2")
    for beat in range(26):
        assert (world.referenced == {"acme/s"}) == (beat < 25)
        world.wait(4)
        await world.store.heartbeat("w2", "one", 0, WorkerLoad())
        await world.store.sweep(10)
        await world.step()
    assert world.referenced == set()
    assert (await world.store.look(ref("s"))).holders == ("w2",)


async def test_it_lets_go_once_another_one_computes_the_prompts(world: LinkWorld) -> None:
    await prompted(world)
    await turn(world)
    await world.step()
    assert world.referenced == {"acme/s"}
    await lent(world, "w3")
    await turn_elsewhere(world)
    await world.step()
    assert world.referenced == set()
    await lent(world)
    await turn(world)
    await world.step()
    assert world.referenced == {"acme/s"}, "it computes them again"


async def turn_elsewhere(world: LinkWorld) -> None:
    tag = await world.tagged("s", worker="w2")
    await world.done(tag, worker="w2")


async def test_a_move_of_the_session_is_none_of_its_business(world: LinkWorld) -> None:
    await prompted(world)
    await turn(world)
    now = await world.store.look(ref("s"))
    await world.store.assign(ref("s"), now.generation, now.placement, "w4")
    tag = await world.tagged("s", worker="w4")
    await world.done(tag, worker="w4")
    await world.step()
    assert world.referenced == {"acme/s"}
    assert (await world.store.look(ref("s"))).holders == ("w1", "w4")


async def test_after_a_loss_of_the_store_it_is_what_it_was(world: LinkWorld) -> None:
    await prompted(world)
    await turn(world)
    world.store.books.lose()
    await world.step()
    await world.step()
    record = await world.store.look(ref("s"))
    assert (record.state, record.worker, record.prefill) == ("open", "", "w1")
    assert world.referenced == {"acme/s"}
    tag = await world.tagged("s", worker="w2")
    assert (await world.store.look(ref("s"))).worker == "w2"
    await world.done(tag, worker="w2")
    await world.step()
    assert world.referenced == {"acme/s"}

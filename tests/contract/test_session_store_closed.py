"""The contract of a session store, over every store: what was closed stays closed, whatever workers offer later."""

import pytest

from agentcache.store.api import Closing, Offer, Offered, OfferVerdict, Opening, SessionRef, TagVerdict
from tests.sessionstores import A, B, Scene, every_store

pytestmark = pytest.mark.asyncio


@every_store
async def test_a_lost_child_is_closed_with_the_parent_that_closed_meanwhile(scene: Scene) -> None:
    """The data was lost, the parent was used again and closed, and only then a worker tells of its child."""
    await scene.worker("w1")
    kid, young, top = [SessionRef("t", name) for name in ("kid", "young", "top")]
    await scene.tag(top)
    closed = (await scene.store.close(top, Closing())).generation
    offers = [
        Offer(kid, closed - 1, 3, idle_s=1, ttl_s=100, parent="top"),
        Offer(young, closed + 1, 1, idle_s=1, ttl_s=100, parent="top"),
    ]
    assert await scene.store.offer("w1", offers, lost=True) == (
        Offered(OfferVerdict.CLOSED, closed - 1),
        Offered(OfferVerdict.KEEP, closed + 1, 1),
    )
    assert [(await scene.store.look(one)).state for one in (kid, young)] == ["closed", "open"]
    assert not (await scene.tag(kid)).referenced


@every_store
async def test_a_lost_child_is_closed_with_a_parent_that_is_open_again(scene: Scene) -> None:
    await scene.worker("w1")
    top = SessionRef("t", "top")
    await scene.tag(top)
    closed = (await scene.store.close(top, Closing())).generation
    await scene.store.open(top, Opening())
    offer = Offer(SessionRef("t", "kid"), closed - 1, 3, idle_s=1, ttl_s=100, parent="top")
    assert await scene.store.offer("w1", [offer], lost=True) == (Offered(OfferVerdict.CLOSED, closed - 1),)
    assert (await scene.store.look(top)).children == 0


@every_store
@pytest.mark.parametrize("served", ["w1", "w2", ""])
async def test_what_was_closed_while_a_worker_was_away_is_closed_though_it_is_open_again(
    scene: Scene, served: str
) -> None:
    """Nobody could tell the worker, and by now the session has a later generation, there or elsewhere."""
    await scene.worker("w1")
    before = await scene.turn(A, "w1")
    await scene.store.leave("w1", "1")
    await scene.store.close(A, Closing())
    worker = await scene.worker("w1")
    await scene.worker("w2")
    opened = await scene.store.open(A, Opening())
    after = await scene.tag(A, served)
    offers = [Offer(A, generation, 1, 1, 100) for generation in (before.generation, opened.generation)]
    closed, kept = await scene.store.offer("w1", offers, lost=False)
    assert closed == Offered(OfferVerdict.CLOSED, before.generation)
    assert kept.verdict is (OfferVerdict.HELD if served == "w2" else OfferVerdict.KEEP)
    assert (after.generation, await worker.notices()) == (opened.generation, [])


@every_store
async def test_what_was_closed_stays_closed_when_it_was_open_again_and_idled_out(scene: Scene) -> None:
    """A worker that knows of neither offers it to a store that has lost its data since, as it believes."""
    before = await scene.tag(A)
    await scene.store.close(A, Closing())
    await scene.store.open(A, Opening())
    scene.hours.pass_s(101)
    assert (await scene.store.sweep(100)).expired == 1
    await scene.worker("w1")
    offer = Offer(A, before.generation, 1, 1, 100)
    assert await scene.store.offer("w1", [offer], lost=True) == (
        Offered(OfferVerdict.CLOSED, before.generation),
    )
    assert (await scene.tag(A)).verdict is TagVerdict.OPENED, "it idled out: a request opens it at once"


@every_store
async def test_every_close_of_a_session_is_done_again_after_a_loss(scene: Scene) -> None:
    """By several routers, in any order, and where somebody has opened the session meanwhile."""
    await scene.worker("w1")
    for generation in (40, 50, 45):
        await scene.store.close(A, Closing(generation, again=True))
    opened = await scene.tag(B)
    await scene.store.close(B, Closing(60, again=True))
    offers = [Offer(A, 50, 1, 1, 100), Offer(B, 60, 1, 1, 100)]
    assert await scene.store.offer("w1", offers, lost=True) == (
        Offered(OfferVerdict.CLOSED, 50),
        Offered(OfferVerdict.CLOSED, 60),
    )
    record = await scene.store.look(B)
    assert (record.state, record.generation, record.holders) == ("open", opened.generation, ())

"""The contract of a session store, over every store: what workers are told, tell, and have kept."""

import asyncio

import pytest

from agentcache.store.api import Closing, Done, Offer, Offered, OfferVerdict, Opening, SessionRef, Use
from agentcache.wire import HeldPart, Notice, Order, Outcome, Receipt, WorkerLoad
from tests.sessionstores import RULES, A, B, Scene, card, every_store, receipt

pytestmark = pytest.mark.asyncio


async def waiting_receipts(scene: Scene, router: str = "r1", after: str = "") -> list[Receipt]:
    return [one for _, one in await scene.store.receipts(router, after, 0)]


@every_store
async def test_workers_are_listed_with_their_load_while_they_are_heard(scene: Scene) -> None:
    one, two = await scene.worker("w1"), await scene.worker("w2")
    load = WorkerLoad(waiting=1, running=2, open_sessions=3, draining=True)
    scene.hours.pass_s(20)
    beat = await scene.store.heartbeat("w1", "1", 0, load)
    assert beat.known
    scene.hours.pass_s(11)
    first, second = await scene.store.workers()
    assert (first.card, first.load, first.alive, first.draining) == (card("w1"), load, True, False)
    assert (second.card, second.alive) == (card("w2"), False)
    assert first.heard_ms == scene.hours.now - 11_000
    assert await scene.store.drain("w2", True)
    assert [entry.draining for entry in await scene.store.workers()] == [False, True]
    assert await scene.store.drain("w2", False)
    assert not await scene.store.drain("w9", True)
    await scene.store.leave("w1", "other")
    await scene.store.leave("w1", "1")
    assert [entry.card.worker for entry in await scene.store.workers()] == ["w2"]
    assert not (await one.beat()).known
    assert (await two.beat()).known


@every_store
async def test_a_drain_ends_with_the_incarnation(scene: Scene) -> None:
    await scene.worker("w1")
    await scene.store.drain("w1", True)
    await scene.worker("w1")
    assert [entry.draining for entry in await scene.store.workers()] == [True]
    await scene.worker("w1", "2")
    assert [entry.draining for entry in await scene.store.workers()] == [False]


@every_store
async def test_every_worker_that_holds_something_is_told_of_a_close(scene: Scene) -> None:
    """And the router that waits gets each one's answer, once."""
    one, two = await scene.worker("w1"), await scene.worker("w2")
    tagged = await scene.tag(A, "w1")
    await scene.store.assign(A, tagged.generation, 1, "w2")
    closed = await scene.store.close(A, Closing(mode="drop", operation="op", reply_to="r1"))
    assert closed.closed[0].holders == ("w1", "w2")
    (told,) = await one.notices()
    assert told == Notice(Order.CLOSE, "t", "a", tagged.generation, 2, "drop", "op", "r1", told.at)
    part = HeldPart("full", "device", 64, 4, 4096)
    answer = Receipt(
        Order.CLOSE, "t", "a", tagged.generation, "w1", Outcome.RELEASED, "op", "r1", (part,), 2, "drop"
    )
    await scene.store.receipt(answer)
    await scene.store.receipt(answer)
    ((place, first),) = await scene.store.receipts("r1", "", 0)
    assert first == answer
    (other,) = await two.notices()
    await two.answer(other, Outcome.FAILED)
    assert [one.worker for one in await waiting_receipts(scene, after=place)] == ["w2"]
    assert await waiting_receipts(scene, "r2") == []


@every_store
async def test_a_close_without_a_mode_is_each_sessions_own(scene: Scene) -> None:
    worker = await scene.worker("w1")
    await scene.store.open(A, Opening(on_close="drop"))
    await scene.tag(A, "w1")
    await scene.store.close(A, Closing(mode=""))
    assert [notice.mode for notice in await worker.notices()] == ["drop"]


@every_store
async def test_a_worker_that_starts_anew_has_nothing_left_to_release(scene: Scene) -> None:
    worker = await scene.worker("w1")
    tagged = await scene.tag(A, "w1")
    await scene.store.close(A, Closing(operation="op", reply_to="r1"))
    await scene.tag(B, "w1")
    await scene.store.close(B, Closing(operation="no", reply_to=""))
    (first, _) = await worker.notices()
    await scene.worker("w1", "2")
    assert await waiting_receipts(scene) == [receipt(first, "w1", Outcome.RESTARTED)]
    assert tagged.generation == first.generation
    await worker.answer(first)
    assert len(await waiting_receipts(scene)) == 1, "it was answered for"


@every_store
async def test_a_worker_that_leaves_is_answered_for(scene: Scene) -> None:
    worker = await scene.worker("w1")
    await scene.tag(A, "w1")
    await scene.store.close(A, Closing(operation="op", reply_to="r1"))
    await scene.store.leave("w1", worker.incarnation)
    assert [one.outcome for one in await waiting_receipts(scene)] == [Outcome.RESTARTED]


@every_store
async def test_a_worker_that_leaves_leaves_no_stream(scene: Scene) -> None:
    """Names of workers are new with each start where ports or pods are."""
    worker = await scene.worker("w1")
    await scene.tag(A, "w1")
    await scene.store.close(A, Closing())
    assert not any([(await worker.mail(shard)).gap for shard in range(scene.store.shards)])
    await scene.store.leave("w1", worker.incarnation)
    assert all([(await worker.mail(shard)).gap for shard in range(scene.store.shards)])


@every_store
async def test_a_worker_that_is_gone_is_dismissed(scene: Scene) -> None:
    worker = await scene.worker("w1")
    await scene.tag(A, "w1")
    await scene.store.close(A, Closing(operation="op", reply_to="r1"))
    scene.hours.pass_s(RULES.worker_s * 10)
    await scene.store.sweep(100)
    assert await scene.store.workers() == ()
    (answer,) = await waiting_receipts(scene)
    assert (answer.outcome, answer.said) == (Outcome.FAILED, "the worker is gone")
    assert not (await worker.beat()).known
    assert (await worker.mail()).gap


@every_store
async def test_the_worker_that_registers_takes_over_from_the_others(scene: Scene) -> None:
    one, two = await scene.worker("w1"), await scene.worker("w2")
    await scene.turn(A, "w1")
    tagged = await scene.store.tag(A, Use("moved"))
    await scene.store.assign(A, tagged.generation, 1, "w2")
    late = Done("moved", tagged.generation, "w1", 1, True)
    assert await scene.store.done(A, late)
    assert (await scene.store.look(A)).holders == ("w1", "w2"), "a turn where it was before moves nothing"
    await scene.turn(A)
    (moved,) = await one.notices()
    assert (moved.order, moved.generation, moved.placement) == (Order.MOVED, tagged.generation, 2)
    assert await two.notices() == []
    assert (await scene.store.look(A)).holders == ("w2",)
    await one.answer(moved)


@every_store
async def test_notices_come_in_order_to_a_worker_that_waits(scene: Scene) -> None:
    worker = await scene.worker("w1")
    shard = await shard_of_t(scene)
    waits = asyncio.create_task(worker.mail(shard, wait_s=20))
    await asyncio.sleep(0)
    refs = [SessionRef("t", f"s{number}") for number in range(5)]
    for ref in refs:
        await scene.tag(ref, "w1")
        await scene.store.close(ref, Closing())
    told = list((await waits).notices)
    while len(told) < len(refs):
        told += (await worker.mail(shard, wait_s=5)).notices
    assert [notice.session for notice in told] == [ref.session for ref in refs]
    assert (await worker.mail(shard, wait_s=0.01)).notices == ()


@every_store
async def test_a_router_waits_for_receipts(scene: Scene) -> None:
    worker = await scene.worker("w1")
    await scene.tag(A, "w1")
    await scene.store.close(A, Closing(operation="op", reply_to="r1"))
    waits = asyncio.create_task(scene.store.receipts("r1", "", 20))
    (told,) = await worker.notices()
    await worker.answer(told)
    assert [one.operation for _, one in await waits] == ["op"]
    assert await scene.store.receipts("nobody", "", 0.01) == ()


@every_store
async def test_a_stream_is_bounded_and_a_worker_hears_of_what_it_lost(scene: Scene) -> None:
    worker = await scene.worker("w1")
    shard = await shard_of_t(scene)
    for _ in range(300):
        await scene.tag(A, "w1")
        await scene.store.close(A, Closing())
        scene.hours.pass_s(21)
        await worker.beat()
    mail = await worker.mail(shard)
    assert mail.gap
    assert 100 <= len(mail.notices) < 300
    assert mail.notices[-1].at == mail.cursor
    assert not (await worker.mail(shard)).gap


@every_store
async def test_lost_data_is_a_new_epoch_with_higher_generations(scene: Scene) -> None:
    """And a worker that knew more raises them above that, even where the clock went back."""
    worker = await scene.worker("w1")
    before = await scene.turn(A, "w1")
    epoch = (await worker.beat()).epoch
    assert epoch == before.epoch
    scene.hours.pass_s(-3600)
    await scene.store.forget()
    lost = await worker.beat(highest=before.generation)
    assert (lost.known, lost.epoch == epoch) == (False, False)
    assert (await worker.mail()).gap
    after = await scene.tag(A)
    assert after.generation > before.generation
    assert (await scene.store.prepare()) == after.epoch == (await worker.beat()).epoch != epoch


@every_store
async def test_what_was_lost_is_created_again_from_what_workers_have(scene: Scene) -> None:
    await scene.worker("w1")
    await scene.store.close(B, Closing(generation=50, again=True))
    offers = [
        Offer(SessionRef("t", "kid"), 41, 3, idle_s=60, ttl_s=100, parent="top"),
        Offer(B, 50, 1, 1, 100),
        Offer(SessionRef("t", "idle"), 42, 1, idle_s=100, ttl_s=100),
        Offer(SessionRef("u", "kid"), 43, 1, idle_s=1, ttl_s=100),
    ]
    assert await scene.store.offer("w1", offers, lost=True) == (
        Offered(OfferVerdict.KEEP, 41, 3),
        Offered(OfferVerdict.CLOSED, 50),
        Offered(OfferVerdict.GONE),
        Offered(OfferVerdict.KEEP, 43, 1),
    )
    kid, top = [await scene.store.look(SessionRef("t", name)) for name in ("kid", "top")]
    assert (kid.worker, kid.placement, kid.idle_s, kid.parent) == ("w1", 3, 60, "top")
    assert kid.holders == ("w1",)
    assert (top.state, top.worker, top.children) == ("open", "", 1)
    assert await scene.store.offer("w1", [Offer(SessionRef("t", "top"), 40, 2, 5, 100)], lost=True) == (
        Offered(OfferVerdict.KEEP, top.generation, 2),
    )
    assert (await scene.tag(SessionRef("t", "kid"))).generation == 41


@every_store
async def test_what_ended_while_a_worker_was_away_is_gone(scene: Scene) -> None:
    await scene.worker("w1")
    assert await scene.store.offer("w1", [Offer(A, 40, 1, 1, 100)], lost=False) == (
        Offered(OfferVerdict.GONE),
    )
    assert await scene.store.offer("w1", [], lost=True) == ()


@every_store
async def test_a_live_record_wins_over_what_a_worker_has(scene: Scene) -> None:
    await scene.worker("w1")
    await scene.worker("w2")
    tagged = await scene.store.tag(A, Use("r1", "w1"))
    offer = Offer(A, tagged.generation, 1, 1, 100)
    assert await scene.store.offer("w1", [offer], False) == (
        Offered(OfferVerdict.KEEP, tagged.generation, 1),
    )
    assert await scene.store.offer("w2", [offer], False) == (
        Offered(OfferVerdict.HELD, tagged.generation, 1),
    )
    assert (await scene.store.look(A)).holders == ("w1", "w2")
    await scene.store.done(A, Done("r1", tagged.generation, "w1", 1, True))
    assert await scene.store.offer("w2", [offer], False) == (
        Offered(OfferVerdict.MOVED, tagged.generation, 1),
    )
    assert (await scene.store.look(A)).holders == ("w1",)


@every_store
async def test_a_worker_that_was_told_more_than_is_known_is_right(scene: Scene) -> None:
    """The store lost its last moments: a later placement, or a later generation, is with the worker."""
    await scene.worker("w1")
    await scene.worker("w2")
    tagged = await scene.tag(A, "w1")
    assert await scene.store.offer("w2", [Offer(A, tagged.generation, 2, 1, 100)], False) == (
        Offered(OfferVerdict.KEEP, tagged.generation, 2),
    )
    (kept,) = await scene.store.offer("w1", [Offer(A, tagged.generation + 5, 1, 1, 100)], False)
    assert (kept.verdict, kept.placement) == (OfferVerdict.KEEP, 3)
    assert kept.generation > tagged.generation + 5


@every_store
async def test_a_worker_hears_how_long_no_router_has_swept(scene: Scene) -> None:
    worker = await scene.worker("w1")
    scene.hours.pass_s(5)
    assert (await worker.beat()).unswept_s == 5
    await scene.store.sweep(1)
    assert (await worker.beat()).unswept_s == 0


async def shard_of_t(scene: Scene) -> int:
    """The shard of tenant `t`: the one where its notices come."""
    probe = await scene.worker("probe")
    await scene.tag(SessionRef("t", "probe"), "probe")
    await scene.store.close(SessionRef("t", "probe"), Closing())
    mails = [await probe.mail(shard) for shard in range(scene.store.shards)]
    return next(shard for shard, mail in enumerate(mails) if mail.notices)

"""A worker's link step by step: what it says when, what it does with notices, and with a store that forgets."""

import pytest
from msgspec.structs import replace

from agentcache.errors import CacheError, Kind
from agentcache.store.api import Note, NoteKind, Opening
from agentcache.wire import Notice, Order, Outcome, WorkerLoad
from agentcache.worker.link_orders import Following
from agentcache.worker.link_standing import Pace
from tests.linking import TENANT, LinkWorld, ref

pytestmark = pytest.mark.asyncio


@pytest.fixture
def world() -> LinkWorld:
    return LinkWorld()


# registering and beating


async def test_a_worker_registers_and_says_how_it_is(world: LinkWorld) -> None:
    await world.link.beat()
    (entry,) = await world.store.workers()
    assert (entry.card.worker, entry.alive, entry.load) == ("w1", True, WorkerLoad())
    assert [what for what, _ in world.desk.said] == [
        "mail",
        "register",
        "heartbeat",
    ]  # no notice can be missed
    tag = await world.tagged("s")
    world.begin(tag)
    await world.link.beat()
    (entry,) = await world.store.workers()
    assert entry.load == WorkerLoad(running=1, open_sessions=1)
    assert world.desk.told("heartbeat")[-1][0] == tag.generation
    world.finish()


async def test_a_draining_worker_says_so_at_once_and_leaves_in_the_end(world: LinkWorld) -> None:
    await world.link.beat()
    await world.link.drain()
    (entry,) = await world.store.workers()
    assert entry.load.draining
    await world.link.start()
    await world.link.stop()
    await world.link.stop()
    assert await world.store.workers() == ()
    assert world.desk.told("leave") == ["start1"]


async def test_an_engine_that_has_ended_takes_no_new_work(world: LinkWorld) -> None:
    await world.link.beat()
    world.thread.ended = CacheError(Kind.ENGINE_FAILED, "gone")
    await world.link.beat()
    (entry,) = await world.store.workers()
    assert entry.load.draining


async def test_a_worker_that_was_given_up_registers_again_and_offers_what_it_has(world: LinkWorld) -> None:
    await world.step()
    await world.turn("s")
    await world.step()
    world.desk.told("offer")
    world.wait(60)
    await world.store.sweep(100)  # a router takes it for gone
    await world.step()
    assert len(world.desk.told("register")) == 2
    assert world.referenced == {"acme/s"}
    ((offers, lost),) = world.desk.told("offer")
    assert [(offer.ref, lost) for offer in offers] == [(ref("s"), False)]


# notices


async def test_a_close_is_followed_and_answered_with_what_it_released(world: LinkWorld) -> None:
    await world.step()
    await world.turn("s")
    await world.step()
    held = world.view("s").held
    await world.close("s", mode="drop")
    await world.step()
    (answer,) = await world.answers()
    assert (answer.order, answer.outcome, answer.markers) == (Order.CLOSE, Outcome.RELEASED, 1)
    assert (answer.session, answer.operation, answer.mode) == ("s", "op", "drop")
    parts = [(part.component, part.tokens, part.slots, part.bytes) for part in answer.released]
    assert parts == [(h.component, h.tokens, h.slots, h.bytes) for h in held]
    assert world.referenced == set()


async def test_a_close_that_was_heard_of_before_its_notice_is_answered_with_what_it_released(
    world: LinkWorld,
) -> None:
    await world.step()
    await world.turn("s")
    await world.close("s")
    await world.link.beat()
    await world.link.offer()  # to be confirmed: and closed already
    assert world.referenced == set()
    await world.link.read_mail()
    (answer,) = await world.answers()
    assert (answer.outcome, answer.markers) == (Outcome.RELEASED, 1)
    assert answer.released


async def test_a_completion_after_its_close_registers_nothing(world: LinkWorld) -> None:
    """R051."""
    await world.step()
    tag = await world.tagged("s")
    world.begin(tag)
    await world.close("s")
    await world.step()
    world.finish()
    assert world.referenced == set()
    assert not await world.done(tag)
    assert world.serve(await world.tagged("s", strict=False)) == "closed"
    assert world.referenced == set()


async def test_an_expiry_is_refused_while_a_turn_runs_and_final_afterwards(world: LinkWorld) -> None:
    await world.step()
    first = await world.turn("s")
    late = await world.tagged("s")
    await world.done(late, registered=False)  # its client left; the request itself is on its way
    await world.idle(104)
    world.begin(late)
    await world.store.sweep(100)
    await world.step()
    (receipt,) = world.desk.told("receipt")
    assert (receipt.order, receipt.outcome) == (Order.EXPIRE, Outcome.BUSY)
    assert (await world.store.look(ref("s"))).state == "open"
    world.finish()
    await world.idle(104)
    await world.store.sweep(100)
    await world.step()
    (receipt,) = world.desk.told("receipt")
    assert (receipt.order, receipt.outcome, receipt.markers) == (Order.EXPIRE, Outcome.RELEASED, 1)
    assert (await world.store.look(ref("s"))).state == "none"
    assert world.referenced == set()
    again = await world.turn("s")
    assert again.generation > first.generation
    assert world.referenced == {"acme/s"}


async def test_a_session_that_moved_is_released_once_the_other_worker_has_registered(
    world: LinkWorld,
) -> None:
    await world.step()
    await world.turn("s")
    await world.step()
    running = await world.tagged("s")
    world.begin(running)
    await world.move("s", "w2")
    await world.step()
    (receipt,) = world.desk.told("receipt")
    assert (receipt.order, receipt.outcome, receipt.markers) == (Order.MOVED, Outcome.RELEASED, 1)
    world.finish()
    assert world.referenced == set()


async def test_a_session_that_comes_back_before_the_notice_stays(world: LinkWorld) -> None:
    await world.step()
    await world.turn("s")
    await world.move("s", "w2")
    back = await world.move("s", "w1")
    world.serve(back)
    await world.done(back)
    await world.step()
    assert [receipt.outcome for receipt in world.desk.told("receipt")] == [Outcome.BUSY]
    assert world.referenced == {"acme/s"}


async def test_notices_that_come_twice_and_in_any_order_change_nothing_more(world: LinkWorld) -> None:
    await world.step()
    first = await world.turn("s")
    await world.close("s")
    await world.store.open(ref("s"), Opening())
    second = await world.turn("s")
    old = Notice(Order.CLOSE, TENANT, "s", first.generation, operation="op", reply_to="router")
    moved = Notice(Order.MOVED, TENANT, "s", first.generation, placement=9)
    following = Following("w1")
    following.obey(world.engine, [old, moved, old, moved])
    assert world.referenced == {"acme/s"}
    newer = Notice(Order.CLOSE, TENANT, "s", second.generation, operation="op", reply_to="router")
    outcomes = [receipt.outcome for receipt in following.obey(world.engine, [newer, newer, old])]
    assert outcomes == [Outcome.RELEASED] * 3
    assert world.referenced == set()


async def test_a_notice_of_what_is_not_here_is_answered_unknown_and_remembered(world: LinkWorld) -> None:
    await world.step()
    tag = await world.tagged("s")
    await world.close("s")
    await world.step()
    assert [answer.outcome for answer in await world.answers()] == [Outcome.UNKNOWN]
    assert world.serve(tag) == "closed"
    assert world.referenced == set()


async def test_receipts_are_sent_until_they_are_through(world: LinkWorld) -> None:
    await world.step()
    await world.turn("s")
    await world.close("s")
    world.desk.fails_at = "receipt"
    for _ in range(3):
        with pytest.RaisesExc(CacheError, check=lambda error: error.kind is Kind.STORE_FAILED):
            await world.link.read_mail()
    assert await world.answers() == []
    assert world.referenced == set()
    world.desk.fails_at = ""
    await world.link.read_mail()
    (answer,) = await world.answers()
    assert (answer.outcome, answer.markers) == (Outcome.RELEASED, 1)
    assert len(world.desk.told("receipt")) == 1


async def test_what_cannot_be_followed_is_answered_failed(world: LinkWorld) -> None:
    await world.step()
    await world.turn("s")
    await world.close("s")
    world.thread.ended = CacheError(Kind.ENGINE_FAILED, "the engine has failed")
    await world.link.read_mail()
    (answer,) = await world.answers()
    assert (answer.outcome, answer.said) == (Outcome.FAILED, "engine_failed: the engine has failed")


async def test_a_mode_of_later_routers_is_a_release(world: LinkWorld) -> None:
    await world.turn("s")
    notice = Notice(Order.CLOSE, TENANT, "s", 2**60, mode="embalm")
    (receipt,) = Following("w1").obey(world.engine, [notice])
    assert receipt.mode == "release"


# what is confirmed and offered


async def test_what_a_tag_makes_known_is_confirmed_once(world: LinkWorld) -> None:
    await world.step()
    await world.turn("s")
    await world.step()
    ((offers, lost),) = world.desk.told("offer")
    assert ([offer.ref for offer in offers], lost) == ([ref("s")], False)
    await world.turn("s")
    await world.step()
    assert world.desk.told("offer") == []


async def test_a_tag_that_comes_after_a_restart_and_a_close_leaves_nothing(world: LinkWorld) -> None:
    await world.step()
    late = await world.tagged("s")
    world.restart()
    await world.step()
    await world.close("s")
    await world.step()
    world.restart()  # with it the worker's memory of the close is gone
    await world.step()
    assert world.serve(late) == "open"
    assert world.referenced == {"acme/s"}
    await world.step()
    assert world.referenced == set()
    assert world.serve(replace(late, request_id="again.1")) == "closed"


async def test_a_store_that_lost_its_data_gets_open_sessions_back(world: LinkWorld) -> None:
    await world.step()
    child = await world.turn("child", parent="")
    world.wait(30)
    await world.store.forget()
    await world.step()
    record = await world.store.look(ref("child"))
    assert (record.state, record.worker) == ("open", "w1")
    assert 30 <= record.idle_s < 35
    assert record.generation == child.generation
    assert world.referenced == {"acme/child"}
    again = await world.turn("child")
    assert again.generation >= child.generation


async def test_a_tag_from_before_the_loss_that_arrives_after_it_is_offered_too(world: LinkWorld) -> None:
    await world.step()
    tag = await world.tagged("s")
    await world.store.forget()
    await world.step()
    world.serve(tag)
    await world.step()
    assert (await world.store.look(ref("s"))).worker == "w1"
    assert next(lost for _, lost in world.desk.told("offer"))
    assert world.referenced == {"acme/s"}


async def test_what_a_gap_swallowed_is_found_by_asking(world: LinkWorld) -> None:
    await world.step()
    await world.turn("closed")
    await world.turn("moved")
    await world.turn("kept")
    await world.step()
    await world.close("closed")
    await world.move("moved", "w2")
    world.store.books.mail["w1"].clear()  # its stream was cut
    await world.step()
    await world.step()
    assert world.referenced == {"acme/kept"}


async def test_a_loss_that_the_mail_notices_first_is_a_loss(world: LinkWorld) -> None:
    await world.step()
    await world.turn("s")
    await world.step()
    await world.store.forget()
    await world.link.read_mail()  # its place in the stream is gone
    await world.link.offer()
    assert (await world.store.look(ref("s"))).worker == "w1"
    assert world.referenced == {"acme/s"}


async def test_what_runs_when_the_store_knows_nothing_of_it_registers_nothing(world: LinkWorld) -> None:
    await world.step()
    tag = await world.tagged("s")
    world.begin(tag)
    await world.step()
    world.store.books.end(ref("s"))  # given up: its router died long ago
    world.store.books.mail["w1"].clear()
    await world.step()
    await world.step()
    world.finish()
    assert world.referenced == set()


async def test_everything_is_offered_again_after_a_while() -> None:
    world = LinkWorld(Pace(beat_s=1.0, offer_s=3.0))
    await world.step()
    await world.turn("s")
    await world.step()
    world.desk.told("offer")
    rounds = 0
    while not world.desk.told("offer"):
        await world.step()
        rounds += 1
    assert rounds <= 4


async def test_many_sessions_are_offered_in_portions(world: LinkWorld) -> None:
    await world.step()
    tags = [await world.tagged(f"s{number}") for number in range(450)]
    for tag in tags:
        world.engine.cache.leave(world.enter(tag))
    await world.store.forget()
    await world.step()
    portions = [len(offers) for offers, lost in world.desk.told("offer") if lost]
    assert portions == [200, 200, 50]


# a store that is away


async def test_without_a_store_nothing_is_lost_and_nothing_stops(world: LinkWorld) -> None:
    await world.step()
    await world.turn("s")
    world.desk.away = True
    for step in (world.link.beat, world.link.read_mail):
        with pytest.RaisesExc(CacheError, check=lambda error: error.kind is Kind.STORE_FAILED):
            await step()
    assert world.referenced == {"acme/s"}
    world.desk.away = False
    await world.close("s")
    await world.step()
    assert [answer.outcome for answer in await world.answers()] == [Outcome.RELEASED]


async def test_offers_that_failed_are_made_again(world: LinkWorld) -> None:
    await world.step()
    await world.turn("s")
    await world.store.forget()
    world.desk.fails_at = "offer"
    await world.link.beat()
    with pytest.RaisesExc(CacheError, check=lambda error: error.kind is Kind.STORE_FAILED):
        await world.link.offer()
    world.desk.fails_at = ""
    await world.step()
    assert (await world.store.look(ref("s"))).worker == "w1"
    assert world.referenced == {"acme/s"}


async def test_idle_sessions_keep_their_references_while_a_router_watches(world: LinkWorld) -> None:
    await world.step()
    await world.turn("s")
    for _ in range(5):
        await world.idle(60)
        await world.store.note(ref("s"), Note(NoteKind.TOUCH))
    assert world.referenced == {"acme/s"}
    for _ in range(26):  # the store lives and no router does: the worker's own lease
        world.wait(4)
        await world.step()
    world.engine.cache.sweep()
    assert world.referenced == set()

"""The contract of a session store, over every store: idle sessions are offered to holders, and end when all let go."""

import pytest

from agentcache.store.api import ClosedOne, Closing, Note, NoteKind, Opening, OpenVerdict, TagVerdict
from agentcache.wire import Notice, Order, Outcome
from tests.sessionstores import A, B, Scene, Worker, every_store

pytestmark = pytest.mark.asyncio


async def idle(scene: Scene, *workers: Worker) -> list[list[Notice]]:
    """Longer than a lease, with living workers, and a sweep; answers what each was told."""
    for _ in range(4):
        scene.hours.pass_s(26)
        for worker in workers:
            await worker.beat()
    await scene.store.sweep(100)
    return [await worker.notices() for worker in workers]


@every_store
async def test_an_idle_session_ends_when_its_holder_has_let_go(scene: Scene) -> None:
    worker = await scene.worker("w1")
    turn = await scene.turn(A, "w1")
    scene.hours.pass_s(99)
    await worker.beat()
    assert (await scene.store.sweep(100)).offered == 0
    ((offer,),) = await idle(scene, worker)
    assert (offer.order, offer.session, offer.generation) == (Order.EXPIRE, "a", turn.generation)
    assert await scene.state(A) == "open", "it is an offer"
    await worker.answer(offer)
    await worker.answer(offer)
    assert await scene.state(A) == "none", "there is no tombstone"
    assert (await scene.tag(A)).verdict is TagVerdict.OPENED


@every_store
async def test_a_busy_holder_keeps_the_session_as_it_was(scene: Scene) -> None:
    worker = await scene.worker("w1")
    turn = await scene.turn(A, "w1")
    ((offer,),) = await idle(scene, worker)
    await worker.answer(offer, Outcome.BUSY)
    record = await scene.store.look(A)
    assert (record.generation, record.idle_s) == (turn.generation, 0)
    assert (await scene.tag(A)).verdict is TagVerdict.JOINED


@every_store
async def test_a_request_that_comes_meanwhile_begins_the_next_generation(scene: Scene) -> None:
    worker = await scene.worker("w1")
    turn = await scene.turn(A, "w1")
    ((offer,),) = await idle(scene, worker)
    assert (await scene.tag(A, fence=turn.generation)).verdict is TagVerdict.UNKNOWN
    again = await scene.tag(A)
    assert (again.verdict, again.worker, again.placement) == (TagVerdict.EXPIRED, "w1", 1)
    assert again.generation > turn.generation
    await worker.answer(offer)
    record = await scene.store.look(A)
    assert (record.generation, record.holders) == (again.generation, ("w1",)), "the answer is of an older one"


@every_store
async def test_an_open_that_comes_meanwhile_begins_the_next_generation(scene: Scene) -> None:
    worker = await scene.worker("w1")
    turn = await scene.turn(A, "w1")
    await idle(scene, worker)
    opened = await scene.store.open(A, Opening())
    assert opened.verdict is OpenVerdict.CREATED
    assert opened.generation > turn.generation


@every_store
async def test_where_a_holder_has_let_go_what_goes_on_is_the_next_generation(scene: Scene) -> None:
    """That holder registers no more turns of the generation that it was asked to let go."""
    one, two = await scene.worker("w1"), await scene.worker("w2")
    tagged = await scene.tag(A, "w1")
    await scene.store.assign(A, tagged.generation, 1, "w2")
    for note in (True, False):
        before = (await scene.store.look(A)).generation
        ((first,), (second,)) = await idle(scene, one, two)
        await one.answer(first)
        if note:
            await scene.store.note(A, Note(NoteKind.TOUCH))
        else:
            await two.answer(second, Outcome.BUSY)
        record = await scene.store.look(A)
        assert record.generation > before
        assert (record.state, record.holders) == ("open", ("w2",))
        await scene.store.assign(A, record.generation, record.placement, "w1")
        await scene.store.assign(A, record.generation, record.placement + 1, "w2")


@every_store
async def test_an_answer_that_comes_after_a_touch_raises_the_generation(scene: Scene) -> None:
    worker = await scene.worker("w1")
    turn = await scene.turn(A, "w1")
    ((offer,),) = await idle(scene, worker)
    touched = await scene.store.note(A, Note(NoteKind.TOUCH))
    assert touched.generation == turn.generation
    await worker.answer(offer)
    assert (await scene.store.look(A)).generation > turn.generation


@every_store
async def test_requests_in_flight_and_open_children_keep_a_session(scene: Scene) -> None:
    worker = await scene.worker("w1")
    await scene.store.open(A, Opening(ttl_s=1))
    await scene.store.open(B, Opening(parent="a", ttl_s=300))
    await scene.turn(A, "w1")
    assert await idle(scene, worker) == [[]]
    await scene.store.close(B, Closing())
    await scene.tag(A)
    scene.hours.pass_s(2)
    assert (await scene.store.sweep(100)).offered == 0, "a request is in flight"
    scene.hours.pass_s(50)
    assert (await scene.store.sweep(100)).offered == 1, "its router has died"


@every_store
async def test_a_child_that_comes_meanwhile_keeps_its_parent(scene: Scene) -> None:
    worker = await scene.worker("w1")
    turn = await scene.turn(A, "w1")
    ((offer,),) = await idle(scene, worker)
    await scene.store.open(B, Opening(parent="a"))
    await worker.answer(offer)
    record = await scene.store.look(A)
    assert (record.state, record.children) == ("open", 1)
    assert record.generation > turn.generation


@every_store
async def test_an_offer_without_an_answer_is_made_again(scene: Scene) -> None:
    worker = await scene.worker("w1")
    await scene.turn(A, "w1")
    ((first,),) = await idle(scene, worker)
    assert (await scene.store.sweep(100)).offered == 0
    scene.hours.pass_s(60)
    await scene.store.sweep(100)
    (second,) = await worker.notices()
    assert (second.order, second.generation) == (first.order, first.generation)


@every_store
async def test_holders_that_started_anew_are_none(scene: Scene) -> None:
    """R162: what a worker held ends with its incarnation."""
    await scene.worker("w1")
    await scene.turn(A, "w1")
    await scene.worker("w1", "2")
    record = await scene.store.look(A)
    assert (record.worker, record.holders) == ("w1", ())
    scene.hours.pass_s(101)
    swept = await scene.store.sweep(100)
    assert (swept.offered, swept.expired, swept.lapsed) == (0, 1, ())
    assert await scene.state(A) == "none"


@every_store
async def test_a_sweep_says_what_ended_without_its_holders_being_told(scene: Scene) -> None:
    """Plain servers are never registered: their router tells them."""
    worker = await scene.worker("w1")
    turn = await scene.turn(A, "sglang:1")
    await scene.turn(B, "w1")
    other = await scene.tag(B)
    await scene.store.assign(B, other.generation, 1, "sglang:2")
    scene.hours.pass_s(151)
    await worker.beat()
    swept = await scene.store.sweep(100)
    assert swept.lapsed == (ClosedOne("a", turn.generation, ("sglang:1",), "t"),)
    assert (swept.offered, swept.expired) == (1, 1)
    (offer,) = await worker.notices()
    await worker.answer(offer)
    assert (await scene.store.sweep(100)).lapsed == (ClosedOne("b", other.generation, ("sglang:2",), "t"),)


@every_store
async def test_a_sweep_stops_at_its_limit_and_says_so(scene: Scene) -> None:
    for number in range(5):
        await scene.turn(type(A)("t", f"s{number}"), "plain")
    scene.hours.pass_s(101)
    first = await scene.store.sweep(3)
    second = await scene.store.sweep(3)
    assert [(swept.expired, swept.again) for swept in (first, second)] == [(3, True), (2, False)]


@every_store
async def test_a_session_of_two_holders_ends_when_both_have_let_go(scene: Scene) -> None:
    one, two = await scene.worker("w1"), await scene.worker("w2")
    tagged = await scene.tag(A, "w1")
    await scene.store.assign(A, tagged.generation, 1, "w2")
    ((first,), (second,)) = await idle(scene, one, two)
    await one.answer(first)
    assert (await scene.store.look(A)).generation == tagged.generation, "the other may be busy"
    assert (await scene.store.sweep(100)).offered == 0, "and has time to say so"
    await two.answer(second, Outcome.UNKNOWN)
    assert await scene.state(A) == "none"

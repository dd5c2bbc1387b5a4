"""A worker that computes a session's prompts for the one that has it: a holder that no move concerns."""

import pytest

from agentcache.store.api import Closing, Done, Offer, OfferVerdict, Placed, Use
from agentcache.wire import Notice, Order, Outcome, WorkerLoad
from tests.sessionstores import RULES, A, Scene, Worker, every_store

pytestmark = pytest.mark.asyncio


async def lent(scene: Scene, worker: str = "p1") -> Placed:
    """Let a worker compute the session's prompts, as who knows it as it is."""
    now = await scene.store.look(A)
    return await scene.store.assign(A, now.generation, now.placement, worker, prefill=True)


async def orders(worker: Worker) -> list[tuple[Order, int]]:
    return [(notice.order, notice.placement) for notice in await worker.notices()]


async def three(scene: Scene) -> tuple[Worker, Worker, Worker]:
    """The session's worker, which has ended a turn of it, and two that compute prompts."""
    workers = [await scene.worker(name) for name in ("d", "p1", "p2")]
    await scene.turn(A, "d")
    return workers[0], workers[1], workers[2]


@every_store
async def test_it_is_a_holder_and_the_session_stays_where_it_is(scene: Scene) -> None:
    await three(scene)
    assert await lent(scene) == Placed("p1", 2, (await scene.store.look(A)).generation)
    record = await scene.store.look(A)
    assert (record.worker, record.prefill, record.holders, record.placement) == ("d", "p1", ("d", "p1"), 2)
    again = await lent(scene)
    assert (again.worker, again.placement) == ("p1", 2), "the same one is no change"
    tagged = await scene.tag(A)
    assert (tagged.worker, tagged.prefill, tagged.placement) == ("d", "p1", 2)
    (listed,) = (await scene.store.list("t", "", 10)).records
    assert listed.prefill == "p1"


@every_store
async def test_a_turn_that_registers_leaves_it_a_holder(scene: Scene) -> None:
    decode, prefill, _ = await three(scene)
    await lent(scene)
    await scene.turn(A)
    assert await prefill.notices() == await decode.notices() == []
    assert (await scene.store.look(A)).holders == ("d", "p1")


@every_store
async def test_another_one_takes_its_place_and_it_lets_go_after_the_next_turn(scene: Scene) -> None:
    decode, first, second = await three(scene)
    await lent(scene)
    assert (await lent(scene, "p2")).placement == 3
    assert await first.notices() == []
    assert (await scene.store.look(A)).holders == ("d", "p1", "p2")
    await scene.turn(A)
    assert await orders(first) == [(Order.MOVED, 3)]
    assert await second.notices() == await decode.notices() == []
    assert (await scene.store.look(A)).holders == ("d", "p2")


@every_store
async def test_a_move_of_the_session_concerns_its_worker_alone(scene: Scene) -> None:
    decode, prefill, _ = await three(scene)
    await lent(scene)
    await scene.worker("e")
    now = await scene.store.look(A)
    await scene.store.assign(A, now.generation, now.placement, "e")
    await scene.turn(A)
    assert await orders(decode) == [(Order.MOVED, 3)]
    assert await prefill.notices() == []
    assert (await scene.store.look(A)).holders == ("e", "p1")


@every_store
async def test_nobody_is_lent_a_session_that_has_changed_or_that_it_has(scene: Scene) -> None:
    await three(scene)
    now = await scene.store.look(A)
    for generation, seen, worker in (
        (now.generation, now.placement - 1, "p1"),
        (now.generation - 1, now.placement, "p1"),
        (now.generation, now.placement, "d"),
    ):
        answer = await scene.store.assign(A, generation, seen, worker, prefill=True)
        assert answer == Placed("", now.placement, now.generation)
    await scene.store.close(A, Closing())
    assert await scene.store.assign(A, now.generation, 1, "p1", prefill=True) == Placed("", 0)


@every_store
async def test_a_close_reaches_both_and_each_answers(scene: Scene) -> None:
    decode, prefill, _ = await three(scene)
    await lent(scene)
    closed = await scene.store.close(A, Closing(operation="op", reply_to="r1"))
    assert closed.closed[0].holders == ("d", "p1")
    for worker in (prefill, decode):
        (notice,) = await worker.notices()
        assert notice.order is Order.CLOSE
        await worker.answer(notice)
    answers = await scene.store.receipts("r1", "", 0)
    assert {(one.worker, one.outcome) for _, one in answers} == {
        ("d", Outcome.RELEASED),
        ("p1", Outcome.RELEASED),
    }


@every_store
async def test_both_must_let_go_before_an_idle_session_ends(scene: Scene) -> None:
    decode, prefill, _ = await three(scene)
    await lent(scene)
    scene.hours.pass_s(RULES.ttl_s + 1)
    for name in ("d", "p1", "p2"):
        await scene.store.heartbeat(name, "1", 0, WorkerLoad())
    assert (await scene.store.sweep(10)).offered == 2
    told: list[Notice] = []
    for worker in (decode, prefill):
        (notice,) = await worker.notices()
        assert notice.order is Order.EXPIRE
        told.append(notice)
    await decode.answer(told[0])
    assert await scene.state(A) == "open"
    await prefill.answer(told[1])
    assert await scene.state(A) == "none"


@every_store
async def test_what_it_offers_is_held_and_never_makes_it_the_sessions_worker(scene: Scene) -> None:
    await three(scene)
    await lent(scene)
    now = await scene.store.look(A)
    offer = Offer(A, now.generation, now.placement, 0, 100, prefill=True)
    (answer,) = await scene.store.offer("p1", [offer], lost=False)
    assert answer.verdict is OfferVerdict.HELD
    (other,) = await scene.store.offer("p2", [offer], lost=False)
    assert other.verdict is OfferVerdict.MOVED, "it is not this one that computes them"
    assert (await scene.store.look(A)).worker == "d"


@every_store
async def test_after_a_loss_each_is_what_it_was_whoever_is_first(scene: Scene) -> None:
    generation = 7
    await scene.worker("d")
    await scene.worker("p1")
    lost = Offer(A, generation, 3, 0, 100, prefill=True)
    (answer,) = await scene.store.offer("p1", [lost], lost=True)
    assert answer.verdict is OfferVerdict.KEEP
    record = await scene.store.look(A)
    assert (record.worker, record.prefill, record.holders) == ("", "p1", ("p1",))
    await scene.store.offer("d", [Offer(A, generation, 3, 0, 100)], lost=True)
    record = await scene.store.look(A)
    assert (record.worker, record.prefill, record.holders) == ("d", "p1", ("d", "p1"))
    assert record.placement >= 3


@every_store
async def test_a_worker_that_is_given_the_session_computes_its_prompts_itself(scene: Scene) -> None:
    """One that was started anew in another role."""
    await three(scene)
    await lent(scene)
    now = await scene.store.look(A)
    await scene.store.assign(A, now.generation, now.placement, "p1")
    record = await scene.store.look(A)
    assert (record.worker, record.prefill) == ("p1", "")


@every_store
async def test_a_turn_tagged_before_the_change_ends_without_moving_anybody(scene: Scene) -> None:
    decode, prefill, _ = await three(scene)
    tagged = await scene.store.tag(A, Use("early"))
    await lent(scene)
    assert await scene.store.done(A, Done("early", tagged.generation, "d", tagged.placement, True))
    assert await decode.notices() == await prefill.notices() == []
    assert (await scene.store.look(A)).holders == ("d", "p1")

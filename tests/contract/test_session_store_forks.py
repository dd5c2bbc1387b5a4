"""The contract of a session store, over every store: forks, the leases of parents, and thousands of children."""

import asyncio

import pytest

from agentcache.store.api import (
    Closing,
    Note,
    NoteKind,
    Opening,
    OpenVerdict,
    Placed,
    SessionRef,
    StoreRules,
)
from agentcache.wire import Notice, Order
from tests.sessionstores import A, B, C, Hours, Scene, Servers, StoreCase, every_store, store_cases

pytestmark = pytest.mark.asyncio
FORK = Opening(parent="a", fork=True)


def told(notices: list[Notice]) -> list[tuple[Order, str, str, int]]:
    return [(one.order, one.session, one.parent, one.placement) for one in notices]


@every_store
async def test_a_fork_is_placed_with_its_parent_whose_worker_is_told(scene: Scene) -> None:
    worker, other = await scene.worker("w1"), await scene.worker("w2")
    await scene.turn(A, "w1")
    opened = await scene.store.open(B, FORK)
    record = await scene.store.look(B)
    assert (opened.verdict, opened.worker) == (OpenVerdict.CREATED, "w1")
    assert (record.worker, record.holders) == ("w1", ("w1",))
    (notice,) = await worker.notices()
    assert (notice.order, notice.session, notice.parent) == (Order.FORK, "b", "a")
    assert (notice.generation, notice.placement) == (opened.generation, record.placement)
    assert await other.notices() == []
    tagged = await scene.tag(B, "w2")
    assert (tagged.worker, tagged.placement, tagged.parent) == ("w1", 1, "a")


@every_store
async def test_a_fork_is_told_once(scene: Scene) -> None:
    """Opened again, with a fence or without: it has a worker, and inherits what it was given."""
    worker = await scene.worker("w1")
    await scene.turn(A, "w1")
    await scene.store.open(B, FORK)
    await scene.store.open(B, FORK)
    await scene.store.open(B, Opening(parent="a", fork=True, fence=True))
    assert told(await worker.notices()) == [(Order.FORK, "b", "a", 1)]


@every_store
async def test_an_open_session_forks_while_it_has_no_worker(scene: Scene) -> None:
    worker = await scene.worker("w1")
    await scene.turn(A, "w1")
    await scene.store.open(B, Opening(parent="a"))
    assert await worker.notices() == []
    assert (await scene.store.open(B, FORK)).verdict is OpenVerdict.UNCHANGED
    await scene.store.open(C, Opening(parent="a"))
    await scene.turn(C, "w1")
    await scene.store.open(C, FORK)
    assert told(await worker.notices()) == [(Order.FORK, "b", "a", 1)]


@every_store
@pytest.mark.parametrize("worker", ["", "plain"])
async def test_a_fork_of_a_parent_without_a_registered_worker_is_placed_later(
    scene: Scene, worker: str
) -> None:
    await scene.store.open(A, Opening())
    if worker:
        await scene.turn(A, worker)
    assert (await scene.store.open(B, FORK)).worker == ""
    record = await scene.store.look(B)
    assert (record.worker, record.holders, record.parent) == ("", (), "a")


@every_store
async def test_a_fork_without_a_parent_is_a_spawn(scene: Scene) -> None:
    await scene.worker("w1")
    await scene.store.open(B, Opening(fork=True))
    assert (await scene.store.look(B)).worker == ""


@every_store
async def test_a_fork_that_moves_leaves_its_parents_worker(scene: Scene) -> None:
    first, _ = await scene.worker("w1"), await scene.worker("w2")
    await scene.turn(A, "w1")
    opened = await scene.store.open(B, FORK)
    placed = await scene.store.assign(B, opened.generation, 1, "w2")
    assert placed == Placed("w2", 2, opened.generation)
    await scene.turn(B)
    assert [one.order for one in await first.notices()] == [Order.FORK, Order.MOVED]


@every_store
async def test_a_close_before_the_first_turn_reaches_the_parents_worker(scene: Scene) -> None:
    worker = await scene.worker("w1")
    await scene.turn(A, "w1")
    await scene.store.open(B, FORK)
    await scene.store.close(A, Closing())
    assert [(one.order, one.session) for one in await worker.notices()] == [
        (Order.FORK, "b"),
        (Order.CLOSE, "a"),
        (Order.CLOSE, "b"),
    ]


@every_store
@pytest.mark.parametrize("idles_out", [False, True])
async def test_the_end_of_a_child_begins_its_parents_lease_anew(scene: Scene, idles_out: bool) -> None:
    await scene.store.open(A, Opening(ttl_s=40))
    await scene.store.open(B, Opening(parent="a", ttl_s=70 if idles_out else 500))
    scene.hours.pass_s(41)
    assert (await scene.store.sweep(100)).expired == 0
    scene.hours.pass_s(30)
    if idles_out:
        assert (await scene.store.sweep(100)).expired == 1
    else:
        await scene.store.close(B, Closing())
    scene.hours.pass_s(39.999)
    assert (await scene.store.sweep(100)).expired == 0
    scene.hours.pass_s(0.001)
    assert (await scene.store.sweep(100)).expired == 1
    assert [await scene.state(ref) for ref in (A, B)] == ["none", "none" if idles_out else "closed"]


@every_store
async def test_the_end_of_a_child_leaves_a_longer_lease_as_it_is(scene: Scene) -> None:
    """Where the clock went back meanwhile."""
    await scene.store.open(A, Opening(ttl_s=40))
    await scene.store.open(B, Opening(parent="a"))
    scene.hours.pass_s(10)
    await scene.store.note(A, Note(NoteKind.TOUCH))
    scene.hours.pass_s(-10)
    await scene.store.close(B, Closing())
    scene.hours.pass_s(49)
    assert (await scene.store.sweep(100)).expired == 0


@every_store
async def test_a_parent_that_is_asked_to_let_go_is_not_armed_by_a_childs_end(scene: Scene) -> None:
    worker = await scene.worker("w1")
    await scene.turn(A, "w1")
    scene.hours.pass_s(101)
    assert (await scene.store.sweep(100)).offered == 1
    await scene.store.open(B, Opening(parent="a"))
    await scene.store.close(B, Closing())
    (offer, *_) = await worker.notices()
    await worker.answer(offer)
    assert await scene.state(A) == "none"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", store_cases())
async def test_thousands_of_forks_are_closed_together(case: StoreCase, servers: Servers) -> None:
    """5,000: five calls, all of them told; nothing is left of them but tombstones."""
    hours = Hours()
    async with case.make(servers, StoreRules(), hours) as store:
        scene = Scene(store, hours)
        worker = await scene.worker("w1")
        await scene.turn(A, "w1")
        children = [SessionRef("t", f"c{number}") for number in range(5000)]
        opened = []
        for start in range(0, 5000, 500):
            opened += await asyncio.gather(*(store.open(ref, FORK) for ref in children[start : start + 500]))
        assert max(one.open_sessions for one in opened) == 5001
        answer = await store.close(A, Closing())
        closed, calls = list(answer.closed), 1
        while answer.more:
            answer = await store.close(A, Closing())
            closed += answer.closed
            calls += 1
        assert calls == 6
        assert {one.session for one in closed} == {"a", *(ref.session for ref in children)}
        assert {one.holders for one in closed} == {("w1",)}
        orders = []
        while some := await worker.notices():
            orders += [one.order for one in some]
        assert (orders.count(Order.FORK), orders.count(Order.CLOSE)) == (5000, 5001)
        assert (await store.list("t", "", 10)).open_sessions == 0

"""The contract of a session store, over every store: what a request opened that was refused idles out at once."""

import pytest

from agentcache.store.api import Closing, Done, Note, NoteKind, Opening, Tagged, TagVerdict, Use
from agentcache.wire import Order
from tests.sessionstores import A, Scene, every_store

pytestmark = pytest.mark.asyncio


async def refused(scene: Scene, request: str, tagged: Tagged) -> None:
    done = Done(request, tagged.generation, tagged.worker, tagged.placement, False, refused=True)
    assert await scene.store.done(A, done)


async def served(scene: Scene, request: str, tagged: Tagged, registered: bool) -> None:
    done = Done(request, tagged.generation, tagged.worker, tagged.placement, registered)
    assert await scene.store.done(A, done)


async def tag(scene: Scene, request: str, worker: str = "") -> Tagged:
    return await scene.store.tag(A, Use(request, worker))


async def stays(scene: Scene) -> bool:
    """Whether a sweep leaves it open, now and for almost a whole lease."""
    await scene.store.sweep(100)
    scene.hours.pass_s(99)
    await scene.store.sweep(100)
    return await scene.state(A) == "open"


@every_store
async def test_a_session_whose_only_request_was_refused_is_gone_without_a_tombstone(scene: Scene) -> None:
    first = await tag(scene, "r1")
    await refused(scene, "r1", first)
    assert (await scene.store.sweep(100)).expired == 1
    assert await scene.state(A) == "none"
    again = await tag(scene, "r2")
    assert again.verdict is TagVerdict.OPENED
    assert again.generation > first.generation


@every_store
async def test_its_worker_is_asked_to_let_go(scene: Scene) -> None:
    worker = await scene.worker("w1")
    first = await tag(scene, "r1", "w1")
    await refused(scene, "r1", first)
    await refused(scene, "r1", first)  # sent again
    assert (await scene.store.sweep(100)).offered == 1
    (offer,) = await worker.notices()
    assert (offer.order, offer.generation) == (Order.EXPIRE, first.generation)
    await worker.answer(offer)
    assert await scene.state(A) == "none"


@every_store
async def test_a_retry_that_comes_at_once_has_the_session(scene: Scene) -> None:
    first = await tag(scene, "r1")
    await refused(scene, "r1", first)
    retry = await tag(scene, "r2")
    assert (retry.verdict, retry.generation) == (TagVerdict.JOINED, first.generation)
    await scene.store.sweep(100)
    await served(scene, "r2", retry, registered=True)
    assert await stays(scene)


@every_store
async def test_a_retry_that_is_refused_too_leaves_nothing_either(scene: Scene) -> None:
    for request in ("r1", "r2"):
        await refused(scene, request, await tag(scene, request))
    assert (await scene.store.sweep(100)).expired == 1


@every_store
@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize("first", [True, False])
async def test_of_two_first_requests_one_is_enough_to_keep_it(
    scene: Scene, registered: bool, first: bool
) -> None:
    """Whichever opened it, and whichever ends first."""
    ones = {"r1": await tag(scene, "r1", "w1"), "r2": await tag(scene, "r2", "w1")}
    good, bad = ("r1", "r2") if first else ("r2", "r1")
    await refused(scene, bad, ones[bad])
    await served(scene, good, ones[good], registered)
    assert await stays(scene)


@every_store
async def test_a_refusal_after_the_other_was_served_changes_nothing(scene: Scene) -> None:
    ones = {request: await tag(scene, request) for request in ("r1", "r2")}
    await served(scene, "r2", ones["r2"], registered=False)
    await refused(scene, "r1", ones["r1"])
    assert await stays(scene)


@every_store
async def test_two_that_are_both_refused_leave_nothing(scene: Scene) -> None:
    ones = {request: await tag(scene, request) for request in ("r1", "r2")}
    await refused(scene, "r1", ones["r1"])
    await scene.store.sweep(100)
    assert await scene.state(A) == "open", "the other one is still under way"
    await refused(scene, "r2", ones["r2"])
    assert (await scene.store.sweep(100)).expired == 1


@every_store
@pytest.mark.parametrize("how", ["opened", "opened after", "touched", "paused", "used"])
async def test_a_session_that_somebody_counts_on_stays(scene: Scene, how: str) -> None:
    if how == "opened":
        await scene.store.open(A, Opening())
    if how == "used":
        await scene.turn(A)
    first = await tag(scene, "r1")
    if how == "opened after":
        await scene.store.open(A, Opening())
    if how in ("touched", "paused"):
        await scene.store.note(A, Note(NoteKind.TOUCH if how == "touched" else NoteKind.PAUSE, tool="bash"))
    await refused(scene, "r1", first)
    assert await stays(scene)


@every_store
async def test_one_that_idled_out_and_was_called_back_stays(scene: Scene) -> None:
    """Its worker has not let go yet: the next generation is the session that was there."""
    worker = await scene.worker("w1")
    await scene.turn(A, "w1")
    for _ in range(4):
        scene.hours.pass_s(26)
        await worker.beat()
    assert (await scene.store.sweep(100)).offered == 1
    back = await tag(scene, "r1")
    assert back.verdict is TagVerdict.EXPIRED
    await refused(scene, "r1", back)
    assert await stays(scene)


@every_store
async def test_a_session_that_was_closed_before_is_closed_again(scene: Scene) -> None:
    closed = await tag(scene, "r0")
    await scene.store.close(A, Closing())
    scene.hours.pass_s(21)
    first = await tag(scene, "r1")
    assert first.verdict is TagVerdict.OPENED
    await refused(scene, "r1", first)
    await scene.store.sweep(100)
    record = await scene.store.look(A)
    assert (record.state, record.generation) == ("closed", closed.generation)
    assert (await tag(scene, "r2")).verdict is TagVerdict.OPENED

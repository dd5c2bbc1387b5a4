"""The contract of a session store, over every store: how deep families are, and what a close says of a large one."""

import pytest

from agentcache.store.api import (
    DEPTH,
    CloseVerdict,
    Closing,
    Offer,
    OfferVerdict,
    Opening,
    OpenVerdict,
    SessionRef,
)
from tests.sessionstores import RULES, A, B, Scene, every_store

pytestmark = pytest.mark.asyncio


def link(number: int) -> SessionRef:
    return SessionRef("t", f"c{number}")


async def chain(scene: Scene, first: int, length: int) -> None:
    """Sessions each below the one before."""
    await scene.store.open(link(first), Opening())
    for number in range(first + 1, first + length):
        opened = await scene.store.open(link(number), Opening(parent=link(number - 1).session))
        assert opened.verdict is OpenVerdict.CREATED


@every_store
async def test_a_family_is_so_deep_and_no_deeper(scene: Scene) -> None:
    """Else a chain that one tenant makes costs everybody the time to walk it, with every request."""
    await chain(scene, 0, DEPTH + 1)
    deepest, below = link(DEPTH), link(DEPTH + 1)
    refused = await scene.store.open(below, Opening(parent=deepest.session))
    assert refused.verdict is OpenVerdict.TOO_DEEP
    assert await scene.state(below) == "none"
    tagged = await scene.tag(below, parent=deepest.session)
    assert (tagged.referenced, tagged.parent, tagged.parent_ignored) == (True, "", True)
    again = await scene.store.open(deepest, Opening(parent=link(DEPTH - 1).session))
    assert again.verdict is OpenVerdict.UNCHANGED


@every_store
async def test_a_lost_session_that_was_too_deep_comes_back_without_its_parent(scene: Scene) -> None:
    await scene.worker("w1")
    await chain(scene, 0, DEPTH + 1)
    lost = Offer(link(DEPTH + 1), 40, 1, 1, 100, parent=link(DEPTH).session)
    (kept,) = await scene.store.offer("w1", [lost], lost=True)
    assert kept.verdict is OfferVerdict.KEEP
    assert (await scene.store.look(lost.ref)).parent == ""


@every_store
async def test_deep_families_that_are_joined_make_no_circle(scene: Scene) -> None:
    """The upper end of one goes below the lower end of the other, and what is below it is deeper than allowed then."""
    await chain(scene, 0, DEPTH)
    await chain(scene, 100, DEPTH)
    top, bottom, other_top, other_bottom = link(0), link(DEPTH - 1), link(100), link(99 + DEPTH)
    joined = await scene.store.open(other_top, Opening(parent=bottom.session))
    assert joined.verdict is OpenVerdict.UNCHANGED
    assert (await scene.store.look(other_top)).parent == bottom.session
    refused = await scene.store.open(top, Opening(parent=other_bottom.session))
    assert refused.verdict is OpenVerdict.TOO_DEEP
    await scene.tag(top, parent=other_bottom.session)
    assert (await scene.store.look(top)).parent == ""
    known = await scene.store.open(other_bottom, Opening(parent=link(98 + DEPTH).session))
    assert known.verdict is OpenVerdict.UNCHANGED, "it has that parent"


@every_store
async def test_a_close_lists_a_large_family_though_routers_sweep_meanwhile(scene: Scene) -> None:
    """What a sweep closes nobody who waits for the close hears of: it leaves alone what somebody goes on with."""
    children = await family(scene, 3 * RULES.close_limit)
    answer = await scene.store.close(A, Closing())
    closed = list(answer.closed)
    while answer.more:
        scene.hours.pass_s(RULES.abandoned_s - 0.001)
        swept = await scene.store.sweep(100)
        assert (swept.closed, swept.again) == ((), False)
        answer = await scene.store.close(A, Closing())
        assert answer.verdict is not CloseVerdict.CLOSED
        closed += answer.closed
    assert {one.session for one in closed} == {"a", *(child.session for child in children)}


@every_store
@pytest.mark.parametrize("later_s", [RULES.abandoned_s, -3600])
async def test_a_close_that_nobody_goes_on_with_is_finished_by_sweeps(scene: Scene, later_s: float) -> None:
    """Also where the clock went back meanwhile."""
    children = await family(scene, 3 * RULES.close_limit)
    assert (await scene.store.close(A, Closing())).more
    assert (await scene.store.close(A, Closing())).more
    scene.hours.pass_s(later_s)
    some = await scene.store.sweep(2)
    assert (len(some.closed), some.again) == (2, True)
    rest = await scene.store.sweep(100)
    assert not rest.again
    assert "open" not in [await scene.state(child) for child in children]
    assert not (await scene.store.close(A, Closing())).more


@every_store
async def test_closes_of_one_generation_lose_none_of_either_family(scene: Scene) -> None:
    """A close of before a loss of data names a generation that another session may have by now."""
    await scene.store.open(B, Opening())
    theirs = [SessionRef("t", f"b{number}") for number in range(2 * RULES.close_limit)]
    for child in theirs:
        await scene.store.open(child, Opening(parent=B.session))
    ours = await family(scene, 2 * RULES.close_limit)
    closed = await scene.store.close(A, Closing())
    again = await scene.store.close(B, Closing(closed.generation, again=True))
    assert (closed.more, again.more, again.generation) == (True, True, closed.generation)
    scene.hours.pass_s(RULES.abandoned_s)
    await scene.store.sweep(100)
    assert "open" not in [await scene.state(child) for child in ours + theirs]


async def family(scene: Scene, size: int) -> list[SessionRef]:
    """Children of A."""
    await scene.store.open(A, Opening())
    children = [link(number) for number in range(size)]
    for child in children:
        await scene.store.open(child, Opening(parent="a"))
    return children

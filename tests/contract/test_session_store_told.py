"""The contract of a session store, over every store: how long a session is said to wait, and which children it has."""

import pytest

from agentcache.store.api import Closing, Note, NoteKind, Opening, SessionRef, Use
from tests.sessionstores import A, B, Scene, every_store

pytestmark = pytest.mark.asyncio


async def paused(scene: Scene, tool: str, expected_s: float = 0.0) -> tuple[str, float]:
    """What stands after a pause, as it is answered and as it is seen."""
    answer = await scene.store.note(A, Note(NoteKind.PAUSE, tool=tool, expected_s=expected_s))
    assert answer == await scene.store.look(A)
    return answer.paused, answer.expected_s


@every_store
async def test_a_pause_that_names_no_time_leaves_the_one_that_was_said(scene: Scene) -> None:
    await scene.store.open(A, Opening())
    assert await paused(scene, "pytest") == ("pytest", 0.0)
    assert await paused(scene, "pytest", 90.5) == ("pytest", 90.5)
    assert await paused(scene, "pytest") == ("pytest", 90.5)
    assert await paused(scene, "approval") == ("approval", 90.5)
    assert await paused(scene, "approval", 7.0) == ("approval", 7.0)


@every_store
@pytest.mark.parametrize("back", ["resume", "request"])
async def test_a_session_that_is_back_has_said_nothing_of_its_next_wait(scene: Scene, back: str) -> None:
    await scene.store.open(A, Opening())
    await paused(scene, "pytest", 90.5)
    if back == "resume":
        await scene.store.note(A, Note(NoteKind.RESUME))
    else:
        await scene.tag(A)
    assert await paused(scene, "pytest") == ("pytest", 0.0)


@every_store
async def test_a_time_that_came_with_the_request_stands_for_a_pause_that_names_none(scene: Scene) -> None:
    await scene.tag(A, expected_s=90.5)
    assert (await scene.store.look(A)).paused == ""
    assert await paused(scene, "pytest") == ("pytest", 90.5)
    assert await paused(scene, "pytest", 3.0) == ("pytest", 3.0)
    await scene.store.tag(A, Use("later", expected_s=20.0))
    assert await paused(scene, "pytest") == ("pytest", 20.0)
    await scene.store.tag(A, Use("last"))
    assert await paused(scene, "pytest") == ("pytest", 0.0)


@every_store
async def test_open_children_are_named_the_oldest_where_there_are_more(scene: Scene) -> None:
    await scene.store.open(A, Opening())
    names = ["z", "ä/1", "m", "b2", "b1"]
    for name in names:
        await scene.store.open(SessionRef("t", name), Opening(parent="a"))
    await scene.store.open(SessionRef("t", "below"), Opening(parent="m"))
    assert (await scene.store.look(A)).child_names == ()
    seen = await scene.store.look(A, children=100)
    assert (seen.children, seen.child_names) == (5, ("b1", "b2", "m", "z", "ä/1"))
    few = await scene.store.look(A, children=3)
    assert (few.children, few.child_names) == (5, ("m", "z", "ä/1"))
    await scene.store.close(SessionRef("t", "m"), Closing())
    assert (await scene.store.look(A, children=100)).child_names == ("b1", "b2", "z", "ä/1")
    for ref in (SessionRef("t", "m"), B):
        assert (await scene.store.look(ref, children=100)).child_names == ()

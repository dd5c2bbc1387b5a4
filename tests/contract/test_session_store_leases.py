"""The contract of a session store, over every store: a request may say how long its session may idle."""

import pytest

from agentcache.store.api import Done, Opening, Use
from tests.sessionstores import A, Scene, every_store

pytestmark = pytest.mark.asyncio


@every_store
async def test_a_request_changes_the_lease_and_the_next_one_keeps_it(scene: Scene) -> None:
    await scene.tag(A)
    usual = (await scene.store.look(A)).ttl_s
    await scene.tag(A, ttl_s=usual / 4)
    assert (await scene.store.look(A)).ttl_s == usual / 4
    await scene.tag(A)
    assert (await scene.store.look(A)).ttl_s == usual / 4
    await scene.tag(A, ttl_s=2 * usual)
    assert (await scene.store.look(A)).ttl_s == 2 * usual


@every_store
async def test_the_first_request_of_a_session_may_say_it_too(scene: Scene) -> None:
    await scene.tag(A, ttl_s=7.5)
    assert (await scene.store.look(A)).ttl_s == 7.5


@every_store
async def test_no_request_makes_the_lease_shorter_that_the_session_was_opened_with(scene: Scene) -> None:
    await scene.store.open(A, Opening(ttl_s=40))
    for asked_s, has_s in ((7.5, 40), (90, 90), (7.5, 40), (0, 40)):
        tagged = await scene.tag(A, ttl_s=asked_s)
        assert tagged.ttl_s == (await scene.store.look(A)).ttl_s == has_s


@every_store
async def test_a_session_that_was_opened_with_no_lease_of_its_own_has_the_one_of_its_requests(
    scene: Scene,
) -> None:
    await scene.store.open(A, Opening())
    assert (await scene.tag(A, ttl_s=7.5)).ttl_s == 7.5


@every_store
async def test_the_lease_that_was_asked_for_runs_out(scene: Scene) -> None:
    await scene.worker("w1")
    await scene.turn(A, "w1")
    tagged = await scene.store.tag(A, Use("own", ttl_s=5))
    assert await scene.store.done(
        A, Done("own", tagged.generation, tagged.worker, tagged.placement, registered=True)
    )
    scene.hours.pass_s(4)
    assert (await scene.store.sweep(100)).offered == 0
    scene.hours.pass_s(2)
    assert (await scene.store.sweep(100)).offered == 1

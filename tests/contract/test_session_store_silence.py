"""The contract of a session store, over every store: who is alive after nobody could be heard."""

import pytest

from tests.sessionstores import RULES, Scene, every_store

pytestmark = pytest.mark.asyncio


@every_store
async def test_workers_are_not_dead_that_could_not_be_heard(scene: Scene) -> None:
    """While nobody looks, the store may have been away: who lived when that began has some time to be heard again."""
    await scene.worker("dead")
    scene.hours.pass_s(RULES.worker_s)
    worker = await scene.worker("w1")
    await scene.store.sweep(100)
    assert await alive(scene) == ["w1"]
    scene.hours.pass_s(20 * RULES.worker_s)
    swept = await scene.store.sweep(100)
    assert not swept.again
    assert await alive(scene) == ["w1"]
    assert [entry.card.worker for entry in await scene.store.workers()] == ["w1"], "the other was dead before"
    scene.hours.pass_s(RULES.worker_s)
    assert await alive(scene) == ["w1"]
    scene.hours.pass_s(RULES.worker_s)
    assert await alive(scene) == []
    assert (await worker.beat()).known
    assert await alive(scene) == ["w1"]
    scene.hours.pass_s(RULES.worker_s)
    assert await alive(scene) == [], "it was heard since, and is not any more"


async def alive(scene: Scene) -> list[str]:
    return [entry.card.worker for entry in await scene.store.workers() if entry.alive]

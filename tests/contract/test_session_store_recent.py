"""The contract of a session store, over every store: which sessions were used last."""

import pytest

from agentcache.store import memory_fleet, redis_sessions
from agentcache.store.api import Closing, Opening, SessionRef
from tests.sessionstores import Scene, every_store

pytestmark = pytest.mark.asyncio


def named(name: str, tenant: str = "t") -> SessionRef:
    return SessionRef(tenant, name)


async def recent(scene: Scene, limit: int, tenant: str = "t") -> list[str]:
    page = await scene.store.recent(tenant, limit)
    return [record.ref.session for record in page.records]


async def opened(scene: Scene, *names: str, tenant: str = "t", ttl_s: float = 0.0) -> None:
    for name in names:
        await scene.store.open(named(name, tenant), Opening(ttl_s=ttl_s))
        scene.hours.pass_s(1)


@every_store
async def test_those_used_last_come_first_whenever_they_were_opened(scene: Scene) -> None:
    await opened(scene, "a", "b", "c", "d")
    await opened(scene, "other", tenant="u")
    await scene.tag(named("a"), "w1")
    scene.hours.pass_s(1)
    await scene.tag(named("c"), "w1")
    assert await recent(scene, 10) == ["c", "a", "d", "b"]
    assert await recent(scene, 2) == ["c", "a"]
    page = await scene.store.recent("t", 2)
    assert (page.open_sessions, page.after) == (4, "")
    assert page.records[0] == await scene.store.look(named("c"))
    await scene.store.close(named("c"), Closing())
    assert await recent(scene, 10) == ["a", "d", "b"]
    assert await recent(scene, 10, "nobody") == []


@every_store
async def test_equal_moments_have_an_order_too(scene: Scene) -> None:
    for name in "bca":
        await scene.store.open(named(name), Opening())
    assert await recent(scene, 10) == ["c", "b", "a"]


@every_store
async def test_behind_very_many_others_the_newest_of_a_tenant_are_found(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (memory_fleet, redis_sessions):
        monkeypatch.setattr(module, "WALK", 3)
    await opened(scene, "a", "b", "c")
    await opened(scene, "x", "y", tenant="u")
    await scene.tag(named("a"), "w1")
    assert await recent(scene, 2) == ["a", "c"]
    assert await recent(scene, 9) == ["a", "c", "b"]
    await opened(scene, "z", tenant="u", ttl_s=1e6)
    assert await recent(scene, 9, "u") == ["z", "y", "x"]

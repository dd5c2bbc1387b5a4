"""What the router says of a session: what stands at its store, whatever its workers know."""

from pathlib import Path
from typing import Any

import pytest

from agentcache.router.tenants import Tenants, load_tenants
from tests.routing import Routed, plain_answer, routed_to, routing

pytestmark = pytest.mark.asyncio
UNHEARD = '[[tenant]]\nname = "t"\nkeys = ["sk-t-0001"]\nhints = false\n'


async def opened(routed: Routed, session: str, **more: Any) -> None:
    answer = await routed.http.post("/v1/sessions", json={"session_id": session, **more})
    assert answer.status_code == 201, answer.text


async def looked(routed: Routed, session: str) -> dict[str, Any]:
    return dict((await routed.http.get(f"/v1/sessions/{session}")).json())


async def paused(routed: Routed, **said: Any) -> Any:
    """What stands after a pause, in its answer and in what is seen."""
    told = (await routed.http.post("/v1/sessions/s/pause", json=said)).json()["paused"]
    assert (await looked(routed, "s"))["paused"] == told
    return told


async def test_children_are_named_whether_they_have_had_a_turn_or_not() -> None:
    """One that is at another worker than its parent, one that is nowhere yet: no worker knows of all three."""
    async with routed_to(plain_answer, plain_answer) as (routed, _):
        await opened(routed, "M")
        for number, worker in ((1, "w1"), (2, "w2"), (3, "")):
            await opened(routed, f"M/{number}", parent_session_id="M")
            if worker:
                turn = routed.post(x_agentcache_session=f"M/{number}", x_agentcache_worker=worker)
                assert (await turn).status_code == 200
        seen = await looked(routed, "M")
        assert (seen["children"], seen["child_sessions"]) == (3, ["M/1", "M/2", "M/3"])
        await routed.http.delete("/v1/sessions/M%2F2")
        seen = await looked(routed, "M")
        assert (seen["children"], seen["child_sessions"]) == (2, ["M/1", "M/3"])


async def test_a_hundred_children_are_named_and_all_are_counted() -> None:
    async with routing() as routed:
        await opened(routed, "many")
        for number in range(103):
            await opened(routed, f"many/{number:03}", parent="many")
        seen = await looked(routed, "many")
        assert seen["children"] == 103
        assert seen["child_sessions"] == [f"many/{number:03}" for number in range(100)]


async def test_a_pause_that_names_no_time_leaves_the_one_that_was_said() -> None:
    async with routed_to(plain_answer) as (routed, _):
        await opened(routed, "s")
        assert await paused(routed, tool="pytest", expected_s=90) == {"tool": "pytest", "expected_s": 90.0}
        assert await paused(routed, tool="pytest") == {"tool": "pytest", "expected_s": 90.0}
        assert await paused(routed, tool="approval") == {"tool": "approval", "expected_s": 90.0}
        await routed.post(x_agentcache_session="s", x_agentcache_expected_s="40")
        assert (await looked(routed, "s"))["paused"] is None
        assert await paused(routed, tool="pytest") == {"tool": "pytest", "expected_s": 40.0}
        await routed.post(x_agentcache_session="s")
        assert await paused(routed, tool="pytest") == {"tool": "pytest", "expected_s": 0.0}


async def test_a_tenant_that_is_not_heard_says_no_time(tmp_path: Path) -> None:
    async with routed_to(plain_answer, tenants=unheard(tmp_path)) as (routed, _):
        routed.http.headers["authorization"] = "Bearer sk-t-0001"
        await routed.post(x_agentcache_session="s", x_agentcache_expected_s="40")
        (ref,) = routed.store.books.open
        assert (await routed.store.look(ref)).expected_s == 0.0


def unheard(folder: Path) -> Tenants:
    file = folder / "tenants.toml"
    file.write_text(UNHEARD)
    return load_tenants(str(file), "")


async def test_a_close_of_what_is_closed_says_no_mode_of_its_own() -> None:
    """No holder says anything: what was asked stands there, and each session's own wish where nothing was."""
    async with routing() as routed:
        await opened(routed, "s", on_close="drop")
        first = (await routed.http.delete("/v1/sessions/s")).json()
        again = (await routed.http.delete("/v1/sessions/s")).json()
        assert (again, again["mode"]) == (first, "on_close")
        assert (await routed.http.delete("/v1/sessions/s?mode=demote")).json()["mode"] == "demote"

"""An open asks for an idle lease: no longer than the router allows, and the answer says what became of it."""

import pytest

from agentcache import wire
from agentcache.router.assembly import store_rules
from agentcache.router.settings import RouterSettings
from tests.routing import Routed, routing

pytestmark = pytest.mark.asyncio
SETTINGS = RouterSettings(refresh_s=30, sweep_s=30, ttl_s=50, ttl_max_s=100)
RULES = store_rules(SETTINGS)


async def lease(routed: Routed, session: str) -> float:
    seen = (await routed.http.get(f"/v1/sessions/{session}")).json()
    return float(seen["ttl_s"])


@pytest.mark.parametrize(
    ("asked_s", "has_s", "said"),
    [
        (7.5, 7.5, "ttl_s=accepted"),
        (100, 100, "ttl_s=accepted"),
        (86400, 100, "ttl_s=clipped (100 s of 86400 s)"),
        (None, 50, None),
    ],
)
async def test_a_lease_is_clipped_and_the_answer_says_so(
    asked_s: float | None, has_s: float, said: str | None
) -> None:
    async with routing(SETTINGS, rules=RULES) as routed:
        opened = await routed.http.post("/v1/sessions", json={"session_id": "s", "ttl_s": asked_s})
        assert (opened.status_code, opened.headers.get(wire.RETENTION)) == (201, said)
        assert await lease(routed, "s") == has_s


async def test_one_that_is_open_keeps_its_lease_and_the_answer_says_so() -> None:
    async with routing(SETTINGS, rules=RULES) as routed:
        await routed.http.post("/v1/sessions", json={"session_id": "s"})
        again = await routed.http.post("/v1/sessions", json={"session_id": "s", "ttl_s": 7})
        assert again.headers[wire.RETENTION] == "ttl_s=ignored (it was open already, with 50 s)"
        assert await lease(routed, "s") == 50


async def test_sglangs_timeout_is_clipped_too() -> None:
    async with routing(SETTINGS, rules=RULES) as routed:
        opened = await routed.http.post("/open_session", json={"session_id": "s", "timeout": 1000})
        assert opened.headers[wire.RETENTION] == "timeout=clipped (100 s of 1000 s)"
        assert await lease(routed, "s") == 100

"""What the sessions API refuses, once and clearly; whose sessions are whose; and what it says without a store."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import httpx2
import pytest

from agentcache.errors import Kind
from agentcache.router.settings import RouterSettings
from agentcache.router.tenants import load_tenants
from agentcache.store.api import DEPTH
from tests.routing import Routed, routing

pytestmark = pytest.mark.asyncio
Json = dict[str, Any]
ACME, BETA = "sk-acme-0001", "sk-beta-0001"
LONG = "x" * 257


def refused(answer: httpx2.Response) -> tuple[int, str, str | None]:
    """Status, code and the field at fault; every refusal has a sentence."""
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert len(error["message"]) > 10
    return answer.status_code, error["code"], error["param"]


async def post(routed: Routed, **body: Any) -> httpx2.Response:
    return await routed.http.post("/v1/sessions", json=body)


async def opened(routed: Routed, **body: Any) -> int:
    answer = await post(routed, **body)
    assert answer.status_code in (200, 201), answer.text
    return int(answer.json()["generation"])


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"session_id": ""}, "bad_session_id", "session_id"),
        ({"session_id": LONG}, "bad_session_id", "session_id"),
        ({"session_id": " a"}, "bad_session_id", "session_id"),
        ({"session_id": "a\nb"}, "bad_session_id", "session_id"),
        ({"session_id": "a\u202eb"}, "bad_session_id", "session_id"),
        ({"session_id": 7}, "bad_request", "session_id"),
        ({"parent": "a\x00"}, "bad_session_id", "parent"),
        ({"parent": ""}, "bad_session_id", "parent"),
        ({"parent_session_id": LONG}, "bad_session_id", "parent_session_id"),
        ({"parent": ["a"]}, "bad_request", "parent"),
        ({"parent": "root", "parent_session_id": "other"}, "bad_request", "parent_session_id"),
        ({"ttl_s": 0}, "bad_request", "ttl_s"),
        ({"ttl_s": -1}, "bad_request", "ttl_s"),
        ({"ttl_s": 1e10}, "bad_request", "ttl_s"),
        ({"ttl_s": "60"}, "bad_request", "ttl_s"),
        ({"ttl_s": True}, "bad_request", "ttl_s"),
        ({"fence": 1}, "bad_request", "fence"),
        ({"on_close": "preview"}, "bad_request", "on_close"),
        ({"on_close": ""}, "bad_request", "on_close"),
        ({"on_close": 3}, "bad_request", "on_close"),
    ],
)
async def test_an_opening_that_is_malformed(body: Json, code: str, param: str) -> None:
    async with routing() as routed:
        await opened(routed, session_id="root")
        answer = await post(routed, **{"session_id": "s", **body})
        assert refused(answer) == (400, code, param)
        assert (await routed.http.get("/v1/sessions")).json()["open_sessions"] == 1


@pytest.mark.parametrize("content", [b"{", b"[]", b"null", b"\xff", b'{"ttl_s": NaN}', b"x" * 10])
@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/sessions/s/pause", "/open_session", "/close_session"])
async def test_a_body_that_is_no_object(content: bytes, path: str) -> None:
    async with routing() as routed:
        assert refused(await routed.http.post(path, content=content))[:2] == (400, "bad_request")


async def test_a_body_that_is_too_large() -> None:
    async with routing(RouterSettings(body_limit_bytes=100, refresh_s=30, sweep_s=30)) as routed:
        answer = await post(routed, session_id="s", note="x" * 100)
        assert refused(answer)[:2] == (413, "body_too_large")


async def test_parents_that_cannot_be() -> None:
    async with routing() as routed:
        await opened(routed, session_id="root")
        await opened(routed, session_id="child", parent="root")
        await opened(routed, session_id="shut")
        await routed.http.delete("/v1/sessions/shut")
        unknown = await post(routed, session_id="s", parent="none")
        assert refused(unknown) == (404, "session_unknown", "parent")
        closed = await post(routed, session_id="s", parent="shut")
        assert refused(closed) == (409, "session_closed", "parent")
        for session, parent in (("root", "root"), ("root", "child"), ("new", "new")):
            answer = await post(routed, session_id=session, parent=parent)
            assert refused(answer) == (400, "bad_request", "parent")
        for session in ("s", "new"):
            assert (await routed.http.get(f"/v1/sessions/{session}")).status_code == 404


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("generation=x", "generation"),
        ("generation=-1", "generation"),
        (f"generation={'9' * 20}", "generation"),
        ("generation=1&generation=2", "generation"),
        ("mode=shred", "mode"),
        ("subtree=maybe", "subtree"),
        ("subtree=0", "subtree"),
    ],
)
async def test_a_close_that_is_malformed_closes_nothing(query: str, param: str) -> None:
    async with routing() as routed:
        await opened(routed, session_id="s")
        await opened(routed, session_id="child", parent="s")
        answer = await routed.http.delete(f"/v1/sessions/s?{query}")
        assert refused(answer) == (400, "bad_request", param)
        assert (await routed.http.get("/v1/sessions/s")).json()["state"] == "open"


async def test_a_family_that_would_be_too_deep() -> None:
    async with routing() as routed:
        await opened(routed, session_id="s0")
        for number in range(1, DEPTH + 1):
            await opened(routed, session_id=f"s{number}", parent=f"s{number - 1}")
        answer = await post(routed, session_id="below", parent=f"s{DEPTH}")
        assert refused(answer) == (400, "bad_request", "parent")
        assert f"at most {DEPTH} sessions" in answer.json()["error"]["message"]


async def test_a_session_without_descendants_may_be_closed_alone() -> None:
    async with routing() as routed:
        await opened(routed, session_id="s")
        assert (await routed.http.delete("/v1/sessions/s?subtree=false")).json()["state"] == "closed"


async def test_a_close_under_another_generation_changes_nothing() -> None:
    async with routing() as routed:
        generation = await opened(routed, session_id="s")
        for answer in (
            await routed.http.delete(f"/v1/sessions/s?generation={generation + 1}"),
            await routed.http.delete(
                "/v1/sessions/s", headers={"x-agentcache-generation": str(generation - 1)}
            ),
        ):
            assert refused(answer)[:2] == (409, "session_stale")
            assert answer.headers["x-agentcache-state"] == "stale"
            assert str(generation) in answer.json()["error"]["message"]
        assert (await routed.http.get("/v1/sessions/s")).json()["state"] == "open"


async def test_generations_in_query_and_header_must_agree() -> None:
    async with routing() as routed:
        generation = await opened(routed, session_id="s")
        answer = await routed.http.delete(
            f"/v1/sessions/s?generation={generation}", headers={"x-agentcache-generation": "1"}
        )
        assert refused(answer) == (400, "bad_request", "generation")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_ids_in_paths_are_checked(method: str) -> None:
    async with routing() as routed:
        for path, code in (
            ("none", "session_unknown"),
            ("", "bad_session_id"),
            ("%0A", "bad_session_id"),
            ("a%0A", "bad_session_id"),
            ("%20a", "bad_session_id"),
            ("a%E2%81%A6b", "bad_session_id"),
            (LONG, "bad_session_id"),
        ):
            answer = await routed.http.request(method, f"/v1/sessions/{path}")
            assert refused(answer)[1] == code, path


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "limit=1.5", "limit=", "limit=٣"]
)
async def test_a_page_has_1_to_1000_sessions(query: str) -> None:
    async with routing() as routed:
        assert refused(await routed.http.get(f"/v1/sessions?{query}")) == (400, "bad_request", "limit")


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "9" * 40, "٣", "\x00"])
async def test_a_place_in_the_list_that_was_never_answered(after: str) -> None:
    async with routing() as routed:
        answer = await routed.http.get("/v1/sessions", params={"after": after})
        assert refused(answer) == (400, "bad_request", "after")


@pytest.mark.parametrize(
    ("action", "body", "param"),
    [
        ("pause", {"expected_s": -1}, "expected_s"),
        ("pause", {"expected_s": "soon"}, "expected_s"),
        ("pause", {"expected_s": 1e10}, "expected_s"),
        ("pause", {"tool": ""}, "tool"),
        ("pause", {"tool": LONG}, "tool"),
        ("pause", {"tool": "a\nb"}, "tool"),
        ("pause", {"tool": 3}, "tool"),
        ("pause", {"generation": "7"}, "generation"),
        ("touch", {"generation": -7}, "generation"),
        ("resume", {"generation": True}, "generation"),
    ],
)
async def test_a_note_that_is_malformed(action: str, body: Json, param: str) -> None:
    async with routing() as routed:
        await opened(routed, session_id="s")
        answer = await routed.http.post(f"/v1/sessions/s/{action}", json=body)
        assert refused(answer) == (400, "bad_request", param)


async def test_a_method_that_a_path_does_not_have() -> None:
    async with routing() as routed:
        assert (await routed.http.put("/v1/sessions/s")).status_code == 405
        assert (await routed.http.put("/v1/sessions")).status_code == 405


async def test_a_router_that_drains_opens_nothing_and_closes_still() -> None:
    async with routing() as routed:
        await opened(routed, session_id="s")
        routed.router.draining = True
        assert refused(await post(routed, session_id="t"))[:2] == (503, "shutting_down")
        assert refused(await routed.http.post("/open_session", json={}))[:2] == (503, "shutting_down")
        assert (await routed.http.delete("/v1/sessions/s")).status_code == 200


# tenants


@asynccontextmanager
async def two_tenants() -> AsyncIterator[tuple[Routed, Json, Json]]:
    async with routing(tenants=load_tenants("", f"acme={ACME};beta={BETA}")) as routed:
        yield routed, {"authorization": f"Bearer {ACME}"}, {"x-api-key": BETA}


async def test_without_a_key_nothing_is_answered() -> None:
    async with two_tenants() as (routed, _, _):
        for method, path in (
            ("POST", "/v1/sessions"),
            ("GET", "/v1/sessions"),
            ("GET", "/v1/sessions/s"),
            ("DELETE", "/v1/sessions/s"),
            ("POST", "/v1/sessions/s/touch"),
            ("POST", "/v1/sessions/s/pause"),
            ("POST", "/v1/sessions/s/resume"),
            ("POST", "/open_session"),
            ("POST", "/close_session"),
        ):
            for headers in ({}, {"authorization": "Bearer wrong-key"}):
                answer = await routed.http.request(method, path, headers=headers)
                assert refused(answer)[:2] == (401, "unauthorized"), path


async def test_a_session_of_another_tenant_is_an_unknown_one() -> None:
    """Every call answers about it as about one that nobody has: status, headers and body."""
    async with two_tenants() as (routed, acme, beta):
        await routed.http.post("/v1/sessions", json={"session_id": "hers7"}, headers=acme)
        generation = (await routed.http.get("/v1/sessions/hers7", headers=acme)).json()["generation"]
        calls: list[tuple[str, str, Json]] = [
            ("GET", "/v1/sessions/{}", {}),
            ("DELETE", "/v1/sessions/{}", {}),
            ("DELETE", f"/v1/sessions/{{}}?generation={generation}", {}),
            ("DELETE", "/v1/sessions/{}?mode=preview", {}),
            ("DELETE", "/v1/sessions/{}?subtree=0", {}),
            ("POST", "/v1/sessions/{}/touch", {}),
            ("POST", "/v1/sessions/{}/pause", {"generation": generation}),
            ("POST", "/v1/sessions/{}/resume", {}),
            ("POST", "/close_session", {"session_id": "{}"}),
            ("POST", "/v1/sessions", {"session_id": "mine", "parent": "{}"}),
        ]
        for method, path, body in calls:
            told = []
            for session in ("hers7", "nobody"):
                filled = {name: session if value == "{}" else value for name, value in body.items()}
                answer = await routed.http.request(method, path.format(session), json=filled, headers=beta)
                kept = {n: v for n, v in answer.headers.items() if n not in ("date", "x-request-id")}
                told.append((answer.status_code, answer.text.replace(session, "ID"), kept))
            assert told[0] == told[1]
            assert told[0][0] == 404
        assert (await routed.http.get("/v1/sessions", headers=beta)).json()["data"] == []
        kept_open = await routed.http.get("/v1/sessions/hers7", headers=acme)
        assert (kept_open.json()["state"], kept_open.json()["generation"]) == ("open", generation)


async def test_two_tenants_may_call_sessions_alike() -> None:
    async with two_tenants() as (routed, acme, beta):
        for headers in (acme, beta):
            answer = await routed.http.post("/v1/sessions", json={"session_id": "same"}, headers=headers)
            assert answer.status_code == 201
        await routed.http.delete("/v1/sessions/same", headers=beta)
        assert (await routed.http.get("/v1/sessions/same", headers=acme)).json()["state"] == "open"
        assert (await routed.http.get("/v1/sessions/same", headers=beta)).json()["state"] == "closed"


async def test_a_child_of_another_tenant_cannot_be_closed_with_its_parent() -> None:
    async with two_tenants() as (routed, acme, beta):
        for headers in (acme, beta):
            await routed.http.post("/v1/sessions", json={"session_id": "root"}, headers=headers)
            child = {"session_id": "child", "parent": "root"}
            await routed.http.post("/v1/sessions", json=child, headers=headers)
        answer = await routed.http.delete("/v1/sessions/root", headers=beta)
        assert [one["session_id"] for one in answer.json()["children"]] == ["child"]
        for session in ("root", "child"):
            assert (await routed.http.get(f"/v1/sessions/{session}", headers=acme)).json()["state"] == "open"


# limits


async def test_10_000_sessions_opened_by_one_key(tmp_path: Any) -> None:
    """As many as the key may have are opened; each further one is refused and told what to do; others are not hit."""
    file = tmp_path / "tenants.toml"
    file.write_text(
        f'[[tenant]]\nname = "acme"\nkeys = ["{ACME}"]\nsession_limit = 100\n'
        f'[[tenant]]\nname = "beta"\nkeys = ["{BETA}"]\n'
    )
    async with routing(tenants=load_tenants(str(file), "")) as routed:
        acme, beta = {"x-api-key": ACME}, {"x-api-key": BETA}
        statuses: Counter[int] = Counter()
        last: Json = {}

        async def flood(http: aiohttp.ClientSession, first: int) -> None:
            for number in range(first, 10_000, 20):
                async with http.post("/v1/sessions", json={"session_id": f"s{number}"}) as answer:
                    last.update(await answer.json())
                    statuses[answer.status] += 1

        async with aiohttp.ClientSession(routed.url, headers=acme) as http:
            await asyncio.gather(*(flood(http, first) for first in range(20)))
        assert statuses == {201: 100, 429: 9_900}
        assert last["error"]["code"] == Kind.SESSION_LIMIT
        assert "acme has 100 open sessions and may have 100" in last["error"]["message"]
        again = await routed.http.post("/v1/sessions", json={"session_id": "s0"}, headers=acme)
        assert again.status_code == 200
        assert (await routed.http.post("/v1/sessions", json={}, headers=beta)).status_code == 201
        assert (await routed.http.delete("/v1/sessions/s0", headers=acme)).status_code == 200
        assert (await routed.http.post("/v1/sessions", json={}, headers=acme)).status_code == 201
        assert (await routed.http.post("/open_session", json={}, headers=acme)).status_code == 429


# without a store


async def test_without_a_store_every_call_says_so() -> None:
    async with routing() as routed:
        await opened(routed, session_id="s")
        routed.store.down = True
        for method, path in (
            ("POST", "/v1/sessions"),
            ("GET", "/v1/sessions"),
            ("GET", "/v1/sessions/s"),
            ("POST", "/v1/sessions/s/touch"),
            ("POST", "/open_session"),
        ):
            answer = await routed.http.request(method, path)
            assert refused(answer)[:2] == (503, "store_failed"), path
            assert "x-agentcache-state" not in answer.headers
        routed.store.down = False
        assert (await routed.http.get("/v1/sessions/s")).json()["state"] == "open"


async def test_a_close_in_doubt_is_unknown_and_can_be_sent_again() -> None:
    async with routing() as routed:
        await opened(routed, session_id="s")
        routed.store.down = True
        answer = await routed.http.delete("/v1/sessions/s")
        assert answer.status_code == 503
        assert (answer.json()["state"], answer.json()["session_id"]) == ("unknown", "s")
        assert answer.json()["error"]["code"] == "store_failed"
        assert answer.headers["x-agentcache-state"] == "unknown"
        assert (await routed.http.post("/close_session", json={"session_id": "s"})).status_code == 503
        routed.store.down = False
        assert (await routed.http.delete("/v1/sessions/s")).json()["state"] == "closed"

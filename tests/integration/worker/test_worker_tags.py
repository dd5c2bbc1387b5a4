"""A worker behind a router: what a tag says counts, and nothing that the client says beside it."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from agentcache.engine.engine import Engine
from agentcache.types import SessionId
from agentcache.wire import TagSigner
from agentcache.worker.context import Worker
from agentcache.worker.tagged import OPEN_GATE, TagGate
from tests.serving import client_of, no_references, sse
from tests.tagging import SECRET, Tagging

pytestmark = pytest.mark.asyncio
CHAT = "/v1/chat/completions"
WORDS = "one two three four five six seven eight nine ten " * 8
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": WORDS}], "max_tokens": 2, "temperature": 0}
ROUTES: dict[str, dict[str, Any]] = {
    CHAT: BODY,
    "/v1/completions": {"prompt": WORDS, "max_tokens": 2},
    "/v1/messages": BODY,
    "/v1/responses": {"input": WORDS, "max_output_tokens": 2},
}


@pytest_asyncio.fixture
async def tagging(worker: Worker) -> AsyncIterator[Tagging]:
    """Tags for the shared worker, which is guarded during the test."""
    tagging = Tagging()
    worker.gate = TagGate(TagSigner(SECRET), "w1", tagging.now_ms, url=tagging.url)
    yield tagging
    worker.gate = OPEN_GATE


@pytest_asyncio.fixture
async def client(worker: Worker, tagging: Tagging) -> AsyncIterator[httpx2.AsyncClient]:
    assert isinstance(worker.gate, TagGate), tagging
    async with client_of(worker) as open_client:
        yield open_client


def cached(answer: httpx2.Response) -> int:
    assert answer.status_code == 200, answer.text
    tokens: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


# who is let in


@pytest.mark.parametrize("route", ROUTES)
async def test_what_is_not_tagged_is_refused_in_each_apis_shape(
    client: httpx2.AsyncClient, tagging: Tagging, route: str
) -> None:
    """Forged, replayed, expired, re-addressed, and without a tag: 401, never the default namespace."""
    used = tagging.headers("s", 7)
    assert (await client.post(route, json=ROUTES[route], headers=used)).status_code == 200
    expired = tagging.headers("s", 7, issued_ms=tagging.now - 120_001)
    other = tagging.headers("s", 7, worker="w2")
    forged = Tagging(signer=TagSigner(b"y" * 32)).headers("s", 7)
    for headers in (used, expired, other, forged, {}, tagging.operator()):
        answer = await client.post(route, json=ROUTES[route], headers=headers)
        assert answer.status_code == 401, answer.text
        assert answer.json()["error"]["type"] == "authentication_error"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/sessions"),
        ("GET", "/v1/sessions/acme/s"),
        ("POST", "/v1/sessions"),
        ("DELETE", "/v1/sessions/acme/s"),
        ("POST", "/open_session"),
        ("POST", "/close_session"),
        ("POST", "/flush_cache"),
        ("GET", "/v1/cache"),
        ("PUT", "/v1/cache/external"),
        ("POST", "/tokenize"),
        ("POST", "/v1/messages/count_tokens"),
        ("GET", "/nothing"),
    ],
)
async def test_managing_needs_the_operators_token(
    client: httpx2.AsyncClient, tagging: Tagging, method: str, path: str
) -> None:
    body = {"prompt": "x", **BODY}
    assert (await client.request(method, path, json=body)).status_code == 401
    allowed = await client.request(method, path, json=body, headers=tagging.operator())
    assert allowed.status_code != 401


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/v1/models"])
async def test_probes_stay_open(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 200


async def test_a_refusal_leaves_no_trace(
    client: httpx2.AsyncClient, tagging: Tagging, worker: Worker
) -> None:
    headers = tagging.headers("s", 7, worker="w2")
    await client.post(CHAT, json=BODY, headers=headers)
    await worker.thread.call(no_references)
    again = await client.post(CHAT, json=BODY, headers=tagging.headers("s", 7))
    assert cached(again) == 0


# whom it speaks for


async def test_tenants_share_nothing_and_each_finds_its_own(
    client: httpx2.AsyncClient, tagging: Tagging
) -> None:
    """R027: the salt is the router's, whatever the body says; no hit across, and a hit within."""
    hits = []
    for number, tenant in enumerate(("acme", "rival", "acme", "rival"), start=1):
        salt = tagging.signer.derive("salt", "acme" if tenant == "rival" else "rival")
        headers = tagging.headers("same", number, tenant=tenant)
        hits.append(cached(await client.post(CHAT, json={**BODY, "cache_salt": salt}, headers=headers)))
    assert hits[:2] == [0, 0]
    assert hits[2] == hits[3] > 64


async def test_what_the_client_says_of_its_session_does_not_count(
    client: httpx2.AsyncClient, tagging: Tagging, worker: Worker
) -> None:
    """R095: neither by header nor in the body; fences and hints are the tag's."""
    said = {
        "x-agentcache-session": "victim",
        "x-agentcache-generation": "99",
        "x-agentcache-parent": "\x01",
        "x-agentcache-strict": "1",
    }
    headers = {**tagging.headers("mine", 7), **said}
    answer = await client.post(CHAT, json={**BODY, "session_id": "another"}, headers=headers)
    assert cached(answer) == 0
    assert answer.headers["x-agentcache-session"] == "mine"
    assert answer.headers["x-agentcache-generation"] == "7"
    assert answer.headers["x-agentcache-state"] == "open"
    assert "x-agentcache-parent" not in answer.headers
    assert answer.json()["agentcache"]["session"] == "mine"
    known = await worker.thread.call(lambda engine: engine.cache.known_sessions())
    assert [one.session for one in known] == ["acme/mine"]


async def test_answers_say_what_was_cached_at_once(client: httpx2.AsyncClient, tagging: Tagging) -> None:
    for expected in (0, 64):
        headers = tagging.headers("said", 7, request_id=f"rid{expected}.1")
        answer = await client.post(CHAT, json={**BODY, "stream": True}, headers=headers)
        prompt = int(answer.headers["x-agentcache-prompt-tokens"])
        assert expected <= int(answer.headers["x-agentcache-cached-tokens"]) < prompt
        assert answer.headers["x-request-id"] == f"rid{expected}.1"
        assert sse(answer.text)[-1]["agentcache"]["session"] == "said"


async def test_a_tag_without_a_session_registers_nothing(
    client: httpx2.AsyncClient, tagging: Tagging, worker: Worker
) -> None:
    answer = await client.post(CHAT, json={**BODY, "session_id": "s"}, headers=tagging.headers())
    assert (answer.status_code, answer.headers["x-agentcache-state"]) == (200, "none")
    assert "x-agentcache-session" not in answer.headers
    await worker.thread.call(no_references)
    assert cached(await client.post(CHAT, json=BODY, headers=tagging.headers())) > 64


async def test_a_stale_tag_is_told_the_current_generation(
    client: httpx2.AsyncClient, tagging: Tagging
) -> None:
    assert (await client.post(CHAT, json=BODY, headers=tagging.headers("gone", 70))).status_code == 200
    stale = await client.post(CHAT, json=BODY, headers=tagging.headers("gone", 69))
    assert (stale.status_code, stale.json()["error"]["code"]) == (409, "session_stale")
    assert stale.headers["x-agentcache-generation"] == "70"
    assert stale.headers["x-agentcache-state"] == "stale"
    assert "acme" not in stale.text


async def test_a_closed_generation_is_served_unreferenced_however_late(
    client: httpx2.AsyncClient, tagging: Tagging, worker: Worker
) -> None:
    await client.post(CHAT, json=BODY, headers=tagging.headers("late", 80))
    closed = await worker.thread.call(_closed_through_80)
    assert closed == 1
    answer = await client.post(CHAT, json=BODY, headers=tagging.headers("late", 80))
    assert (answer.status_code, answer.headers["x-agentcache-state"]) == (200, "closed")
    await worker.thread.call(no_references)
    strict = await client.post(CHAT, json=BODY, headers=tagging.headers("late", 80, strict=True))
    assert strict.status_code == 409


# looking


async def test_a_tenant_sees_its_own_sessions_by_their_own_names(
    client: httpx2.AsyncClient, tagging: Tagging
) -> None:
    for number, tenant in enumerate(("acme", "rival"), start=90):
        sent = tagging.headers("root", number, tenant=tenant)
        await client.post(CHAT, json=BODY, headers=sent)
        sent = tagging.headers("a/child", number, tenant=tenant, parent="root")
        await client.post(CHAT, json=BODY, headers=sent)
    listed = (await client.get("/v1/sessions", headers=tagging.headers())).json()["data"]
    assert [(view["session_id"], view["parent"]) for view in listed] == [("root", None), ("a/child", "root")]
    assert all("tenant" not in view for view in listed)
    view = (await client.get("/v1/sessions/a%2Fchild", headers=tagging.headers())).json()
    assert (view["session_id"], view["parent"], view["markers"]) == ("a/child", "root", 1)
    other = await client.get("/v1/sessions/acme%2Froot", headers=tagging.headers(tenant="rival"))
    unknown = await client.get("/v1/sessions/none", headers=tagging.headers(tenant="rival"))
    assert other.status_code == unknown.status_code == 404
    assert "rival/" not in unknown.text


async def test_an_operator_sees_whose_sessions_they_are(client: httpx2.AsyncClient, tagging: Tagging) -> None:
    await client.post(CHAT, json=BODY, headers=tagging.headers("op", 95, parent="root"))
    view = (await client.get("/v1/sessions/acme%2Fop", headers=tagging.operator())).json()
    assert (view["tenant"], view["session_id"], view["parent"]) == ("acme", "op", "root")
    listed = (await client.get("/v1/sessions", headers=tagging.operator())).json()["data"]
    assert [(one["tenant"], one["session_id"]) for one in listed] == [("acme", "op")]
    would = await client.delete("/v1/sessions/acme%2Fop?mode=preview", headers=tagging.operator())
    assert (would.json()["state"], would.json()["tenant"]) == ("open", "acme")


@pytest.mark.parametrize("call", ["open", "close", "open_session", "close_session"])
async def test_only_routers_open_and_close(client: httpx2.AsyncClient, tagging: Tagging, call: str) -> None:
    await client.post(CHAT, json=BODY, headers=tagging.headers(f"theirs {call}", 96))
    headers = tagging.operator()
    answers = {
        "open": lambda: client.post("/v1/sessions", json={"session_id": "n"}, headers=headers),
        "close": lambda: client.delete(f"/v1/sessions/acme%2Ftheirs {call}", headers=headers),
        "open_session": lambda: client.post("/open_session", json={}, headers=headers),
        "close_session": lambda: client.post("/close_session", json={"session_id": "n"}, headers=headers),
    }
    answer = await answers[call]()
    assert answer.status_code == 400
    assert "routers" in answer.json()["error"]["message"]
    still = await client.get(f"/v1/sessions/acme%2Ftheirs {call}", headers=headers)
    assert still.json()["state"] == "open"


def _closed_through_80(engine: Engine) -> int:
    from_here = engine.cache.sessions()[0].on_close
    return engine.cache.close_through(SessionId("acme/late"), 80, from_here).markers

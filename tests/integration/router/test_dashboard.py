"""`/dashboard` of a router over real sockets: who may look, what is asked, and browsers that do not behave."""

import asyncio
import base64
import json
from pathlib import Path

import pytest
from starlette.applications import Starlette

from agentcache.clock import ManualClock
from agentcache.router.dashboard import sight
from agentcache.router.dashboard.routes import DashboardRoutes
from agentcache.router.dashboard.sight import BRANCHES, FRESH_S
from agentcache.router.tenants import load_tenants
from agentcache.store.api import SessionRef
from tests.patience import PATIENCE_S, pass_time
from tests.routing import Call, Routed, opened_at, routed_to, routing, serving

pytestmark = pytest.mark.asyncio
ASKED = 3000
ASK_S = 20.0
CACHE = {
    "page_tokens": 16,
    "tiers": {"device": {"FULL": {"slots": {"size": 64, "free": 32, "cached": 32}, "slot_bytes": 1024}}},
    "prompt_tokens": 100,
}
TREE = {"branches": [{"parent": None, "start": 0, "end": 512, "reusable": 496, "referenced_pages": 8}]}


async def shows(call: Call) -> None:
    """A worker with a little in its cache."""
    if not call.target.startswith("/v1/cache"):
        await call.whole(404, b"{}")
        return
    await call.whole(200, json.dumps(TREE if "tree" in call.target else CACHE).encode())


async def looked(routed: Routed, path: str = "/dashboard", **headers: str) -> str:
    answer = await routed.http.get(path, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.text


def later(clock: ManualClock) -> None:
    clock.advance(round(FRESH_S * 1e9))


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()


async def test_a_page_shows_workers_sessions_and_the_tree() -> None:
    async with routed_to(shows) as (routed, _):
        await routed.http.post("/v1/sessions", json={"session_id": "parent"})
        await routed.http.post("/v1/sessions", json={"session_id": "child", "parent": "parent"})
        text = await looked(routed)
        assert text.index(">parent<") < text.index(">child<")
        assert "<dt>open sessions<dd>2<" in text
        assert ">64 slots<" in text
        assert "tokens 0 to 512, reusable to 496" in text


async def test_the_fragment_is_the_page_without_what_stays() -> None:
    async with routed_to(shows) as (routed, _):
        inner = await looked(routed, "/dashboard/fragment")
        assert "<script>" not in inner
        assert inner in await looked(routed)


async def test_however_many_look_a_worker_is_asked_once_each_while() -> None:
    async with routed_to(shows) as (routed, (worker,)):
        for times in (1, 2):
            await asyncio.gather(*(looked(routed, "/dashboard/fragment") for _ in range(20)))
            asked = sorted(call.target for call in worker.heard)
            assert asked == sorted(["/v1/cache", f"/v1/cache/tree?limit={BRANCHES}"] * times)
            later(routed.clock)


async def test_a_worker_that_never_answers_is_shown_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sight, "ASK_S", ASK_S)
    read = asyncio.Event()

    async def is_read(call: Call) -> None:
        await call.whole(200, json.dumps(CACHE).encode(), {"connection": "close"})
        await call.gone.wait()
        read.set()

    async def is_silent(call: Call) -> None:
        await read.wait()
        pass_time(ASK_S)
        await call.gone.wait()

    async with routed_to(is_read, is_silent) as (routed, _):
        text = await looked(routed)
        assert "gave no answer within 20 s" in text
        assert ">64 slots<" in text


async def test_one_session_is_asked_of_its_worker() -> None:
    async def tells(call: Call) -> None:
        if "/v1/sessions/" not in call.target:
            await shows(call)
            return
        assert call.target == "/v1/sessions/default%2Fagent"
        turn = {"at": 1_699_999_997.0, "prompt_tokens": 40, "cached_tokens": {"device": 16}, "why": "evicted"}
        await call.whole(200, json.dumps({"state": "open", "markers": 1, "turns": [turn]}).encode())

    async with routed_to(tells) as (routed, _):
        await routed.store.assign(*await opened_at(routed, SessionRef("default", "agent"), "w1"))
        text = await looked(routed, "/dashboard?session=agent")
        assert ">3 s ago<" in text
        assert ">evicted<" in text
        assert ">40.0 %<" in text
        assert "No session has this id now." in await looked(routed, "/dashboard?session=other")


async def test_a_session_opened_later_is_on_the_next_page() -> None:
    async with routing() as routed:
        assert "No session is open." in await looked(routed)
        await routed.http.post("/v1/sessions", json={"session_id": "<script>alert(1)</script>"})
        later(routed.clock)
        text = await looked(routed)
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert text.count("<script>") == 1


@pytest.mark.parametrize(
    "query", ["session=%0A", "session=a&session=b", "session=%ff", "session=" + "a" * 257]
)
async def test_what_is_no_session_is_refused(query: str) -> None:
    async with routing() as routed:
        assert (await routed.http.get(f"/dashboard?{query}")).status_code == 400


async def test_only_the_operator_may_look(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("operator-key")
    tenants = load_tenants("", "acme=sk-acme-0001", str(tmp_path / "key"))
    async with routing(tenants=tenants) as routed:
        for path in ("/dashboard", "/dashboard/fragment"):
            for sent in (
                {},
                {"authorization": basic("sk-acme-0001")},
                {"authorization": "Bearer sk-acme-0001"},
            ):
                refused = await routed.http.get(path, headers=sent)
                assert refused.status_code == 401
                assert refused.headers["www-authenticate"].startswith("Basic ")
                assert "<" not in refused.text
            for key in (basic("operator-key"), "Bearer operator-key"):
                await looked(routed, path, authorization=key)


async def test_a_page_is_kept_nowhere_and_framed_by_nobody() -> None:
    async with routing() as routed:
        answer = await routed.http.get("/dashboard")
        assert answer.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert (await routed.http.post("/dashboard")).status_code == 405


async def test_a_store_that_is_away_is_shown_and_no_fault() -> None:
    async with routed_to(shows) as (routed, _):
        routed.store.down = True
        assert "the session store did not answer" in await looked(routed)


async def test_a_browser_that_never_reads_is_given_up() -> None:
    """It asks far more often than sockets and buffers hold, on one connection, and takes nothing."""
    async with routing() as routed:
        page = DashboardRoutes(routed.router, send_s=0.2)
        async with serving(Starlette(routes=page.routes())) as url:
            host, port = url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 10)
            writer.write(b"GET /dashboard HTTP/1.1\r\nhost: router\r\n\r\n" * ASKED)
            async with asyncio.timeout(PATIENCE_S):
                while not page.sending.given_up:
                    await asyncio.sleep(0)
                assert page.sending.under_way == 0
                taken = await reader.read(-1)
            writer.close()
            assert 0 < taken.count(b"</html>") < ASKED

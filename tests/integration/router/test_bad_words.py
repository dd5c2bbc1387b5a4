"""Whatever a client says wrongly about sessions and their waits gets one clear answer, from router and worker alike,
and changes nothing: no reference, no order of eviction, no record more than before."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest

from agentcache import wire
from agentcache.config import Settings
from agentcache.engine.build import build_engine, load_tokenizer_for
from agentcache.engine.engine import Engine
from agentcache.engine.thread import EngineThread
from agentcache.router.tenants import Tenant, Tenants
from agentcache.store.api import Opening, SessionRef
from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from agentcache.worker.serve import make_worker
from tests.accounting import SIZES
from tests.patience import PATIENCE_S
from tests.routing import Call, Routed, begin_stream, raw_client, routed_to, serving
from tests.serving import no_references, nothing_left
from tests.toolwaits import setting
from tests.wrong_words import CHAT, HI, SESSIONS, TYPES, WRONG, Wrong

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]
YEAR_S = 365 * 86_400
TENANTS = {"heard": Tenant("heard", kv_hints=True), "unheard": Tenant("unheard", hints=False)}
BOTH = pytest.mark.parametrize("routed", [True, False], ids=["router", "worker"])


def snapshot(engine: Engine) -> object:
    """All that the order of eviction, and what a close lets go of, follow from; and how much is remembered."""
    cache = engine.cache
    registry, stats = cache._sessions, cache.stats()
    records = list(registry._records)
    return (
        cache._core.snapshot(),
        {record.session: registry.wait(record.session) for record in records},
        {record.session: (record.state, record.current, record.parent) for record in records},
        {record.session: (record.wishes.paused, record.wishes.on_close, record.ttl_ns) for record in records},
        (stats.open_references, stats.sessions, stats.pools, stats.active_turns),
    )


class House:
    """Sessions in each state, and whom to ask: a router (`routed`) before the worker, or the worker alone."""

    def __init__(self, worker: Worker, http: httpx2.AsyncClient, routed: Routed | None) -> None:
        self.worker = worker
        self.http = http
        self.routed = routed

    async def turn(self, session: str, text: str = "", **headers: str) -> httpx2.Response:
        named = {wire.SESSION: session, **{name.replace("_", "-"): value for name, value in headers.items()}}
        said = text or f"{session}: the parser gets bytes where it wants text. " * 4
        body = {"messages": [{"role": "user", "content": said}], "max_tokens": 1}
        answer = await self.http.post(CHAT, json=body, headers=named)
        assert answer.status_code == 200, answer.text
        return answer

    async def say(self, call: str, session: str = "idle", **body: object) -> dict[str, Any]:
        """A pause or a resume that is well-formed."""
        answer = await self.http.post(f"{SESSIONS}/{session}/{call}", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def ask(self, wrong: Wrong) -> httpx2.Response:
        content = wrong.body if isinstance(wrong.body, bytes) else json.dumps(wrong.body).encode()
        return await self.http.request(wrong.method, wrong.path, content=content, headers=wrong.headers)

    async def look(self, session: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.http.get(f"{SESSIONS}/{session}")).json()
        return found

    async def hint_s(self, session: str = "idle") -> float | None:
        told: float | None = (await self.look(session))["wait"]["hint_s"]
        return told

    async def snapshot(self) -> object:
        """What worker and store know."""
        engine = await self.worker.thread.call(snapshot)
        if not self.routed:
            return engine
        await self.routed.settled()
        books = self.routed.store.books
        return await self.worker.thread.call(snapshot), len(books.open), len(books.tombs)

    async def loses(self) -> list[str]:
        """The order in which the sessions lose what they hold to strangers."""
        names, lost = ["parent", "idle", "child"], list[str]()
        for stranger in range(40):
            for name in names:
                if name not in lost and not (await self.look(name))["held"]:
                    lost.append(name)
            if len(lost) == len(names):
                break
            await self.turn(f"stranger {stranger}", f"{stranger} tells something else. " * 6)
        return lost


@asynccontextmanager
async def alone(sizes: Mapping[str, object]) -> AsyncIterator[Worker]:
    chosen = Settings.model_validate({"engine": "accounting", **sizes})
    thread = EngineThread(lambda: build_engine(chosen))
    worker = make_worker(thread, thread.start().info, load_tokenizer_for(chosen), chosen)
    try:
        yield worker
        await thread.call(nothing_left)
    finally:
        await thread.stop(0)


@asynccontextmanager
async def house(routed: bool = True, key: str = "heard", **changes: object) -> AsyncIterator[House]:
    sizes = {**SIZES, **changes}
    async with AsyncExitStack() as stack:
        if routed:
            keys = {hashlib.sha256(name.encode()).digest(): tenant for name, tenant in TENANTS.items()}
            at = await stack.enter_async_context(setting(tenants=Tenants(keys), sizes=sizes))
            worker, url, before = at.worker, at.routed.url, at.routed
        else:
            worker, before = await stack.enter_async_context(alone(sizes)), None
            url = await stack.enter_async_context(serving(create_app(worker)))
        bearer = {"authorization": f"Bearer {key}"}
        client = httpx2.AsyncClient(base_url=url, headers=bearer, timeout=PATIENCE_S)
        made = House(worker, await stack.enter_async_context(client), before)
        for session in ("parent", "idle", "closed"):
            await made.turn(session)
        await made.turn("child", x_agentcache_parent="parent")
        await made.http.delete(f"{SESSIONS}/closed")
        yield made


@BOTH
async def test_what_is_wrong_gets_one_clear_answer_and_changes_nothing(routed: bool) -> None:
    async with house(routed) as at:
        for wrong in WRONG:
            before = await at.snapshot()
            answer = await at.ask(wrong)
            error = answer.json()["error"]
            said = (answer.status_code, error["code"], error["param"])
            assert said == (wrong.status, wrong.code, wrong.param), (wrong, error)
            assert error["type"] == TYPES[wrong.status]
            assert wrong.words in error["message"], (wrong, error)
            assert await at.snapshot() == before, wrong


@BOTH
async def test_who_leaves_first_is_the_same_after_it(routed: bool) -> None:
    """Sessions lose what they hold to strangers in the same order, whatever was said wrongly before."""
    orders = []
    for told in (WRONG, []):
        async with house(routed, full_slots=128) as at:
            for session, expected_s in (("idle", 800), ("child", 400), ("parent", 200)):
                await at.say("pause", session, expected_s=expected_s)
            for wrong in told:
                await at.ask(wrong)
            orders.append(await at.loses())
    assert orders[0] == orders[1] == ["idle", "child", "parent"], orders


@BOTH
async def test_what_is_odd_and_can_be_meant_is_taken_as_far_as_it_goes(routed: bool) -> None:
    async with house(routed) as at:
        before = await at.snapshot()
        for _ in range(2):
            assert (await at.say("resume"))["paused"] is None, "of what is not paused, and again"
            assert await at.snapshot() == before
        for nothing in ({}, {"expected_s": None}, {"expected_s": 0}):
            assert (await at.say("pause", **nothing))["paused"] == {"tool": "tool", "expected_s": 0.0}
            assert await at.hint_s() is None
        assert (await at.say("pause", tool="bash", expected_s=60))["paused"]["expected_s"] == 60
        assert (await at.say("pause", tool="grep"))["paused"] == {"tool": "grep", "expected_s": 60.0}
        assert await at.hint_s() == pytest.approx(60 + PATIENCE_S / 2, abs=PATIENCE_S / 2), (
            "what it leaves open stands"
        )
        year = await at.say("pause", tool="review", expected_s=YEAR_S)
        assert year["paused"] == {"tool": "review", "expected_s": YEAR_S}
        assert await at.hint_s() == 6 * 3600
        assert (await at.look("idle"))["wait"]["hint_believed"] is False, "it moved its return too far away"
        for _ in range(2):
            assert (await at.say("resume"))["paused"] is None
            assert await at.hint_s() is None
        for empty in ("", "0", "1e-9"):
            answer = await at.turn("idle", x_agentcache_expected_s=empty)
            assert answer.headers[wire.STATE] == "open"


@BOTH
async def test_a_running_session_can_be_paused_and_resumed(routed: bool) -> None:
    """The time counts from when it was said; what is wrong is refused as for any other."""
    async with house(routed, accounting_decode_tokens_per_s=50.0) as at:
        body = {**HI, "max_tokens": 3000, "stream": True, "ignore_eos": True}
        bearer = {"authorization": "Bearer heard"}
        async with raw_client(
            str(at.http.base_url).rstrip("/"), CHAT, body, x_agentcache_session="busy", **bearer
        ) as (
            reader,
            _,
        ):
            await reader.readuntil(b"data: ")
            before = await at.worker.thread.call(lambda engine: engine.cache.stats().open_references)
            assert (await at.say("pause", "busy", tool="bash", expected_s=60))["paused"]["tool"] == "bash"
            assert (await at.look("busy"))["wait"]["state"] == "running"
            assert (await at.say("resume", "busy"))["paused"] is None
            refused = await at.http.post(f"{SESSIONS}/busy/pause", json={"expected_s": -1})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "expected_s")
            await at.say("pause", "busy", tool="bash", expected_s=90)
            fork = {"session_id": "fork", "parent": "busy", "fork": True}
            assert (await at.http.post(SESSIONS, json=fork)).status_code == 201, "of a parent that runs"
            after = await at.worker.thread.call(lambda engine: engine.cache.stats().open_references)
            assert after == before
        while (found := await at.look("busy"))["wait"]["state"] != "idle":
            pass
        assert found["paused"] == {"tool": "bash", "expected_s": 90.0}
        assert 0 < found["wait"]["hint_s"] <= 90


@BOTH
async def test_a_parent_that_cannot_be_is_left_out_of_a_request(routed: bool) -> None:
    """And leaves nothing behind that a close does not reach."""
    async with house(routed) as at:
        for parent in ("nobody", "closed", "orphan", "a\tb", "x" * 257):
            answer = await at.turn("orphan", x_agentcache_parent=parent, x_agentcache_fork="1")
            assert answer.headers[wire.PARENT] == "ignored", parent
            assert (await at.look("orphan"))["parent"] is None
        around = await at.turn("parent", x_agentcache_parent="child", x_agentcache_fork="1")
        assert around.headers[wire.PARENT] == "ignored", "it descends from it"
        lonely = await at.turn("lonely", x_agentcache_fork="1")
        assert (lonely.status_code, (await at.look("lonely"))["parent"]) == (200, None)
        for session in ("orphan", "lonely", "idle", "parent"):
            closed = await at.http.delete(f"{SESSIONS}/{session}?subtree=1")
            assert closed.json()["state"] == "closed"
        await at.worker.thread.call(no_references)


async def test_a_tenant_that_is_not_heard_moves_nothing() -> None:
    async with house(key="unheard") as at:
        before = await at.snapshot()
        for call, body in (("pause", {"tool": "x", "expected_s": 0.1}), ("pause", {}), ("resume", {})):
            answer = await at.http.post(f"{SESSIONS}/idle/{call}", json=body)
            assert (answer.status_code, answer.headers[wire.HINTS]) == (200, "ignored")
            assert answer.json()["paused"] is None
            assert await at.snapshot() == before
        told = await at.turn("idle", x_agentcache_expected_s="0.1")
        assert (told.headers[wire.HINTS], await at.hint_s()) == ("ignored", None)


async def test_thousands_of_children_are_told_of_in_few_words() -> None:
    async with house() as at:
        assert at.routed
        for number in range(3000):
            await at.routed.store.open(SessionRef("heard", f"c{number}"), Opening(parent="parent"))
        seen = await at.http.get(f"{SESSIONS}/parent")
        assert (seen.json()["children"], len(seen.content) < 10_000) == (3001, True)
        listed = await at.http.get(f"{SESSIONS}?limit=1000")
        assert (len(listed.json()["data"]), listed.json()["has_more"]) == (1000, True)
        closed = (await at.http.delete(f"{SESSIONS}/parent")).json()
        assert (len(closed["children"]), closed["more"]) == (1000, True)
        assert (await at.http.get(SESSIONS)).json()["open_sessions"] == 1


FLOOD_BYTES, CHUNK = 64 << 20, b"x" * (64 << 10)


async def test_a_client_that_never_reads_its_stream_is_not_read_for() -> None:
    """What waits for it is what sockets hold: its worker is held up, nobody else, and it is over when it leaves."""
    sent, full = [0], asyncio.Event()

    async def floods(call: Call) -> None:
        if b"flood" not in call.body:
            await call.whole(200, b"{}", {wire.STATE: "open"})
            return
        await begin_stream(call)
        while sent[0] < FLOOD_BYTES:
            try:
                async with asyncio.timeout(1):
                    await call.chunk(CHUNK)
            except TimeoutError:
                break
            sent[0] += len(CHUNK)
        full.set()
        await call.gone.wait()

    async with routed_to(floods) as (routed, (worker,)):
        async with raw_client(routed.url, CHAT, {"flood": 1}, x_agentcache_session="s"):
            await full.wait()
            assert sent[0] < FLOOD_BYTES / 2
            assert (await routed.post(CHAT, HI, x_agentcache_session="t")).status_code == 200
        await worker.heard[0].gone.wait()
        await routed.settled()
        assert (await routed.store.look(SessionRef("default", "s"))).in_flight == 0

"""The router's sessions API over HTTP: open, look, list, touch, pause, resume, close, and SGLang's two calls."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
import pytest
from structlog.testing import capture_logs

from agentcache.router.settings import RouterSettings
from agentcache.store.api import SessionRef
from agentcache.wire import Notice, Outcome
from tests.desks import PART, DeskWorker, receipt_of, silent
from tests.patience import pass_time, until
from tests.routing import PATIENT, SIGNER, Call, Routed, Upstream, routing

pytestmark = pytest.mark.asyncio
Json = dict[str, Any]
PART_JSON: Json = msgspec.to_builtins(PART)


async def opened(routed: Routed, **body: Any) -> Json:
    answer = await routed.http.post("/v1/sessions", json=body)
    assert answer.status_code in (200, 201), answer.text
    return dict(answer.json())


async def looked(routed: Routed, session: str) -> Json:
    answer = await routed.http.get(f"/v1/sessions/{session}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def closed(routed: Routed, session: str, **query: str) -> Json:
    answer = await routed.http.delete(f"/v1/sessions/{session}", params=query)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def held_by(routed: Routed, session: str, *workers: str) -> None:
    """Make these workers holders, the last one the session's own."""
    ref = SessionRef("default", session)
    generation = (await routed.store.look(ref)).generation
    for placement, worker in enumerate(workers):
        await routed.store.assign(ref, generation, placement, worker)


@asynccontextmanager
async def at_their_desks(routed: Routed, *names: str) -> AsyncIterator[list[DeskWorker]]:
    """Workers that read notices and answer them."""
    workers = [await DeskWorker(routed.store, name).start() for name in names]
    loops = [asyncio.ensure_future(worker.run()) for worker in workers]
    try:
        yield workers
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


async def test_opening_twice_changes_nothing_and_a_fence_raises_the_generation() -> None:
    async with routing() as routed:
        answer = await routed.http.post("/v1/sessions", json={"session_id": "twice"})
        assert answer.status_code == 201
        first = answer.json()
        assert first == {
            "object": "session",
            "session_id": "twice",
            "generation": first["generation"],
            "created": True,
            "worker": None,
            "open_sessions": 1,
        }
        again = await routed.http.post("/v1/sessions", json={"session_id": "twice", "ttl_s": 5})
        assert (again.status_code, again.json()) == (200, {**first, "created": False})
        fenced = await opened(routed, session_id="twice", fence=True)
        assert fenced["generation"] > first["generation"]
        assert not fenced["created"]


async def test_a_session_without_a_name_gets_one() -> None:
    async with routing() as routed:
        named = [(await opened(routed))["session_id"] for _ in range(2)]
        assert len(set(named)) == 2
        assert (await looked(routed, named[0]))["state"] == "open"


@pytest.mark.parametrize("field", ["parent", "parent_session_id"])
async def test_what_was_said_at_the_opening_is_shown(field: str) -> None:
    async with routing() as routed:
        await opened(routed, session_id="root")
        await opened(routed, session_id="child", ttl_s=9.5, on_close="demote", **{field: "root"})
        child = await looked(routed, "child")
        assert child == {
            "object": "session",
            "session_id": "child",
            "state": "open",
            "generation": child["generation"],
            "closed_through": 0,
            "parent": "root",
            "children": 0,
            "in_flight": 0,
            "idle_s": 0.0,
            "ttl_s": 9.5,
            "on_close": "demote",
            "worker": None,
            "holders": [],
            "paused": None,
            "queued": 0,
            "running": 0,
            "markers": 0,
            "held": [],
            "child_sessions": [],
            "closing": {"mode": "demote", "markers": 0, "released": []},
            "wait": None,
            "turns": [],
            "workers": [],
        }
        assert (await looked(routed, "root"))["children"] == 1


@pytest.mark.parametrize("session", ["a/b", "a b", "sëssion", "50%", "a?b#c", "touch", "x/touch", "%2F"])
async def test_any_id_can_be_named_in_a_path(session: str) -> None:
    path = f"/v1/sessions/{_quoted(session)}"
    async with routing() as routed:
        await opened(routed, session_id=session)
        assert (await routed.http.get(path)).json()["session_id"] == session
        assert (await routed.http.post(f"{path}/touch", json={})).json()["session_id"] == session
        assert (await routed.http.delete(path)).json()["session_id"] == session


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


async def test_a_list_comes_in_pages() -> None:
    async with routing() as routed:
        names = [f"s{number}" for number in range(25)]
        for name in names:
            await opened(routed, session_id=name)
        found, after, pages = [], "", 0
        while pages == 0 or after:
            answer = await routed.http.get(
                "/v1/sessions", params={"limit": 10, **({"after": after} if after else {})}
            )
            page = answer.json()
            assert (page["object"], page["open_sessions"], page["session_limit"]) == ("list", 25, 100_000)
            assert page["has_more"] is bool(page["after"])
            found += [one["session_id"] for one in page["data"]]
            after, pages = page["after"], pages + 1
        assert (found, pages) == (names, 3)
        await closed(routed, "s3")
        everything = (await routed.http.get("/v1/sessions")).json()
        assert len(everything["data"]) == 24
        assert everything["has_more"] is False


async def test_a_session_that_pauses_says_for_what_until_it_goes_on() -> None:
    async with routing() as routed:
        generation = (await opened(routed, session_id="s"))["generation"]
        said = {"tool": "bash", "expected_s": 12.5, "generation": generation}
        paused = await routed.http.post("/v1/sessions/s/pause", json=said)
        assert paused.json()["paused"] == {"tool": "bash", "expected_s": 12.5}
        touched = await routed.http.post("/v1/sessions/s/touch")
        assert touched.json()["paused"] == {"tool": "bash", "expected_s": 12.5}
        assert (await routed.http.post("/v1/sessions/s/resume")).json()["paused"] is None
        assert (await routed.http.post("/v1/sessions/s/pause")).json()["paused"]["tool"] == "tool"


@pytest.mark.parametrize("action", ["touch", "pause", "resume"])
async def test_notes_are_fenced(action: str) -> None:
    async with routing() as routed:
        generation = (await opened(routed, session_id="s"))["generation"]
        path = f"/v1/sessions/s/{action}"
        stale = await routed.http.post(path, json={"generation": generation + 1})
        assert (stale.status_code, stale.json()["error"]["code"]) == (409, "session_stale")
        assert stale.headers["x-agentcache-state"] == "stale"
        header = await routed.http.post(path, headers={"x-agentcache-generation": str(generation + 1)})
        assert header.status_code == 409
        assert (await routed.http.post(path, json={"generation": generation})).status_code == 200
        await closed(routed, "s")
        shut = await routed.http.post(path)
        assert (shut.status_code, shut.json()["error"]["code"]) == (409, "session_closed")
        assert shut.headers["x-agentcache-state"] == "closed"
        unknown = await routed.http.post(f"/v1/sessions/none/{action}")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "session_unknown")


async def test_a_close_says_what_each_holder_released() -> None:
    async with routing(PATIENT) as routed, at_their_desks(routed, "w1", "w2"):
        generation = (await opened(routed, session_id="s"))["generation"]
        await held_by(routed, "s", "w1", "w2")
        answer = await closed(routed, "s", generation=str(generation))
        told = {"outcome": "released", "mode": "release", "markers": 1, "released": [PART_JSON]}
        assert answer == {
            "object": "session.closed",
            "session_id": "s",
            "state": "closed",
            "generation": generation,
            "mode": "release",
            "markers": 2,
            "released": [{**PART_JSON, "tokens": 128, "slots": 2, "bytes": 8192}],
            "workers": [{"worker": "w1", **told}, {"worker": "w2", **told}],
            "children": [],
            "more": False,
        }
        again = await closed(routed, "s")
        assert (again["state"], again["generation"], again["released"]) == ("closed", generation, [])
        assert (await looked(routed, "s"))["state"] == "closed"
        assert (await looked(routed, "s"))["closed_through"] == generation


async def test_a_close_takes_the_descendants_and_says_so() -> None:
    async with routing(PATIENT) as routed, at_their_desks(routed, "w1") as (worker,):
        await opened(routed, session_id="root")
        await opened(routed, session_id="child", parent="root", on_close="drop")
        await opened(routed, session_id="grandchild", parent="child")
        for session in ("root", "child", "grandchild"):
            await held_by(routed, session, "w1")
        answer = await closed(routed, "root")
        below = {one["session_id"]: one for one in answer["children"]}
        assert list(below) == ["child", "grandchild"]
        assert [one["released"] for one in below.values()] == [[PART_JSON]] * 2
        assert dict(worker.closes()) == {"root": "release", "child": "drop", "grandchild": "release"}
        assert below["child"]["mode"] == "drop"
        for session in below:
            assert (await looked(routed, session))["state"] == "closed"


@pytest.mark.parametrize("mode", ["release", "demote", "drop"])
async def test_how_to_close_can_be_said(mode: str) -> None:
    async with routing(PATIENT) as routed, at_their_desks(routed, "w1") as (worker,):
        await opened(routed, session_id="s", on_close="release")
        await held_by(routed, "s", "w1")
        assert (await closed(routed, "s", mode=mode))["mode"] == mode
        assert worker.closes() == [("s", mode)]


async def test_a_holder_that_is_silent_is_pending_and_one_that_failed_says_why() -> None:
    def fails(worker: DeskWorker, notice: Notice) -> Any:
        return receipt_of(worker.name, notice, Outcome.FAILED, "the engine is stuck")

    async with routing(PATIENT) as routed, at_their_desks(routed, "w1", "w2") as (mute, broken):
        mute.respond, broken.respond = silent, fails
        await opened(routed, session_id="s")
        await held_by(routed, "s", "w1", "w2")
        with capture_logs() as heard:
            closing = asyncio.ensure_future(closed(routed, "s"))
            await until(lambda: any(line["event"] == "close_failed" for line in heard))
            pass_time(PATIENT.close_wait_s)
            answer = await closing
        assert (answer["state"], answer["released"]) == ("closed", [])
        said = {one["worker"]: (one["outcome"], one.get("said")) for one in answer["workers"]}
        assert said == {"w1": ("pending", None), "w2": ("failed", "the engine is stuck")}


def view_of(call: Call) -> Json:
    """What a worker shows of a session to whoever has the operator's token."""
    url = f"http://{call.headers['host']}"
    assert call.headers["authorization"] in {
        f"Bearer {SIGNER.bearer(name, url)}" for name in ("w1", "w2", "w3")
    }
    named = call.target.removeprefix("/v1/sessions/default%2F")
    return {
        "object": "session",
        "session_id": named,
        "state": "open",
        "queued": 1,
        "running": 2,
        "markers": 3,
        "held": [PART_JSON],
        "anything": {"else": 1},
    }


async def shows(call: Call) -> None:
    await call.whole(200, json.dumps(view_of(call)).encode())


async def knows_nothing(call: Call) -> None:
    await call.whole(404, b'{"error": {}}')


async def talks_nonsense(call: Call) -> None:
    await call.whole(200, b'{"held": 3')


@asynccontextmanager
async def asked_of(*scripts: Any) -> AsyncIterator[Routed]:
    """A router with one worker for each script (w1, w2, …), all of them holders of the session s."""
    async with routing() as routed:
        await opened(routed, session_id="s")
        upstreams = [Upstream(script) for script in scripts]
        async with _all(upstreams):
            names = [f"w{number}" for number in range(1, len(scripts) + 1)]
            for name, upstream in zip(names, upstreams, strict=True):
                await routed.register(name, upstream.url)
            await held_by(routed, "s", *names)
            yield routed


@asynccontextmanager
async def _all(upstreams: list[Upstream]) -> AsyncIterator[None]:
    if not upstreams:
        yield
        return
    async with upstreams[0].serving(), _all(upstreams[1:]):
        yield


async def test_a_look_asks_every_holder() -> None:
    async with asked_of(shows, shows, knows_nothing, talks_nonsense) as routed:
        seen = await looked(routed, "s")
        assert (seen["worker"], seen["holders"]) == ("w4", ["w1", "w2", "w3", "w4"])
        assert (seen["queued"], seen["running"], seen["markers"]) == (2, 4, 6)
        assert seen["held"] == [{**PART_JSON, "tokens": 128, "slots": 2, "bytes": 8192}]
        own = {one["worker"]: one for one in seen["workers"]}
        assert own["w1"] == {"worker": "w1", "state": "open", "markers": 3, "held": [PART_JSON]}
        assert own["w3"] == {"worker": "w3", "state": "none", "markers": 0, "held": []}
        assert own["w4"]["said"] == "its answer makes no sense"


async def test_a_preview_changes_nothing() -> None:
    async with asked_of(shows) as routed:
        await opened(routed, session_id="child", parent="s")
        await opened(routed, session_id="grandchild", parent="child")
        await opened(routed, session_id="other")
        await held_by(routed, "grandchild", "w1")
        preview = await closed(routed, "s", mode="preview")
        assert (preview["state"], preview["mode"], preview["released"]) == ("open", "preview", [PART_JSON])
        assert [one["outcome"] for one in preview["workers"]] == ["preview"]
        below = {one["session_id"]: one["released"] for one in preview["children"]}
        assert below == {"child": [], "grandchild": [PART_JSON]}
        assert (await closed(routed, "s", mode="preview", subtree="0"))["children"] == []
        for session in ("s", "child", "grandchild"):
            assert (await routed.store.look(SessionRef("default", session))).state == "open"


async def test_holders_that_cannot_be_asked_are_named() -> None:
    async with asked_of(shows) as routed:
        await routed.register("gone", "http://127.0.0.1:9")
        await held_by(routed, "s", "w1", "gone", "never-there")
        own = {one["worker"]: one.get("said", "") for one in (await looked(routed, "s"))["workers"]}
        assert own["w1"] == ""
        assert "gave no answer" in own["gone"]
        assert own["never-there"] == "no worker has this name now"


async def test_a_stale_preview_is_refused() -> None:
    async with routing() as routed:
        generation = (await opened(routed, session_id="s"))["generation"]
        answer = await routed.http.delete(f"/v1/sessions/s?mode=preview&generation={generation + 1}")
        assert answer.json()["error"]["code"] == "session_stale"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_sglang_s_clients_open_and_close(method: str) -> None:
    async with routing() as routed:

        async def call(path: str, **said: Any) -> httpx2.Response:
            if method == "GET":
                return await routed.http.get(path, params=said)
            return await routed.http.post(path, json=said)

        if method == "POST":
            answer = await call("/open_session", capacity_of_str_len=1000, session_id="s", timeout=7.5)
            assert (await looked(routed, "s"))["ttl_s"] == 7.5
        else:
            answer = await call("/open_session", session_id="s")
        assert (answer.status_code, answer.json()) == (200, "s")
        ended = await call("/close_session", session_id="s")
        assert (ended.status_code, ended.content) == (200, b"")
        assert (await looked(routed, "s"))["state"] == "closed"
        assert (await call("/close_session", session_id="s")).status_code == 200
        assert (await call("/close_session", session_id="none")).status_code == 404


async def test_sglang_upstreams_are_told_of_a_close() -> None:
    async def takes(call: Call) -> None:
        await call.whole(200, b"")

    async with Upstream(takes).serving() as sglang:
        settings = RouterSettings(
            upstream=(f"sglang={sglang.url}",), refresh_s=30, sweep_s=30, close_wait_s=30
        )
        async with routing(settings) as routed:
            await opened(routed, session_id="s")
            await held_by(routed, "s", sglang.url.removeprefix("http://"))
            (told,) = (await closed(routed, "s"))["workers"]
            assert (told["outcome"], told["said"]) == ("released", "SGLang does not say what it held")
            (call,) = sglang.heard
            assert (call.target, call.fields) == ("/close_session", {"session_id": "default/s"})

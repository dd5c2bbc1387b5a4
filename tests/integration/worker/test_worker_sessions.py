"""The sessions API over HTTP: open, look, close, fences, families, and SGLang's three calls."""

import asyncio
from typing import Any

import httpx2
import pytest

from agentcache.types import SessionId
from agentcache.wire import RETENTION
from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from tests.patience import PATIENCE_S
from tests.serving import Call, client_of, no_references, own_worker, sse

pytestmark = pytest.mark.asyncio
CHAT = "/v1/chat/completions"
WORDS = "one two three four five six seven eight nine ten " * 8


async def turn(client: httpx2.AsyncClient, session: str, **headers: str) -> httpx2.Response:
    named = {"x-agentcache-session": session, **{f"x-agentcache-{k}": v for k, v in headers.items()}}
    body = {"messages": [{"role": "user", "content": WORDS}], "max_tokens": 2, "temperature": 0}
    return await client.post(CHAT, json=body, headers=named)


async def opened(client: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/sessions", json=body)
    assert answer.status_code in (200, 201), answer.text
    return dict(answer.json())


def error(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_opening_twice_changes_nothing_and_a_fence_raises_the_generation(
    client: httpx2.AsyncClient,
) -> None:
    first = await opened(client, session_id="twice")
    assert first == {
        "object": "session",
        "session_id": "twice",
        "generation": first["generation"],
        "created": True,
    }
    assert await opened(client, session_id="twice") == {**first, "created": False}
    fenced = await opened(client, session_id="twice", fence=True)
    assert fenced["generation"] > first["generation"]


async def test_a_session_without_a_name_gets_one(client: httpx2.AsyncClient) -> None:
    named = await opened(client)
    assert (await client.get(f"/v1/sessions/{named['session_id']}")).status_code == 200


async def test_a_session_shows_what_it_holds_until_it_is_closed(
    client: httpx2.AsyncClient, worker: Worker
) -> None:
    await turn(client, "held")
    seen = (await client.get("/v1/sessions/held")).json()
    held = {part["component"]: part for part in seen["held"]}
    assert set(held) == {"FULL", "SWA", "MAMBA"}
    assert held["FULL"]["tokens"] >= 64
    assert held["FULL"]["bytes"] > 0 == held["MAMBA"]["tokens"]
    listed = (await client.get("/v1/sessions")).json()
    assert [view["session_id"] for view in listed["data"]] == ["held"]
    assert listed["open_references"] == 1
    closed = (await client.delete("/v1/sessions/held")).json()
    assert closed["state"] == "closed"
    assert closed["released"] == seen["held"]
    await worker.thread.call(no_references)
    nobody = {"events_url": "", "replay_url": ""}
    empty = {"object": "list", "data": [], "open_references": 0, "events": nobody}
    assert (await client.get("/v1/sessions")).json() == empty


async def test_closing_again_answers_the_same_and_releases_nothing(client: httpx2.AsyncClient) -> None:
    await turn(client, "again")
    first = (await client.delete("/v1/sessions/again")).json()
    second = await client.delete("/v1/sessions/again")
    assert second.status_code == 200
    assert second.json()["generation"] == first["generation"]
    assert second.json()["released"] == []


async def test_a_preview_changes_nothing_and_drop_frees(client: httpx2.AsyncClient, worker: Worker) -> None:
    await turn(client, "drop")
    preview = (await client.delete("/v1/sessions/drop?mode=preview")).json()
    assert (await client.get("/v1/sessions/drop")).json()["state"] == "open"
    dropped = (await client.delete("/v1/sessions/drop?mode=drop")).json()
    assert dropped["mode"] == "drop"
    assert dropped["released"] == preview["released"] != []
    pools = await worker.thread.call(lambda engine: engine.cache.stats().pools)
    assert sum(use.cached for use in pools) < sum(part["slots"] for part in preview["released"])


async def test_a_fence_that_is_not_current_is_refused(client: httpx2.AsyncClient) -> None:
    generation = (await opened(client, session_id="fence"))["generation"]
    assert (await turn(client, "fence", generation=str(generation))).status_code == 200
    stale = await turn(client, "fence", generation=str(generation + 1))
    assert error(stale) == (409, "session_stale")
    assert stale.headers["x-agentcache-state"] == "stale"
    assert error(await client.delete(f"/v1/sessions/fence?generation={generation + 1}")) == (
        409,
        "session_stale",
    )
    assert (await client.get("/v1/sessions/fence")).json()["state"] == "open"
    assert (await client.delete(f"/v1/sessions/fence?generation={generation}")).status_code == 200


async def test_a_closed_session_is_served_unreferenced_and_told_so(
    client: httpx2.AsyncClient, worker: Worker
) -> None:
    await turn(client, "shut")
    await client.delete("/v1/sessions/shut")
    served = await turn(client, "shut")
    assert served.status_code == 200
    assert served.headers["x-agentcache-state"] == "closed"
    await worker.thread.call(no_references)
    for headers in ({"strict": "1"}, {"generation": "1"}):
        refused = await turn(client, "shut", **headers)
        assert error(refused)[0] == 409
    assert (await turn(client, "shut", strict="1")).headers["x-agentcache-state"] == "closed"


async def test_a_parent_takes_its_children(client: httpx2.AsyncClient, worker: Worker) -> None:
    await turn(client, "mother")
    await turn(client, "daughter", parent="mother")
    await opened(client, session_id="granddaughter", parent="daughter")
    closed = (await client.delete("/v1/sessions/mother?subtree=true")).json()
    assert [child["session_id"] for child in closed["children"]] == ["daughter", "granddaughter"]
    await worker.thread.call(no_references)


@pytest.mark.parametrize("parent", ["a\x01b", "x" * 300, "never-seen", "orphan"])
async def test_a_parent_that_cannot_be_one_is_ignored_and_reported(
    client: httpx2.AsyncClient, parent: str
) -> None:
    answer = await turn(client, "orphan", parent=parent)
    assert answer.status_code == 200
    assert answer.headers["x-agentcache-parent"] == "ignored"
    assert (await client.get("/v1/sessions/orphan")).json()["parent"] is None


async def test_a_body_may_name_the_session(client: httpx2.AsyncClient) -> None:
    body = {"prompt": "hello", "max_tokens": 1, "session_id": "named/in the body: é"}
    answer = await client.post("/v1/completions", json=body)
    assert answer.json()["agentcache"]["session"] == "named/in the body: é"
    same = {"x-agentcache-session": "one"}
    assert (
        await client.post("/v1/completions", json={**body, "session_id": "one"}, headers=same)
    ).status_code == 200
    assert (await client.get("/v1/sessions/named%2Fin%20the%20body%3A%20%C3%A9")).json()["state"] == "open"


async def test_a_turn_may_supersede_the_branch_before_it(client: httpx2.AsyncClient) -> None:
    await turn(client, "edited")
    body = {"messages": [{"role": "user", "content": "other " * 90}], "max_tokens": 2, "temperature": 0}
    headers = {"x-agentcache-session": "edited", "x-agentcache-superseded": "1"}
    assert (await client.post(CHAT, json=body, headers=headers)).status_code == 200
    assert (await client.get("/v1/sessions")).json()["open_references"] == 1


@pytest.mark.parametrize(("path", "name"), [("/v1/sessions", "ttl_s"), ("/open_session", "timeout")])
async def test_a_lease_is_clipped_and_the_answer_says_so(
    client: httpx2.AsyncClient, path: str, name: str
) -> None:
    said = [
        (await client.post(path, json={"session_id": session, name: asked_s})).headers[RETENTION]
        for session, asked_s in (("short", 7.5), ("long", 86400), ("long", 5))
    ]
    assert said == [
        f"{name}=accepted",
        f"{name}=clipped (3600 s of 86400 s)",
        f"{name}=ignored (it was open already, with 3600 s)",
    ]
    seen = [(await client.get(f"/v1/sessions/{session}")).json()["ttl_s"] for session in ("short", "long")]
    assert seen == [7.5, 3600]


async def test_sglang_clients_open_close_and_flush(client: httpx2.AsyncClient) -> None:
    named = await client.post(
        "/open_session", json={"capacity_of_str_len": 1000, "session_id": "sgl", "timeout": 60}
    )
    assert named.json() == "sgl"
    assert (await client.get("/v1/sessions/sgl")).json()["ttl_s"] == 60
    fresh = (await client.get("/open_session", params={"session_id": "sgl-by-query"})).json()
    assert fresh == "sgl-by-query"
    for session in ("sgl", fresh):
        closed = await client.post("/close_session", json={"session_id": session})
        assert (closed.status_code, closed.content) == (200, b"")
    assert (await client.post("/flush_cache")).status_code == 200


async def test_a_flush_waits_for_nobody(checkpoint: Any) -> None:
    async with own_worker(checkpoint) as worker:
        app = create_app(worker)
        call = Call(
            app,
            "/v1/completions",
            {"prompt": [5] * 8, "max_tokens": 3000, "ignore_eos": True, "stream": True},
        )
        await call.until(lambda sent: len(sent) > 2)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://worker") as client:
            assert error(await client.post("/flush_cache")) == (409, "in_use")
            await call.leave()
            assert (await client.post("/flush_cache")).status_code == 200


async def test_a_session_closed_while_its_turn_runs_gets_no_reference(checkpoint: Any) -> None:
    async with own_worker(checkpoint) as worker:
        headers = {"x-agentcache-session": "late"}
        body = {"prompt": [5] * 80, "max_tokens": 100, "ignore_eos": True, "stream": True}
        call = Call(create_app(worker), "/v1/completions", body, headers)
        await call.until(lambda sent: len(sent) > 2)
        closed = await worker.thread.call(lambda engine: engine.cache.close_session(SessionId("late")))
        await call.task
        assert closed.state == "closed"
        assert sse(call.content)[-1]["choices"][0]["finish_reason"] == "length"
        await worker.thread.call(no_references)


@pytest.mark.parametrize("tail", ["%0A", "%0Ab", "%09"])
async def test_an_id_with_a_control_character_in_the_path_is_no_other_session(
    client: httpx2.AsyncClient, tail: str
) -> None:
    await opened(client, session_id="kept")
    for method in ("GET", "DELETE"):
        answer = await client.request(method, f"/v1/sessions/kept{tail}")
        assert error(answer) == (400, "bad_session_id")
    assert (await client.get("/v1/sessions/kept")).json()["state"] == "open"
    await client.delete("/v1/sessions/kept")


async def test_a_session_that_idled_out_opens_its_next_generation(checkpoint: Any) -> None:
    """At a worker that no router has spoken to: of others it is the router that says so."""
    async with own_worker(checkpoint) as worker, client_of(worker) as client:
        first = await opened(client, session_id="idle", ttl_s=0.001)
        async with asyncio.timeout(PATIENCE_S):
            while (await client.get("/v1/sessions/idle")).json()["state"] != "expired":
                pass
        answer = await turn(client, "idle")
        assert answer.headers["x-agentcache-state"] == "expired"
        assert int(answer.headers["x-agentcache-generation"]) > first["generation"]


async def test_a_closed_session_reopens_when_its_close_is_old_enough(checkpoint: Any) -> None:
    async with own_worker(checkpoint, reopen_after_s=0) as worker, client_of(worker) as client:
        first = await turn(client, "back")
        await client.delete("/v1/sessions/back")
        again = await turn(client, "back")
        assert again.headers["x-agentcache-state"] == "open"
        assert again.headers["x-agentcache-generation"] > first.headers["x-agentcache-generation"]

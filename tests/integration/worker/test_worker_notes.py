"""What clients say of their sessions between requests, without a router: parents, leases, pauses, closes."""

from typing import Any

import httpx2
import pytest

pytestmark = pytest.mark.asyncio
BODY: dict[str, Any] = {"prompt": "one two three four five six seven eight " * 10, "max_tokens": 1}


async def opened(client: httpx2.AsyncClient, **body: Any) -> int:
    answer = await client.post("/v1/sessions", json=body)
    assert answer.status_code in (200, 201), answer.text
    generation: int = answer.json()["generation"]
    return generation


def error(answer: httpx2.Response) -> tuple[int, str, str | None]:
    said = answer.json()["error"]
    return answer.status_code, said["code"], said["param"]


async def test_a_parent_has_two_names_and_one_meaning(client: httpx2.AsyncClient) -> None:
    await opened(client, session_id="root")
    await opened(client, session_id="one", parent_session_id="root")
    await opened(client, session_id="two", parent="root", parent_session_id="root")
    for name in ("one", "two"):
        assert (await client.get(f"/v1/sessions/{name}")).json()["parent"] == "root"
    differ = {"session_id": "three", "parent": "root", "parent_session_id": "one"}
    assert error(await client.post("/v1/sessions", json=differ)) == (400, "bad_request", "parent_session_id")
    unknown = {"session_id": "three", "parent_session_id": "none"}
    assert error(await client.post("/v1/sessions", json=unknown))[:2] == (404, "session_unknown")


async def test_a_pause_is_shown_until_the_next_request(client: httpx2.AsyncClient) -> None:
    generation = await opened(client, session_id="a/b")
    path = "/v1/sessions/a%2Fb"
    paused = await client.post(f"{path}/pause", json={"tool": "search", "expected_s": 20})
    assert paused.json()["paused"] == {"tool": "search", "expected_s": 20.0}
    assert (await client.get(path)).json()["paused"] == paused.json()["paused"]
    touched = await client.post(f"{path}/touch", json={"generation": generation})
    assert touched.json()["paused"] == paused.json()["paused"]
    resumed = await client.post(f"{path}/resume")
    assert resumed.json()["paused"] is None
    assert (await client.post(f"{path}/pause")).json()["paused"] == {"tool": "tool", "expected_s": 0.0}
    await client.post("/v1/completions", json=BODY, headers={"x-agentcache-session": "a/b"})
    assert (await client.get(path)).json()["paused"] is None


async def test_what_a_router_has_learned_never_replaces_what_the_client_said(
    client: httpx2.AsyncClient,
) -> None:
    await opened(client, session_id="own word")
    path = "/v1/sessions/own word"

    async def pause(tool: str, learned: bool) -> Any:
        said = {"tool": tool, "expected_s": 20, "learned": learned}
        return (await client.post(f"{path}/pause", json=said)).json()["paused"]

    assert await pause("guessed", learned=True) == {"tool": "guessed", "expected_s": 20.0}
    assert (await pause("guessed anew", learned=True))["tool"] == "guessed anew"
    assert (await pause("said", learned=False))["tool"] == "said"
    assert (await pause("guessed", learned=True))["tool"] == "said"
    stale = await client.post(f"{path}/pause", json={"learned": True, "generation": 99})
    assert error(stale)[:2] == (409, "session_stale")
    assert error(await client.post(f"{path}/pause", json={"learned": 1})) == (400, "bad_request", "learned")


@pytest.mark.parametrize("call", ["touch", "pause", "resume"])
async def test_notes_for_what_is_not_so_are_refused(client: httpx2.AsyncClient, call: str) -> None:
    generation = await opened(client, session_id=f"closed {call}")
    path = f"/v1/sessions/closed {call}/{call}"
    stale = await client.post(path, json={"generation": generation + 1})
    assert error(stale)[:2] == (409, "session_stale")
    assert stale.headers["x-agentcache-generation"] == str(generation)
    both = await client.post(path, json={"generation": generation}, headers={"x-agentcache-generation": "1"})
    assert both.status_code == (200 if generation == 1 else 400)
    await client.delete(f"/v1/sessions/closed {call}")
    assert error(await client.post(path))[:2] == (409, "session_closed")
    assert error(await client.post(f"/v1/sessions/none/{call}"))[:2] == (404, "session_unknown")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tool": ""}, "tool"),
        ({"tool": "x" * 257}, "tool"),
        ({"expected_s": -1}, "expected_s"),
        ({"tool": 7}, "tool"),
    ],
)
async def test_a_pause_that_says_nothing_sensible_is_refused(
    client: httpx2.AsyncClient, body: dict[str, object], param: str
) -> None:
    await opened(client, session_id="strange")
    assert error(await client.post("/v1/sessions/strange/pause", json=body)) == (400, "bad_request", param)


async def test_a_session_is_closed_as_it_was_opened_to_be(client: httpx2.AsyncClient) -> None:
    await opened(client, session_id="dropped", on_close="drop")
    named = {"x-agentcache-session": "dropped"}
    await client.post("/v1/completions", json=BODY, headers=named)
    assert (await client.get("/v1/sessions/dropped")).json()["on_close"] == "drop"
    would = (await client.delete("/v1/sessions/dropped?mode=preview")).json()
    closed = (await client.delete("/v1/sessions/dropped")).json()
    assert (closed["mode"], closed["released"]) == ("drop", would["released"])
    again = await client.post("/v1/completions", json=BODY)
    assert again.headers["x-agentcache-cached-tokens"] == "0"
    assert int(again.headers["x-agentcache-prompt-tokens"]) == again.json()["usage"]["prompt_tokens"]


async def test_ways_to_close_that_do_not_exist_are_refused(client: httpx2.AsyncClient) -> None:
    for wrong in ("preview", "burn"):
        body = {"session_id": "s", "on_close": wrong}
        assert error(await client.post("/v1/sessions", json=body)) == (400, "bad_request", "on_close")

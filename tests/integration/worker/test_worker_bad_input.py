"""Bad input over HTTP: one clear error each, and nothing left behind (the `worker` fixture checks after each test)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agentcache.errors import Kind
from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from tests.serving import Call, client_of, no_references, nothing_left, own_worker

pytestmark = pytest.mark.asyncio
CHAT, TEXT, SESSIONS = "/v1/chat/completions", "/v1/completions", "/v1/sessions"
HI = [{"role": "user", "content": "hi"}]
SESSION = "x-agentcache-session"

Case = tuple[str, dict[str, Any], dict[str, str], int, str, str | None]
JSON_CASES: list[Case] = [
    # path, body, headers, status, code, param
    (CHAT, {"messages": []}, {}, 400, "empty_prompt", "messages"),
    (CHAT, {}, {}, 400, "empty_prompt", "messages"),
    (TEXT, {"prompt": ""}, {}, 400, "empty_prompt", "prompt"),
    (TEXT, {"prompt": []}, {}, 400, "empty_prompt", "prompt"),
    (TEXT, {"prompt": [5] * 4096}, {}, 400, "context_length_exceeded", None),
    (TEXT, {"prompt": [5] * 4000, "max_tokens": 100}, {}, 400, "context_length_exceeded", None),
    (TEXT, {"prompt": "hi", "max_tokens": 0}, {}, 400, "bad_request", "max_tokens"),
    (TEXT, {"prompt": "hi", "max_tokens": 10**9}, {}, 400, "context_length_exceeded", None),
    (TEXT, {"prompt": "hi", "max_tokens": 10**30}, {}, 400, "bad_request", "max_tokens"),
    (TEXT, {"prompt": "hi", "max_tokens": "many"}, {}, 400, "bad_request", "max_tokens"),
    (TEXT, {"prompt": [4096]}, {}, 400, "bad_request", "prompt"),
    (TEXT, {"prompt": [-1]}, {}, 400, "bad_request", "prompt"),
    (TEXT, {"prompt": {"a": 1}}, {}, 400, "bad_request", "prompt"),
    (TEXT, {"prompt": "hi", "temperature": "hot"}, {}, 400, "bad_request", "temperature"),
    (TEXT, {"prompt": "hi", "stop": [1]}, {}, 400, "bad_request", "stop"),
    (TEXT, {"prompt": "hi", "n": 2}, {}, 400, "bad_request", "n"),
    (CHAT, {"messages": HI, "tool_choice": "required"}, {}, 400, "bad_request", "tool_choice"),
    (CHAT, {"messages": HI, "logprobs": True}, {}, 400, "bad_request", "logprobs"),
    (CHAT, {"messages": "hi"}, {}, 400, "bad_request", "messages"),
    (CHAT, {"messages": [{"role": "x"}]}, {}, 400, "bad_request", "messages[0].role"),
    (
        CHAT,
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {},
        400,
        "bad_request",
        "messages[0].content[0].type",
    ),
    (CHAT, {"messages": HI, "session_id": ""}, {}, 400, "bad_session_id", "session_id"),
    (CHAT, {"messages": HI, "session_id": 3}, {}, 400, "bad_request", "session_id"),
    (CHAT, {"messages": HI, "session_id": "a\nb"}, {}, 400, "bad_session_id", "session_id"),
    (CHAT, {"messages": HI, "session_id": " a"}, {}, 400, "bad_session_id", "session_id"),
    (CHAT, {"messages": HI, "session_id": "x" * 257}, {}, 400, "bad_session_id", "session_id"),
    (CHAT, {"messages": HI, "session_id": "é" * 129}, {}, 400, "bad_session_id", "session_id"),
    (CHAT, {"messages": HI}, {SESSION: "x" * 257}, 400, "bad_session_id", SESSION),
    (CHAT, {"messages": HI}, {SESSION: "a\x07b"}, 400, "bad_session_id", SESSION),
    (CHAT, {"messages": HI, "session_id": "a"}, {SESSION: "b"}, 400, "bad_request", "session_id"),
    (CHAT, {"messages": HI}, {"x-agentcache-generation": "1"}, 400, "bad_request", "x-agentcache-generation"),
    (
        CHAT,
        {"messages": HI},
        {SESSION: "a", "x-agentcache-generation": "-1"},
        400,
        "bad_request",
        "x-agentcache-generation",
    ),
    (
        CHAT,
        {"messages": HI},
        {SESSION: "a", "x-agentcache-generation": "9" * 30},
        400,
        "bad_request",
        "x-agentcache-generation",
    ),
    (
        CHAT,
        {"messages": HI},
        {SESSION: "a", "x-agentcache-strict": "maybe"},
        400,
        "bad_request",
        "x-agentcache-strict",
    ),
    (CHAT, {"messages": HI}, {"x-agentcache-reuse": "no"}, 400, "bad_request", "x-agentcache-reuse"),
    (SESSIONS, {"session_id": "x" * 257}, {}, 400, "bad_session_id", "session_id"),
    (SESSIONS, {"session_id": ""}, {}, 400, "bad_session_id", "session_id"),
    (SESSIONS, {"session_id": ["a"]}, {}, 400, "bad_request", "session_id"),
    (SESSIONS, {"session_id": "child", "parent": "nobody"}, {}, 404, "session_unknown", "parent"),
    (SESSIONS, {"session_id": "child", "parent": "\x00"}, {}, 400, "bad_session_id", "parent"),
    (SESSIONS, {"session_id": "child", "ttl_s": 0}, {}, 400, "bad_request", "ttl_s"),
    (SESSIONS, {"session_id": "child", "ttl_s": "long"}, {}, 400, "bad_request", "ttl_s"),
    (SESSIONS, {"session_id": "child", "fence": 1}, {}, 400, "bad_request", "fence"),
    ("/close_session", {"session_id": "never-seen"}, {}, 404, "session_unknown", None),
    ("/close_session", {}, {}, 400, "bad_session_id", "session_id"),
    ("/open_session", {"session_id": "a\x00"}, {}, 400, "bad_session_id", "session_id"),
    ("/v1/embeddings", {}, {}, 404, "not_found", None),
    ("/v1/models", {}, {}, 405, "method_not_allowed", None),
]


@pytest.mark.parametrize("case", JSON_CASES, ids=lambda case: f"{case[0]}-{case[4]}-{case[5]}")
async def test_a_bad_request_gets_one_clear_error(
    client: httpx2.AsyncClient, worker: Worker, case: Case
) -> None:
    path, body, headers, status, code, param = case
    answer = await client.post(path, json=body, headers=headers)
    said = answer.json()["error"]
    assert (answer.status_code, said["code"], said["param"]) == (status, code, param), said
    assert len(said["message"]) > 10
    await worker.thread.call(no_references)


@pytest.mark.parametrize(
    "body", [b"{", b"[1]", b'{"messages": NaN}', b'{"a": "\xff"}', b'{"prompt": "\\ud800"}', b"[" * 50_000]
)
@pytest.mark.parametrize("path", [CHAT, TEXT, SESSIONS, "/open_session", "/close_session"])
async def test_a_malformed_body_is_refused(client: httpx2.AsyncClient, path: str, body: bytes) -> None:
    answer = await client.post(path, content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")


@pytest.mark.parametrize(
    ("method", "url", "status", "code"),
    [
        ("DELETE", "/v1/sessions/never-seen", 404, "session_unknown"),
        ("GET", "/v1/sessions/never-seen", 404, "session_unknown"),
        ("DELETE", "/v1/sessions/a%00b", 400, "bad_session_id"),
        ("DELETE", "/v1/sessions/" + "x" * 257, 400, "bad_session_id"),
        ("DELETE", "/v1/sessions/a?mode=burn", 400, "bad_request"),
        ("DELETE", "/v1/sessions/a?subtree=perhaps", 400, "bad_request"),
        ("DELETE", "/v1/sessions/a?generation=one", 400, "bad_request"),
        ("DELETE", "/v1/sessions/a?mode=drop&mode=release", 400, "bad_request"),
        ("DELETE", "/v1/sessions/a?mode=%ff", 400, "bad_request"),
        ("DELETE", "/v1/sessions", 405, "method_not_allowed"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("GET", "/v1/models/other", 404, "model_not_found"),
    ],
)
async def test_a_bad_call_is_refused(
    client: httpx2.AsyncClient, method: str, url: str, status: int, code: str
) -> None:
    answer = await client.request(method, url)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("path", [CHAT, TEXT, SESSIONS])
@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_the_limit_is_refused(checkpoint: Path, path: str, declared: bool) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b" " * 1000

    async with own_worker(checkpoint, body_limit_bytes=4000) as worker, client_of(worker) as client:
        answer = await client.post(path, content=b" " * 5000 if declared else parts())
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
        assert "4000 bytes; send less, or raise the worker's" in answer.json()["error"]["message"]


async def test_contradicting_headers_are_refused(client: httpx2.AsyncClient) -> None:
    twice = [(SESSION, "a"), (SESSION, "b")]
    answer = await client.post(CHAT, json={"messages": HI}, headers=twice)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, SESSION)
    same = await client.post(
        CHAT, json={"messages": HI, "max_tokens": 1}, headers=[(SESSION, "a"), (SESSION, "a")]
    )
    assert same.status_code == 200


async def test_a_session_header_that_is_not_utf8_is_refused(client: httpx2.AsyncClient) -> None:
    answer = await client.post(CHAT, json={"messages": HI}, headers=[(SESSION.encode(), b"\xff")])
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, SESSION)


async def test_a_pool_too_small_for_one_request_is_named(checkpoint: Path) -> None:
    async with own_worker(checkpoint, full_slots=8) as worker, client_of(worker) as client:
        answer = await client.post(TEXT, json={"prompt": [5] * 200, "max_tokens": 2}, headers={SESSION: "a"})
        said = answer.json()["error"]
        assert (answer.status_code, said["code"]) == (400, Kind.OVER_POOL)
        assert "FULL" in said["message"]
        await worker.thread.call(no_references)


async def test_a_full_queue_says_when_to_come_back(checkpoint: Path) -> None:
    async with own_worker(checkpoint, max_running=1, queue_limit=0) as worker, client_of(worker) as client:
        long = {"prompt": [5] * 8, "max_tokens": 3000, "ignore_eos": True, "stream": True}
        first = Call(create_app(worker), TEXT, long)
        await first.until(lambda sent: len(sent) > 1)
        answer = await client.post(TEXT, json={"prompt": "hi", "max_tokens": 1})
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "queue_full")
        assert int(answer.headers["retry-after"]) >= 1
        await first.leave()
        assert (await client.post(TEXT, json={"prompt": "hi", "max_tokens": 1})).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_its_turn(checkpoint: Path, stream: bool) -> None:
    async with own_worker(checkpoint) as worker:
        body = {"prompt": [5] * 80, "max_tokens": 3900, "ignore_eos": True, "stream": stream}
        call = Call(create_app(worker), TEXT, body, {SESSION: "gone"})
        await until_running(worker)
        await call.leave()
        await worker.thread.call(nothing_left)
        load = await worker.thread.call(lambda engine: engine.load())
        assert load.decode_tokens_total < 3900
        assert not any(message.get("more_body") is False for message in call.sent)


async def test_a_client_that_leaves_the_queue_takes_nothing_along(checkpoint: Path) -> None:
    async with own_worker(checkpoint, max_running=1) as worker:
        app = create_app(worker)
        body = {"prompt": [5] * 8, "max_tokens": 3900, "ignore_eos": True, "stream": True}
        running = Call(app, TEXT, body)
        await running.until(lambda sent: len(sent) > 1)
        waiting = Call(app, TEXT, body, {SESSION: "waits"})
        await until_waiting(worker)
        await waiting.leave()
        assert waiting.sent == []
        view = await worker.thread.call(lambda engine: engine.cache.session("waits"))
        assert view.queued == view.running == 0
        await running.leave()


async def test_a_draining_worker_takes_no_new_work(checkpoint: Path) -> None:
    async with own_worker(checkpoint) as worker, client_of(worker) as client:
        worker.draining = True
        for path, body in ((CHAT, {"messages": HI}), (TEXT, {"prompt": "hi"}), (SESSIONS, {})):
            answer = await client.post(path, json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 200


async def until_running(worker: Worker) -> None:
    """Wait until a request is being computed; each look is one step of the engine away from the last."""
    while not await worker.thread.call(lambda engine: engine.load().decode_tokens_total > 2):
        pass


async def until_waiting(worker: Worker) -> None:
    while not await worker.thread.call(lambda engine: engine.load().waiting):
        pass

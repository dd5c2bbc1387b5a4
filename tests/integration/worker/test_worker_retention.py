"""Requests that say how long their prompt is to be kept: three APIs and their own clients, whole and streamed."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest
import pytest_asyncio
from anthropic.types import CacheControlEphemeralParam, TextBlockParam
from openai.types.chat import ChatCompletionContentPartTextParam

from agentcache.wire import RETENTION
from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from tests.engines import GRID
from tests.integration.worker.test_worker_accounting import started
from tests.serving import client_of, nothing_left, own_worker

pytestmark = pytest.mark.asyncio
CHAT, TEXT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
LONG = "The parser gets bytes where it wants text, and the tests say so. " * 12


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[Worker]:
    """One that keeps account, of its own: sessions that others have closed stay closed for a while."""
    one = started(full_slots=2048, swa_slots=1024, mamba_slots=64)
    try:
        yield one
        await one.thread.call(nothing_left)
    finally:
        await one.thread.stop(0)


@pytest_asyncio.fixture
async def http(worker: Worker) -> AsyncIterator[httpx2.AsyncClient]:
    """For the clients of others, which have paths of their own."""
    transport = httpx2.ASGITransport(create_app(worker))
    async with httpx2.AsyncClient(transport=transport, base_url="http://worker") as client:
        yield client


@pytest.fixture
def ours(http: httpx2.AsyncClient) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="none", base_url="http://worker/v1", http_client=http)


@pytest.fixture
def theirs(http: httpx2.AsyncClient) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(api_key="none", base_url="http://worker", http_client=http)


def body(route: str, **more: Any) -> dict[str, Any]:
    """A request of a route, a hundred and more tokens long."""
    asked: dict[str, dict[str, Any]] = {
        CHAT: {"messages": [{"role": "user", "content": LONG}], "max_tokens": 3},
        TEXT: {"prompt": LONG, "max_tokens": 3},
        MESSAGES: {"messages": [{"role": "user", "content": LONG}], "max_tokens": 3},
        RESPONSES: {"input": LONG, "max_output_tokens": 3},
    }
    return {**asked[route], **more}


async def post(client: httpx2.AsyncClient, route: str, session: str = "s", **more: Any) -> httpx2.Response:
    headers = {"x-agentcache-session": session} if session else {}
    return await client.post(route, json=body(route, **more), headers=headers)


async def lease_s(client: httpx2.AsyncClient, session: str = "s") -> float:
    return float((await client.get(f"/v1/sessions/{session}")).json()["ttl_s"])


# leases


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("route", [CHAT, TEXT, MESSAGES, RESPONSES])
async def test_a_lease_is_the_sessions_and_one_too_long_is_clipped(
    client: httpx2.AsyncClient, route: str, streamed: bool
) -> None:
    short = await post(client, route, prompt_cache_options={"ttl": "5m"}, stream=streamed)
    assert short.headers[RETENTION] == "prompt_cache_options.ttl=accepted"
    assert await lease_s(client) == 300
    long = await post(client, route, prompt_cache_retention="24h", stream=streamed)
    assert long.headers[RETENTION] == "prompt_cache_retention=clipped (3600 s of 86400 s)"
    assert await lease_s(client) == 3600
    assert '"retention":{"prompt_cache_retention":{"outcome":"clipped"' in long.text
    silent = await post(client, route, stream=streamed)
    assert RETENTION not in silent.headers
    assert '"retention"' not in silent.text
    assert await lease_s(client) == 3600
    await post(client, route, prompt_cache_retention="in_memory")
    assert await lease_s(client) == 1800


@pytest.mark.parametrize("wish", ["5m", "in_memory", "24h"])
async def test_no_wish_makes_the_lease_shorter_that_a_session_was_opened_with(
    client: httpx2.AsyncClient, wish: str
) -> None:
    await client.post("/v1/sessions", json={"session_id": "s", "ttl_s": 3600})
    answer = await post(client, CHAT, prompt_cache_retention=wish)
    said = "clipped (3600 s of 86400 s)" if wish == "24h" else "accepted"
    assert answer.headers[RETENTION] == f"prompt_cache_retention={said}"
    assert await lease_s(client) == 3600


async def test_without_a_session_it_is_ignored_and_why_is_said(client: httpx2.AsyncClient) -> None:
    answer = await post(client, CHAT, session="", prompt_cache_retention="24h")
    assert answer.headers[RETENTION] == "prompt_cache_retention=ignored (no session)"
    said = answer.json()["agentcache"]["retention"]
    assert said == {"prompt_cache_retention": {"outcome": "ignored", "said": "no session"}}


async def test_a_closed_session_gets_no_lease(client: httpx2.AsyncClient) -> None:
    await post(client, CHAT)
    await client.delete("/v1/sessions/s")
    answer = await post(client, CHAT, prompt_cache_retention="5m")
    assert answer.headers[RETENTION] == "prompt_cache_retention=ignored (the session is closed)"


async def test_the_longest_lease_is_a_setting(checkpoint: Path) -> None:
    async with own_worker(checkpoint, ttl_s=10, ttl_max_s=20) as worker, client_of(worker) as client:
        answer = await post(client, CHAT, prompt_cache_options={"ttl": "30m"})
        assert answer.headers[RETENTION] == "prompt_cache_options.ttl=clipped (20 s of 1800 s)"
        assert await lease_s(client) == 20


# marks


@pytest.mark.parametrize("streamed", [False, True])
async def test_anthropics_client_marks_system_tools_and_messages(
    theirs: anthropic.AsyncAnthropic, client: httpx2.AsyncClient, streamed: bool
) -> None:
    hour: CacheControlEphemeralParam = {"type": "ephemeral", "ttl": "1h"}
    system: list[TextBlockParam] = [{"type": "text", "text": LONG, "cache_control": hour}]
    asked: dict[str, Any] = {
        "model": "m",
        "max_tokens": 3,
        "system": system,
        "tools": [{"name": "t", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": LONG + "Why?", "cache_control": hour}]}
        ],
        "extra_headers": {"x-agentcache-session": "s"},
    }
    if streamed:
        async with theirs.messages.stream(**asked) as stream:
            heads = stream.response.headers
            usage = (await stream.get_final_message()).usage
    else:
        raw = await theirs.messages.with_raw_response.create(**asked)
        heads, usage = raw.headers, (await raw.parse()).usage
    assert heads[RETENTION] == "cache_control.ttl=accepted; cache_control=accepted (3 at a boundary)"
    assert await lease_s(client) == 3600
    assert usage.cache_read_input_tokens == 0
    assert usage.cache_creation_input_tokens
    assert usage.cache_creation_input_tokens % GRID == 0
    assert 0 < usage.input_tokens < GRID


async def test_a_mark_is_a_boundary_where_another_session_forks_off(client: httpx2.AsyncClient) -> None:
    """Without one the state after the system message would be kept by chance only."""
    found = {}
    for salt, mark in (("plain", {}), ("marked", {"cache_control": {"type": "ephemeral"}})):
        system = [{"type": "text", "text": "You mend parsers. " * 16, **mark}]
        for question in ("One. " + LONG, "Two. " + LONG):
            asked = {"system": system, "messages": [{"role": "user", "content": question}]}
            answer = await post(client, MESSAGES, session="", cache_salt=salt, **asked)
        found[salt] = answer.json()["usage"]["cache_read_input_tokens"]
    assert found["marked"] > found["plain"]


async def test_a_mark_in_what_was_cached_without_it_is_not_said_to_be_kept(
    client: httpx2.AsyncClient,
) -> None:
    """All of that is cached, and nobody can go on from there."""
    said = {}
    for name, mark in (("plain", {}), ("marked", {"cache_control": {"type": "ephemeral"}})):
        system = [{"type": "text", "text": "You mend parsers. " * 16, **mark}]
        asked = {"system": system, "messages": [{"role": "user", "content": "One. " + LONG}]}
        said[name] = await post(client, MESSAGES, session=name, **asked)
    assert said["marked"].json()["usage"]["cache_read_input_tokens"] > GRID
    none_there = f"cache_control=ignored (no boundary within {GRID} tokens before it)"
    assert said["marked"].headers[RETENTION] == none_there


async def test_openais_client_marks_a_part(ours: openai.AsyncOpenAI) -> None:
    part: ChatCompletionContentPartTextParam = {
        "type": "text",
        "text": LONG,
        "prompt_cache_breakpoint": {"mode": "explicit"},
    }
    raw = await ours.chat.completions.with_raw_response.create(
        model="m",
        messages=[{"role": "user", "content": [part]}],
        max_tokens=3,
        prompt_cache_options={"mode": "explicit", "ttl": "30m"},
        extra_headers={"x-agentcache-session": "s"},
    )
    assert raw.headers[RETENTION] == (
        "prompt_cache_options.ttl=accepted; "
        "prompt_cache_options.mode=ignored (what a turn computes is kept, marked or not); "
        "prompt_cache_breakpoint=accepted (1 at a boundary)"
    )
    usage = raw.parse().usage
    assert usage
    assert usage.prompt_tokens_details
    assert usage.prompt_tokens_details.cache_write_tokens == usage.prompt_tokens // GRID * GRID


async def test_marks_in_short_prompts_and_more_than_four_are_not_all_kept(client: httpx2.AsyncClient) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    short = await post(client, CHAT, messages=[{"role": "user", "content": "hi", **mark}])
    assert short.headers[RETENTION] == "cache_control=ignored (no boundary within 16 tokens before it)"
    said = [{"role": role, "content": LONG, **mark} for role in ("user", "assistant") * 3]
    many = await post(client, CHAT, messages=said)
    assert many.headers[RETENTION] == "cache_control=clipped (4 of 6 at a boundary)"
    off = await post(client, CHAT, messages=said, agentcache={"reuse": False})
    assert off.headers[RETENTION].startswith("cache_control=ignored")


async def test_a_mark_changes_nothing_that_the_model_reads(client: httpx2.AsyncClient) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    tool = {"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}}
    marked = {"type": "function", "function": {**tool["function"], **mark}, **mark}  # type: ignore[dict-item]
    plain = await post(client, "/v1/chat/completions", tools=[tool])
    again = await post(
        client,
        "/v1/chat/completions",
        tools=[marked],
        messages=[{"role": "user", "content": [{"type": "text", "text": LONG, **mark}], **mark}],
    )
    counts = [answer.json()["usage"]["prompt_tokens"] for answer in (plain, again)]
    assert counts[0] == counts[1]
    assert again.json()["agentcache"]["cached_tokens"] == counts[0] // GRID * GRID


# usage


Used = tuple[int, int, int]
"""Tokens of the prompt, read from the cache, and written to it."""


def chat_used(usage: dict[str, Any]) -> Used:
    details = usage["prompt_tokens_details"]
    return usage["prompt_tokens"], details["cached_tokens"], details["cache_write_tokens"]


def messages_used(usage: dict[str, Any]) -> Used:
    read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    return usage["input_tokens"] + read + written, read, written


def responses_used(usage: dict[str, Any]) -> Used:
    details = usage["input_tokens_details"]
    return usage["input_tokens"], details["cached_tokens"], details["cache_write_tokens"]


@pytest.mark.parametrize(
    ("route", "used"),
    [(CHAT, chat_used), (TEXT, chat_used), (MESSAGES, messages_used), (RESPONSES, responses_used)],
)
async def test_usage_says_what_was_read_and_what_was_written(
    client: httpx2.AsyncClient, route: str, used: Callable[[dict[str, Any]], Used]
) -> None:
    prompt, read, written = used((await post(client, route)).json()["usage"])
    assert (read, written) == (0, prompt // GRID * GRID)
    again = used((await post(client, route)).json()["usage"])
    assert again == (prompt, written, 0)
    off = used((await post(client, route, agentcache={"reuse": False})).json()["usage"])
    assert off == (prompt, 0, 0)
    stopped = await post(client, route, agentcache={"reuse": True}, cache_salt="other")
    assert used(stopped.json()["usage"]) == (prompt, 0, written)


async def test_a_turn_that_a_stop_string_cuts_has_written_its_prompt(client: httpx2.AsyncClient) -> None:
    asked: dict[str, Any] = {"agentcache": {"output": "one two three"}, "stop": ["two"], "max_tokens": 50}
    answer = (await post(client, CHAT, **asked)).json()
    assert answer["choices"][0]["message"]["content"] == "one "
    prompt, _, written = chat_used(answer["usage"])
    assert written == prompt // GRID * GRID


async def test_streams_say_it_as_the_whole_does(
    ours: openai.AsyncOpenAI, theirs: anthropic.AsyncAnthropic
) -> None:
    chat = await ours.chat.completions.create(
        **body(CHAT, model="m"), stream=True, stream_options={"include_usage": True}
    )
    (usage,) = [chunk.usage async for chunk in chat if chunk.usage]
    assert chat_used(usage.model_dump())[1:] == (0, usage.prompt_tokens // GRID * GRID)
    async with theirs.messages.stream(**body(MESSAGES, model="m"), extra_body={"cache_salt": "b"}) as said:
        message = await said.get_final_message()
    assert messages_used(message.usage.model_dump())[1:] == (0, usage.prompt_tokens // GRID * GRID)
    events = await ours.responses.create(
        **body(RESPONSES, model="m"), stream=True, extra_body={"cache_salt": "c"}
    )
    done: Any = [event async for event in events][-1]
    assert responses_used(done.response.usage.model_dump())[1:] == (0, usage.prompt_tokens // GRID * GRID)


# hints, and bad input


def hint(action_type: str, **payload: Any) -> dict[str, Any]:
    actions = [{"action_id": "1", "action_type": action_type, "action_version": "1.0", "payload": payload}]
    return {"protocol_version": "0.1", "message_id": "m", "actions": actions}


@pytest.mark.parametrize("route", [CHAT, MESSAGES, RESPONSES])
async def test_hints_where_there_is_no_router_are_anybodys(client: httpx2.AsyncClient, route: str) -> None:
    answer = await post(client, route, kv_hints=hint("Retain", ttl_s=77))
    assert answer.headers[RETENTION] == "kv_hints.actions[0]=accepted"
    assert await lease_s(client) == 77
    pinned = await post(client, route, kv_hints=hint("Pin"))
    assert pinned.headers[RETENTION] == "kv_hints.actions[0]=ignored (pin: nothing is ever pinned)"


async def test_prefetch_is_a_word_about_the_sessions_return(
    client: httpx2.AsyncClient, worker: Worker
) -> None:
    answer = await post(client, CHAT, kv_hints=hint("Prefetch", expected_s=40))
    assert answer.headers[RETENTION] == "kv_hints.actions[0]=accepted (expected back in 40 s)"
    wait = await worker.thread.call(lambda engine: engine.cache._sessions.wait("s"))  # type: ignore[arg-type]
    assert wait.hint_ns


@pytest.mark.parametrize(
    ("route", "asked", "named"),
    [
        (CHAT, {"prompt_cache_retention": "a while"}, "prompt_cache_retention"),
        (TEXT, {"prompt_cache_retention": -1}, "prompt_cache_retention"),
        (RESPONSES, {"prompt_cache_options": {"ttl": "9999999h"}}, "prompt_cache_options.ttl"),
        (
            MESSAGES,
            {"system": [{"type": "text", "text": "x", "cache_control": {"type": "eternal"}}]},
            "system[0]",
        ),
        (MESSAGES, {"cache_control": {"type": "ephemeral", "ttl": "1 year"}}, "cache_control.ttl"),
        (CHAT, {"kv_hints": {"actions": [{}]}}, "kv_hints.actions[0].action_type"),
    ],
)
async def test_absurd_wishes_get_one_clear_answer(
    client: httpx2.AsyncClient, route: str, asked: dict[str, Any], named: str
) -> None:
    answer = await post(client, route, **asked)
    assert answer.status_code == 400, answer.text
    assert named in answer.json()["error"]["message"]
    assert (await client.get("/v1/sessions")).json()["data"] == []

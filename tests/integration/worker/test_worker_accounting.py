"""A worker that keeps account, seen by clients: real prompts and sessions, answers as asked for."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest
import pytest_asyncio

from agentcache.config import Settings
from agentcache.engine.build import build_engine, load_tokenizer_for
from agentcache.engine.engine import Engine
from agentcache.engine.thread import EngineThread
from agentcache.types import SessionId, WaitState
from agentcache.waits import WaitKind
from agentcache.worker.app import create_app
from agentcache.worker.banner import banner
from agentcache.worker.context import Worker
from agentcache.worker.serve import make_worker
from tests.accounting import SIZES
from tests.serving import Call, client_of, no_references, nothing_left

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MESSAGES: Any = [{"role": "user", "content": "Count the words of this sentence, and then of the next. " * 6}]
TOOLS: Any = [
    {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}
]
CALLED = 'I look.\n<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'


def started(**changes: object) -> Worker:
    """A worker whose engine thread runs. Caller: awaits `worker.thread.stop(0)` in the end."""
    settings = Settings.model_validate({"engine": "accounting", **SIZES, **changes})
    thread = EngineThread(lambda: build_engine(settings))
    return make_worker(thread, thread.start().info, load_tokenizer_for(settings), settings)


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[Worker]:
    one = started()
    try:
        yield one
        await one.thread.call(nothing_left)
    finally:
        await one.thread.stop(0)


@pytest_asyncio.fixture
async def client(worker: Worker) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(worker) as http:
        yield http


@pytest_asyncio.fixture
async def agent(worker: Worker) -> AsyncIterator[openai.AsyncOpenAI]:
    transport = httpx2.ASGITransport(create_app(worker))
    async with httpx2.AsyncClient(transport=transport, base_url="http://worker/v1") as http:
        yield openai.AsyncOpenAI(api_key="none", base_url="http://worker/v1", http_client=http)


async def asked(agent: openai.AsyncOpenAI, session: str = "", **more: Any) -> Any:
    """One chat turn; `output` and `output_tokens` go into the body's `agentcache`."""
    told = {name: more.pop(name) for name in ("output", "output_tokens") if name in more}
    headers = {"x-agentcache-session": session} if session else {}
    given: Any = {"model": "any", "messages": MESSAGES, **more}
    return await agent.chat.completions.create(
        **given, extra_body={"agentcache": told}, extra_headers=headers
    )


@pytest.mark.asyncio
async def test_the_answer_is_the_one_that_was_asked_for(agent: openai.AsyncOpenAI, worker: Worker) -> None:
    said = "Naïve words — “quoted” 🙂, to the end. " * 20
    answer = await asked(agent, output=said)
    assert answer.choices[0].message.content == said
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == len(worker.tokenizer.encode(said))
    chunks = [chunk async for chunk in await asked(agent, output=said, stream=True)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == said
    tokens = await asked(agent, output_tokens=list(worker.tokenizer.encode("by ids")))
    assert tokens.choices[0].message.content == "by ids"


@pytest.mark.asyncio
async def test_max_tokens_and_stop_strings_cut_it(agent: openai.AsyncOpenAI) -> None:
    cut = await asked(agent, output="one two three four five six", max_tokens=2)
    assert (cut.choices[0].finish_reason, cut.usage.completion_tokens) == ("length", 2)
    stopped = await asked(agent, output="one two three four five six", stop="three")
    assert (stopped.choices[0].finish_reason, stopped.choices[0].message.content) == ("stop", "one two ")


@pytest.mark.asyncio
async def test_calls_in_it_are_calls(agent: openai.AsyncOpenAI) -> None:
    answer = await asked(agent, output=CALLED, tools=TOOLS)
    [call] = answer.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("bash", '{"command": "ls"}')
    assert answer.choices[0].finish_reason == "tool_calls"


@pytest.mark.asyncio
async def test_without_one_it_is_made_up_and_readable(agent: openai.AsyncOpenAI) -> None:
    first, again = [await asked(agent, max_tokens=30) for _ in range(2)]
    text = first.choices[0].message.content
    assert text == again.choices[0].message.content
    assert text.isascii()
    assert (first.choices[0].finish_reason, first.usage.completion_tokens) == ("length", 30)


@pytest.mark.asyncio
async def test_sessions_are_kept_and_closed_with_their_bytes(
    agent: openai.AsyncOpenAI, client: httpx2.AsyncClient, worker: Worker
) -> None:
    await asked(agent, session="s", max_tokens=40)
    warm = await asked(agent, session="s", max_tokens=4)
    assert warm.usage.prompt_tokens_details.cached_tokens > 32
    use = (await client.get("/v1/cache")).json()["tiers"]["device"]["FULL"]
    assert use["slot_bytes"] > 0
    closed = (await client.delete("/v1/sessions/s")).json()
    assert sum(part["bytes"] for part in closed["released"]) > 0
    await worker.thread.call(no_references)


@pytest.mark.asyncio
async def test_it_says_what_it_is(client: httpx2.AsyncClient, worker: Worker) -> None:
    [model] = (await client.get("/v1/models")).json()["data"]
    assert (model["id"], model["agentcache"]["engine"]) == ("tiny-all", "accounting")
    text = banner(worker.info, "http://somewhere", "device only")
    assert "answers are made up" in text
    assert "0.0M parameters" not in text


@pytest.mark.parametrize(
    ("extension", "param"),
    [
        ({"logits_digest": True}, "agentcache.logits_digest"),
        ({"output": "a", "output_tokens": [5]}, "agentcache.output_tokens"),
        ({"output": 5}, "agentcache.output"),
        ({"output_tokens": "a"}, "agentcache.output_tokens"),
        ({"output_tokens": [True]}, "agentcache.output_tokens"),
        ({"output_tokens": [-1]}, "agentcache.output_tokens"),
    ],
)
@pytest.mark.asyncio
async def test_what_cannot_be_said_is_refused_by_name(
    client: httpx2.AsyncClient, extension: dict[str, Any], param: str
) -> None:
    answer = await client.post(CHAT, json={"messages": MESSAGES, "agentcache": extension})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.asyncio
async def test_no_store_can_be_attached(client: httpx2.AsyncClient) -> None:
    answer = await client.put("/v1/cache/external", json={"backend": "memory", "mib": 1})
    assert answer.status_code == 400
    assert "no bytes to store" in answer.json()["error"]["message"]


async def begun(worker: Worker) -> Call:
    """A stream whose first token takes a quarter of an hour; its request runs."""
    call = Call(create_app(worker), TEXT, {"prompt": "hello", "stream": True})
    while not (await worker.thread.call(lambda engine: engine.load())).running:
        assert not call.task.done()
    return call


@pytest.mark.asyncio
async def test_a_client_that_leaves_a_slow_answer_is_not_waited_for() -> None:
    worker = started(accounting_decode_tokens_per_s=0.001)
    try:
        call = await begun(worker)
        await call.leave()
        await worker.thread.call(nothing_left)
    finally:
        await worker.thread.stop(0)


@pytest.mark.asyncio
async def test_a_slow_worker_that_is_stopped_ends_its_streams() -> None:
    worker = started(accounting_decode_tokens_per_s=0.001)
    call = await begun(worker)
    await worker.thread.stop(0)
    await call.task
    assert "shutting_down" in call.content


@pytest.mark.parametrize("field", ["output", "output_tokens"])
@pytest.mark.asyncio
async def test_a_worker_that_computes_takes_no_output(shared_worker: Worker, field: str) -> None:
    extension = {"output": "words"} if field == "output" else {"output_tokens": [5]}
    async with client_of(shared_worker) as client:
        answer = await client.post(TEXT, json={"prompt": "hello", "agentcache": extension})
        [model] = (await client.get("/v1/models")).json()["data"]
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, f"agentcache.{field}")
    assert "--engine accounting" in answer.json()["error"]["message"]
    assert model["agentcache"]["engine"] == "transformers"


@pytest.mark.asyncio
async def test_the_other_apis_are_told_as_well(client: httpx2.AsyncClient) -> None:
    told = {"model": "any", "agentcache": {"output": "as told"}}
    claude = {**told, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    said = (await client.post("/v1/messages", json=claude)).json()["content"][0]["text"]
    answer = (await client.post("/v1/responses", json={**told, "input": "hi"})).json()
    assert said == answer["output"][0]["content"][0]["text"] == "as told"


# whom a session waits for


async def waits(worker: Worker, session: str) -> tuple[WaitKind, float | None]:
    """Whom an idle session waits for, and for how many seconds in all, if somebody said so."""

    def look(engine: Engine) -> tuple[WaitKind, float | None]:
        registry = engine.cache._sessions
        wait = registry.wait(SessionId(session))
        assert wait.state is WaitState.IDLE
        kind = registry._records.find(SessionId(session)).away.kind
        return kind, None if wait.hint_ns is None else wait.hint_ns / 1e9

    return await worker.thread.call(look)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("ends", "kind"),
    [
        ({"output": CALLED, "tools": TOOLS}, WaitKind.TOOL),
        ({"output": CALLED, "tools": TOOLS, "parallel_tool_calls": False}, WaitKind.TOOL),
        ({"output": CALLED, "tools": TOOLS, "stream": True}, WaitKind.TOOL),
        ({"output": "Done."}, WaitKind.HUMAN),
        ({"output": "Done. And more", "stop": "And"}, WaitKind.HUMAN),
        ({"output": CALLED, "tools": TOOLS, "max_tokens": 3}, WaitKind.UNKNOWN),
    ],
    ids=["calls", "one call", "streamed calls", "text", "a stop string", "cut"],
)
async def test_the_end_of_a_turn_says_whom_its_session_waits_for(
    agent: openai.AsyncOpenAI, worker: Worker, ends: dict[str, Any], kind: WaitKind
) -> None:
    answer = await asked(agent, session="s", **ends)
    if "stream" in ends:
        assert [chunk async for chunk in answer]
    assert await waits(worker, "s") == (kind, None)


@pytest.mark.asyncio
async def test_clients_say_when_they_will_be_back(client: httpx2.AsyncClient, worker: Worker) -> None:
    """With the request, from its turn's end; by a pause, from then."""
    body = {"messages": MESSAGES, "max_tokens": 1, "session_id": "s"}
    answer = await client.post(CHAT, json=body, headers={"x-agentcache-expected-s": "12.5"})
    assert answer.status_code == 200
    assert await waits(worker, "s") == (WaitKind.UNKNOWN, 12.5)
    await client.post("/v1/sessions/s/pause", json={"tool": "bash", "expected_s": 40})
    kind, hint = await waits(worker, "s")
    assert (kind, hint is not None and 40 <= hint < 56) == (WaitKind.TOOL, True)
    await client.post("/v1/sessions/s/resume")
    assert await waits(worker, "s") == (WaitKind.TOOL, None)
    bad = await client.post(CHAT, json=body, headers={"x-agentcache-expected-s": "soon"})
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "x-agentcache-expected-s")

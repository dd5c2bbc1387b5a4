"""Tools in, tool calls out: a model that was taught one answer gives it over HTTP."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from tests.serving import client_of, own_worker, sse
from tests.teaching import save_taught_checkpoint

pytestmark = pytest.mark.asyncio
CHAT = "/v1/chat/completions"
TOOLS = [
    {
        "type": "function",
        "function": {"name": "bash", "description": "Run a command.", "parameters": {"type": "object"}},
    }
]
MESSAGES = [{"role": "user", "content": "List the files."}]
ARGUMENTS = '{"command": "ls -la", "note": "é"}'
CALL = '<tool_call>\n{"name": "bash", "arguments": ' + ARGUMENTS + "}\n</tool_call>"
ANSWER = f"I look first.\n{CALL}\n{CALL}"


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_taught_checkpoint(tmp_path_factory.mktemp("taught"), MESSAGES, TOOLS, ANSWER)


@pytest_asyncio.fixture
async def client(taught: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with own_worker(taught) as worker, client_of(worker) as open_client:
        yield open_client


def ask(**more: Any) -> dict[str, Any]:
    return {"messages": MESSAGES, "tools": TOOLS, "temperature": 0, "max_tokens": 120, **more}


async def test_calls_are_parsed_and_end_the_turn(client: httpx2.AsyncClient) -> None:
    choice = (await client.post(CHAT, json=ask())).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "I look first."
    calls = choice["message"]["tool_calls"]
    assert [call["function"] for call in calls] == [{"name": "bash", "arguments": ARGUMENTS}] * 2
    assert len({call["id"] for call in calls}) == 2
    assert all(call["type"] == "function" for call in calls)


async def test_a_stream_says_the_text_first_and_then_the_calls(client: httpx2.AsyncClient) -> None:
    chunks = sse((await client.post(CHAT, json=ask(stream=True))).text)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content", "") for delta in deltas) == "I look first."
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [call["index"] for call in calls] == [0, 1]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [json.loads(ARGUMENTS)] * 2
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_one_call_is_enough_without_parallel_calls(client: httpx2.AsyncClient) -> None:
    for stream in (False, True):
        answer = await client.post(CHAT, json=ask(parallel_tool_calls=False, stream=stream))
        chunk = sse(answer.text)[-1] if stream else answer.json()
        assert chunk["choices"][0]["finish_reason"] == "tool_calls"
        assert answer.text.count('"name":"bash"') == 1


async def test_without_leave_to_call_it_is_text(client: httpx2.AsyncClient) -> None:
    choice = (await client.post(CHAT, json=ask(tool_choice="none"))).json()["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": ANSWER}
    assert choice["finish_reason"] == "stop"


async def test_a_call_that_is_cut_off_stays_text(client: httpx2.AsyncClient) -> None:
    choice = (await client.post(CHAT, json=ask(max_tokens=12))).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert "tool_calls" not in choice["message"]
    assert ANSWER.startswith(choice["message"]["content"])
    assert "<tool_call>" in choice["message"]["content"]


async def test_a_conversation_with_results_goes_on_from_the_cache(client: httpx2.AsyncClient) -> None:
    headers = {"x-agentcache-session": "tools"}
    first = (await client.post(CHAT, json=ask(), headers=headers)).json()
    message = first["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "README.md"} for call in message["tool_calls"]
    ]
    follow_up = [*MESSAGES, message, *results]
    second = (await client.post(CHAT, json=ask(messages=follow_up, max_tokens=2), headers=headers)).json()
    assert second["agentcache"]["cached_tokens"] >= first["usage"]["prompt_tokens"] // 32 * 32

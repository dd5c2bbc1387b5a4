"""Anthropic's Messages API, spoken by Anthropic's own client to a model that was taught one answer."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
import pytest_asyncio
from anthropic.types import TextBlock, ToolUseBlock

from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from tests.integration.worker.test_worker_tools import ANSWER, ARGUMENTS, MESSAGES, TOOLS
from tests.serving import own_worker
from tests.teaching import save_taught_checkpoint

pytestmark = pytest.mark.asyncio
SCHEMA: dict[str, Any] = {"type": "object"}
TOOL: Any = {"name": "bash", "description": "Run a command.", "input_schema": SCHEMA}
ASKED: Any = {
    "model": "taught",
    "max_tokens": 120,
    "extra_body": {"temperature": 0},
    "messages": MESSAGES,
    "tools": [TOOL],
}


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_taught_checkpoint(tmp_path_factory.mktemp("taught"), MESSAGES, TOOLS, ANSWER)


@pytest_asyncio.fixture
async def worker(taught: Path) -> AsyncIterator[Worker]:
    async with own_worker(taught) as one:
        yield one


@pytest_asyncio.fixture
async def client(worker: Worker) -> AsyncIterator[anthropic.AsyncAnthropic]:
    transport = httpx2.ASGITransport(create_app(worker))
    async with httpx2.AsyncClient(transport=transport, base_url="http://worker") as http:
        yield anthropic.AsyncAnthropic(api_key="none", base_url="http://worker", http_client=http)


async def test_text_and_calls_are_blocks_and_end_the_turn(client: anthropic.AsyncAnthropic) -> None:
    message = await client.messages.create(**ASKED)
    text, first, second = message.content
    assert isinstance(text, TextBlock)
    assert text.text == "I look first."
    for call in (first, second):
        assert isinstance(call, ToolUseBlock)
        assert (call.name, call.input) == ("bash", json.loads(ARGUMENTS))
    assert message.stop_reason == "tool_use"
    assert message.usage.cache_read_input_tokens == 0


async def test_a_stream_says_the_same_as_the_whole(client: anthropic.AsyncAnthropic) -> None:
    whole = await client.messages.create(**ASKED)
    async with client.messages.stream(**ASKED) as stream:
        kinds = [event.type async for event in stream]
        said = await stream.get_final_message()
    assert [block.model_dump(exclude={"id"}) for block in said.content] == [
        block.model_dump(exclude={"id"}) for block in whole.content
    ]
    assert (said.stop_reason, said.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"


async def test_no_tokens_asked_for_is_a_prompt_read_and_nothing_said(
    client: anthropic.AsyncAnthropic,
) -> None:
    asked = {**ASKED, "max_tokens": 0}
    message = await client.messages.create(**asked)
    assert (message.content, message.stop_reason) == ([], "max_tokens")
    assert (message.usage.output_tokens, message.usage.cache_read_input_tokens) == (0, 0)
    async with client.messages.stream(**asked) as stream:
        kinds = [event.type async for event in stream]
        again = await stream.get_final_message()
    assert kinds == ["message_start", "message_delta", "message_stop"]
    assert (again.content, again.usage.output_tokens) == ([], 0)
    assert again.usage.cache_read_input_tokens  # what it was asked for


async def test_the_next_turn_reads_from_the_cache_and_counts_add_up(client: anthropic.AsyncAnthropic) -> None:
    headers = {"x-agentcache-session": "claude"}
    first = await client.messages.create(**ASKED, extra_headers=headers)
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "a.txt"}]}
        for block in first.content
        if isinstance(block, ToolUseBlock)
    ]
    history = [
        *MESSAGES,
        {"role": "assistant", "content": [block.model_dump() for block in first.content]},
        {"role": "user", "content": [*results, {"type": "text", "text": "Go on."}]},
    ]
    asked = {**ASKED, "messages": history}
    second = await client.messages.create(**asked, extra_headers=headers)
    counted = await client.messages.count_tokens(model="taught", messages=asked["messages"], tools=[TOOL])
    usage = second.usage
    assert usage.cache_read_input_tokens
    assert usage.cache_creation_input_tokens is not None
    read_or_written = usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    assert usage.input_tokens + read_or_written == counted.input_tokens


async def test_limits_and_stop_sequences_are_told_apart(client: anthropic.AsyncAnthropic) -> None:
    short = await client.messages.create(**{**ASKED, "max_tokens": 2})
    assert short.stop_reason == "max_tokens"
    stopped = await client.messages.create(**ASKED, stop_sequences=["never", "look"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "look")
    assert stopped.content[0].model_dump()["text"] == "I "


async def test_system_text_is_read_in_both_shapes(client: anthropic.AsyncAnthropic) -> None:
    plain = await client.messages.count_tokens(model="m", messages=ASKED["messages"], system="Be brief.")
    blocks: Any = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    same = await client.messages.count_tokens(model="m", messages=ASKED["messages"], system=blocks)
    without = await client.messages.count_tokens(model="m", messages=ASKED["messages"])
    assert plain.input_tokens == same.input_tokens > without.input_tokens


async def test_thinking_that_is_sent_back_is_left_out(client: anthropic.AsyncAnthropic) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    said = {"type": "text", "text": "Yes."}
    histories: Any = [
        [*MESSAGES, {"role": "assistant", "content": [*more, said]}] for more in ([], [thought])
    ]
    counts = [await client.messages.count_tokens(model="m", messages=history) for history in histories]
    assert counts[0].input_tokens == counts[1].input_tokens


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "messages[0].content[0].type",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "1"}]}]},
            "messages[0].content",
        ),
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": []}, "messages"),
    ],
)
async def test_what_cannot_be_done_is_refused_in_anthropics_words(
    client: anthropic.AsyncAnthropic, change: dict[str, Any], named: str
) -> None:
    with pytest.raises(anthropic.BadRequestError) as refused:
        await client.post("/v1/messages", body={**ASKED, "extra_body": None, **change}, cast_to=object)
    assert isinstance(refused.value.body, dict)
    assert refused.value.body["type"] == "error"
    assert refused.value.body["error"]["type"] == "invalid_request_error"
    assert refused.value.body["error"]["param"] == named


async def test_a_worker_that_drains_is_overloaded(worker: Worker, client: anthropic.AsyncAnthropic) -> None:
    worker.draining = True
    try:
        with pytest.raises(anthropic.APIStatusError) as refused:
            await client.with_options(max_retries=0).messages.create(**ASKED)
    finally:
        worker.draining = False
    assert refused.value.status_code == 503
    assert refused.value.response.json()["error"]["type"] == "overloaded_error"

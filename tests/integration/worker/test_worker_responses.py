"""OpenAI's Responses API, spoken by OpenAI's own client to a model that was taught one answer."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
import pytest_asyncio

from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from tests.integration.worker.test_worker_tools import ANSWER, ARGUMENTS, MESSAGES, TOOLS
from tests.serving import own_worker
from tests.teaching import save_taught_checkpoint

pytestmark = pytest.mark.asyncio
FUNCTION: Any = TOOLS[0]["function"]
TOOL: Any = {"type": "function", **FUNCTION}
ASKED: Any = {
    "model": "taught",
    "max_output_tokens": 120,
    "temperature": 0,
    "input": MESSAGES,
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
async def client(worker: Worker) -> AsyncIterator[openai.AsyncOpenAI]:
    transport = httpx2.ASGITransport(create_app(worker))
    async with httpx2.AsyncClient(transport=transport, base_url="http://worker/v1") as http:
        yield openai.AsyncOpenAI(api_key="none", base_url="http://worker/v1", http_client=http)


async def test_text_and_calls_are_items(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(**ASKED)
    assert response.output_text == "I look first."
    calls = [item for item in response.output if item.type == "function_call"]
    assert [(call.name, call.arguments) for call in calls] == [("bash", ARGUMENTS)] * 2
    assert len({call.call_id for call in calls}) == 2
    assert response.status == "completed"


async def test_a_stream_says_the_same_as_the_whole(client: openai.AsyncOpenAI) -> None:
    whole = await client.responses.create(**ASKED)
    async with client.responses.stream(**ASKED) as stream:
        events = [event async for event in stream]
        said = await stream.get_final_response()
    assert said.output_text == whole.output_text
    assert [item.type for item in said.output] == [item.type for item in whole.output]
    assert said.usage is not None
    assert whole.usage is not None
    assert said.usage.output_tokens == whole.usage.output_tokens
    numbers = [event.sequence_number for event in events if hasattr(event, "sequence_number")]
    assert numbers == sorted(set(numbers))


async def test_the_next_turn_reads_from_the_cache(client: openai.AsyncOpenAI) -> None:
    headers = {"x-agentcache-session": "codex"}
    first = await client.responses.create(**ASKED, extra_headers=headers)
    history: list[Any] = [*MESSAGES, *(item.model_dump() for item in first.output)]
    history += [
        {"type": "function_call_output", "call_id": item.call_id, "output": "a.txt"}
        for item in first.output
        if item.type == "function_call"
    ]
    second = await client.responses.create(**{**ASKED, "input": history}, extra_headers=headers)
    assert second.usage is not None
    assert 0 < second.usage.input_tokens_details.cached_tokens < second.usage.input_tokens


async def test_a_history_of_items_is_the_chat_that_it_was(client: openai.AsyncOpenAI) -> None:
    """A text and the calls after it are one message again, so that the path of the tree goes on."""
    first = await client.responses.create(**ASKED)
    history: list[Any] = [*MESSAGES, *(item.model_dump() for item in first.output)]
    calls = [item for item in first.output if item.type == "function_call"]
    chat: list[Any] = [
        *MESSAGES,
        {
            "role": "assistant",
            "content": first.output_text,
            "tool_calls": [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in calls
            ],
        },
    ]
    as_items = await client.responses.create(**{**ASKED, "input": history, "max_output_tokens": 1})
    tools: list[Any] = [*TOOLS]
    as_chat = await client.chat.completions.create(model="m", messages=chat, tools=tools, max_tokens=1)
    assert as_chat.usage is not None
    assert as_items.usage is not None
    assert as_items.usage.input_tokens == as_chat.usage.prompt_tokens


async def test_an_answer_that_was_cut_is_incomplete(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(**{**ASKED, "max_output_tokens": 2})
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    (item,) = response.output
    assert (item.type, item.status) == ("message", "incomplete")
    async with client.responses.stream(**{**ASKED, "max_output_tokens": 2}) as stream:
        done = [event.item async for event in stream if event.type == "response.output_item.done"]
    assert [one.status for one in done] == ["incomplete"]  # type: ignore[union-attr]


async def test_a_response_repeats_what_it_was_asked_with(client: openai.AsyncOpenAI) -> None:
    said: Any = {
        "instructions": "Be short.",
        "max_output_tokens": 1,
        "metadata": {"run": "7"},
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "tool_choice": "none",
        "tools": [TOOL],
        "top_p": 0.9,
    }
    response = await client.responses.create(model="taught", input="hi", **said)
    repeated = response.model_dump(exclude_unset=True)
    assert {name: repeated[name] for name in said} == said
    async with client.responses.stream(model="taught", input="hi", **said) as stream:
        begun = (await anext(aiter(stream))).response.model_dump(exclude_unset=True)  # type: ignore[union-attr]
    assert {name: begun[name] for name in said} == said
    bare = await client.responses.create(model="taught", input="hi")
    assert (bare.temperature, bare.top_p, bare.tools, bare.instructions) == (1.0, 1.0, [], None)


async def test_a_text_is_the_users_message_and_instructions_the_systems(client: openai.AsyncOpenAI) -> None:
    inputs: list[Any] = ["Hi", [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]]
    texts = [
        await client.responses.create(model="m", input=said, instructions="Be brief.", max_output_tokens=1)
        for said in inputs
    ]
    without = await client.responses.create(model="m", input="Hi", max_output_tokens=1)
    counts = [one.usage.input_tokens for one in texts if one.usage]
    assert without.usage is not None
    assert counts[0] == counts[1] > without.usage.input_tokens


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0].type",
        ),
        ({"input": []}, "messages"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
async def test_what_cannot_be_done_is_refused_by_name(
    client: openai.AsyncOpenAI, change: dict[str, Any], named: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.post("/responses", body={**ASKED, **change}, cast_to=object)
    assert refused.value.param == named


async def test_a_fault_in_a_stream_is_an_event(worker: Worker) -> None:
    """A worker that is cut in the middle of an answer says so in the API's own shape."""
    transport = httpx2.ASGITransport(create_app(worker))
    worker.draining = True
    try:
        async with httpx2.AsyncClient(transport=transport, base_url="http://worker") as http:
            answer = await http.post("/v1/responses", json={**ASKED, "stream": True})
    finally:
        worker.draining = False
    said = json.loads(answer.text)
    assert (answer.status_code, said["type"], said["code"]) == (503, "error", "shutting_down")

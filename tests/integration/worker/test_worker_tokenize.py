"""`/tokenize` says what a request would have as its prompt, to the token; `/detokenize` says it back."""

from typing import Any

import httpx2
import pytest

from agentcache.worker.context import Worker

pytestmark = pytest.mark.asyncio
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "You fix bugs."},
    {"role": "user", "content": [{"type": "text", "text": "the parser <|im_end|> fails"}]},
]
TOOLS = [{"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}]


async def tokenized(client: httpx2.AsyncClient, **body: object) -> dict[str, Any]:
    answer = await client.post("/tokenize", json=body)
    assert answer.status_code == 200, answer.text
    said: dict[str, Any] = answer.json()
    assert said.keys() == {"count", "max_model_len", "tokens", "token_strs"}
    assert (said["count"], said["max_model_len"]) == (len(said["tokens"]), 4096)
    return said


@pytest.mark.parametrize(
    "body",
    [
        {"messages": CHAT},
        {"messages": CHAT, "tools": TOOLS},
        {"messages": CHAT, "tools": TOOLS, "tool_choice": "none", "temperature": 0.5, "model": "any"},
    ],
)
async def test_a_chat_has_the_tokens_that_it_is_served_with(
    client: httpx2.AsyncClient, body: dict[str, Any]
) -> None:
    """The same page hashes come out of both, so a router places by what the worker will look for."""
    said = await tokenized(client, **body)
    answer = await client.post("/v1/chat/completions", json={**body, "max_tokens": 1, "temperature": 0})
    assert answer.json()["usage"]["prompt_tokens"] == said["count"]
    again = {"prompt": said["tokens"], "max_tokens": 1, "temperature": 0}
    repeated = (await client.post("/v1/completions", json=again)).json()
    assert repeated["usage"]["prompt_tokens_details"]["cached_tokens"] == (said["count"] - 1) // 32 * 32 > 0


@pytest.mark.parametrize(
    ("route", "body", "limit"),
    [
        (
            "/v1/messages",
            {"system": "You fix bugs.", "messages": [{"role": "user", "content": "hi"}]},
            "max_tokens",
        ),
        (
            "/v1/responses",
            {"instructions": "You fix bugs.", "input": "the parser fails"},
            "max_output_tokens",
        ),
    ],
)
async def test_requests_of_other_routes_have_the_tokens_that_they_are_served_with(
    client: httpx2.AsyncClient, route: str, body: dict[str, Any], limit: str
) -> None:
    said = (await client.post(f"/tokenize?for={route}", json=body)).json()
    answer = (await client.post(route, json={**body, limit: 1})).json()
    usage = answer["usage"]
    kept = usage.get("cache_read_input_tokens", 0) + usage.get("cache_creation_input_tokens", 0)
    assert usage["input_tokens"] + (kept if route == "/v1/messages" else 0) == said["count"]


async def test_a_route_that_generates_nothing_has_no_prompt(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/tokenize?for=/v1/models", json={})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "for")


async def test_a_text_and_token_ids(client: httpx2.AsyncClient, worker: Worker) -> None:
    said = await tokenized(client, prompt="the parser fails")
    assert tuple(said["tokens"]) == worker.tokenizer.encode("the parser fails")
    assert (await tokenized(client, prompt=said["tokens"]))["tokens"] == said["tokens"]
    assert (await tokenized(client, prompt=["the parser fails"]))["tokens"] == said["tokens"]
    assert (await tokenized(client, prompt=""))["tokens"] == []


async def test_without_the_beginning_of_an_answer(client: httpx2.AsyncClient) -> None:
    whole = (await tokenized(client, messages=CHAT))["tokens"]
    head = (await tokenized(client, messages=CHAT, add_generation_prompt=False))["tokens"]
    assert whole[: len(head)] == head
    assert len(head) < len(whole)


async def test_tokens_become_text_again(client: httpx2.AsyncClient) -> None:
    """Control tokens are spelled out, so that a prompt can be looked at."""
    for body in ({"prompt": "näive ☃ text"}, {"messages": CHAT}):
        tokens = (await tokenized(client, **body))["tokens"]
        answer = await client.post("/detokenize", json={"tokens": tokens})
        text = answer.json()["prompt"]
        assert text == body["prompt"] if "prompt" in body else text.startswith("<|im_start|>system\nYou fix")
    assert (await client.post("/detokenize", json={"tokens": []})).json() == {"prompt": ""}


@pytest.mark.parametrize(
    ("path", "body", "param", "said"),
    [
        ("/tokenize", {}, "prompt", "one of prompt and messages"),
        ("/tokenize", {"prompt": "a", "messages": CHAT}, "prompt", "one of prompt and messages"),
        ("/tokenize", {"prompt": {"a": 1}}, "prompt", "must be a string"),
        ("/tokenize", {"prompt": [-1]}, "prompt", "token ids from 0"),
        ("/tokenize", {"messages": []}, "messages", "at least one message"),
        ("/tokenize", {"messages": [{"role": "judge"}]}, "messages[0].role", "one of"),
        ("/tokenize", {"prompt": "a", "add_special_tokens": False}, "add_special_tokens", "cannot be chosen"),
        ("/tokenize", {"messages": CHAT, "add_special_tokens": True}, "add_special_tokens", "cannot be"),
        ("/tokenize", {"prompt": "a", "return_token_strs": True}, "return_token_strs", "not supported"),
        (
            "/tokenize",
            {"messages": CHAT, "continue_final_message": True},
            "continue_final_message",
            "not sup",
        ),
        ("/tokenize", {"messages": CHAT, "chat_template": "x"}, "chat_template", "checkpoint's"),
        (
            "/tokenize",
            {"messages": CHAT, "add_generation_prompt": 1},
            "add_generation_prompt",
            "true or false",
        ),
        ("/detokenize", {}, "tokens", "token ids from 0 to 4095"),
        ("/detokenize", {"tokens": "abc"}, "tokens", "an array"),
        ("/detokenize", {"tokens": [4096]}, "tokens", "token ids from 0 to 4095"),
        ("/detokenize", {"tokens": [True]}, "tokens", "token ids from 0 to 4095"),
        ("/detokenize", {"tokens": [1.5]}, "tokens", "token ids from 0 to 4095"),
    ],
)
async def test_what_cannot_be_tokenized_is_one_clear_error(
    client: httpx2.AsyncClient, path: str, body: dict[str, Any], param: str, said: str
) -> None:
    answer = await client.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["type"]) == (400, param, "invalid_request_error")
    assert said in error["message"]


async def test_other_methods_and_bodies_that_are_no_json(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/tokenize")).status_code == 405
    assert (await client.post("/tokenize", content=b"{")).status_code == 400
    assert (await client.post("/detokenize", content=b'"' + b"a" * (9 << 20) + b'"')).status_code == 413

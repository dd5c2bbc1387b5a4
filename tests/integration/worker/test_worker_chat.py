"""Chat and text completions of the real engine, without sockets."""

from typing import Any

import httpx2
import pytest

from agentcache.worker.context import Worker
from tests.chosen import CORE
from tests.serving import sse

pytestmark = pytest.mark.asyncio
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
WORDS = "the tests fail in the parser because a line is bytes; " * 4
NEW_HERE = ("never_stored FULL at 0", "flushed FULL at 0")
"""The worker is shared by all tests, and emptied between them."""


def ask(turns: int = 1, **more: Any) -> dict[str, Any]:
    """A greedy chat of so many user messages."""
    messages = [{"role": "user", "content": f"{number}. {WORDS}"} for number in range(turns)]
    return {"messages": messages, "max_tokens": 8, "temperature": 0, "ignore_eos": True, **more}


async def post(client: httpx2.AsyncClient, path: str, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    named = {f"x-agentcache-{name}": value for name, value in headers.items()}
    answer = await client.post(path, json=body, headers=named)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_a_chat_completion_has_the_openai_shape(client: httpx2.AsyncClient) -> None:
    answer = await post(client, CHAT, ask())
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["choices"][0]["finish_reason"] == "length"
    usage = answer["usage"]
    assert usage["completion_tokens"] == 8
    assert usage["total_tokens"] == usage["prompt_tokens"] + 8
    nothing = {"device": 0, "host": 0, "external": 0}
    details = usage["prompt_tokens_details"]
    assert (details["cached_tokens"], details["cached_tokens_details"]) == (0, nothing)
    assert details["cache_write_tokens"] == usage["prompt_tokens"] // 32 * 32
    assert usage["cached_tokens_details"] == nothing


async def test_cached_tokens_grow_turn_by_turn(client: httpx2.AsyncClient) -> None:
    cached = []
    for turns in (1, 2, 3):
        usage = (await post(client, CHAT, ask(turns), session="growing"))["usage"]
        cached.append(usage["prompt_tokens_details"]["cached_tokens"])
        assert usage["cached_tokens_details"]["device"] == cached[-1]
    assert cached[0] == 0 < cached[1] < cached[2]


async def test_headers_say_what_the_cache_did(client: httpx2.AsyncClient) -> None:
    cold = await client.post(CHAT, json=ask(), headers={"x-agentcache-session": "told"})
    assert cold.headers["x-agentcache-session"] == "told"
    assert cold.headers["x-agentcache-generation"] == "1"
    assert cold.headers["x-agentcache-state"] == "open"
    assert cold.headers["x-agentcache-why"] in NEW_HERE
    anonymous = await client.post(CHAT, json=ask(stream=True))
    assert anonymous.headers["x-agentcache-state"] == "none"
    assert "x-agentcache-session" not in anonymous.headers
    assert anonymous.headers["content-type"].startswith("text/event-stream")


async def test_a_cold_comparison_is_bit_identical_and_touches_no_cache(
    client: httpx2.AsyncClient, worker: Worker
) -> None:
    body = ask(2, return_token_ids=True, agentcache={"logits_digest": True})
    await post(client, CHAT, body)
    before = await worker.thread.call(lambda engine: engine.cache.stats().pools)
    warm = await post(client, CHAT, body)
    cold = await post(client, CHAT, body, reuse="0")
    named = await post(client, CHAT, {**body, "agentcache": {"logits_digest": True, "reuse": False}})
    assert await worker.thread.call(lambda engine: engine.cache.stats().pools) == before
    assert warm["agentcache"]["cached_tokens"] > 0 == cold["agentcache"]["cached_tokens"]
    assert cold["agentcache"]["why"] == named["agentcache"]["why"] == "reuse off"
    for other in (cold, named):
        assert other["agentcache"]["first_logits_sha256"] == warm["agentcache"]["first_logits_sha256"] != ""
        assert other["choices"][0]["token_ids"] == warm["choices"][0]["token_ids"]


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_a_stream_says_the_same_as_a_whole_answer(client: httpx2.AsyncClient, path: str) -> None:
    body = ask(return_token_ids=True) if path == CHAT else {**ask(return_token_ids=True), "prompt": WORDS}
    whole = (await post(client, path, body))["choices"][0]
    chunks = sse((await client.post(path, json={**body, "stream": True})).text)
    choices = [chunk["choices"][0] for chunk in chunks]
    streamed = "".join(
        choice["delta"].get("content", "") if path == CHAT else choice["text"] for choice in choices
    )
    assert streamed == (whole["message"]["content"] if path == CHAT else whole["text"])
    assert [token for choice in choices for token in choice["token_ids"]] == whole["token_ids"]
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["length"]
    assert "usage" not in chunks[-1]
    assert chunks[-1]["agentcache"]["state"] == "none"
    assert len({chunk["id"] for chunk in chunks}) == 1


async def test_usage_comes_last_when_asked_for(client: httpx2.AsyncClient) -> None:
    body = ask(stream=True, stream_options={"include_usage": True})
    last = sse((await client.post(CHAT, json=body)).text)[-1]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 8


async def test_a_stop_string_cuts_the_answer_and_ends_the_turn(client: httpx2.AsyncClient) -> None:
    text = (await post(client, CHAT, ask(max_tokens=16)))["choices"][0]["message"]["content"]
    stop = text[8:11]
    cut = text[: text.index(stop)]
    for body in (ask(max_tokens=2000, stop=stop), ask(max_tokens=2000, stop=["never said", stop])):
        answer = await post(client, CHAT, body)
        choice = answer["choices"][0]
        assert "first_token_ms" not in answer["agentcache"]  # not measured is not 0
        assert choice["message"]["content"] == cut
        assert choice["finish_reason"] == "stop"
        streamed = sse((await client.post(CHAT, json={**body, "stream": True})).text)
        assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in streamed) == cut


async def test_a_seed_repeats_an_answer(client: httpx2.AsyncClient) -> None:
    body = ask(temperature=1.5, top_p=0.9, max_tokens=24, return_token_ids=True)
    first, again = [await post(client, CHAT, {**body, "seed": 5}) for _ in range(2)]
    other = await post(client, CHAT, {**body, "seed": 6})
    assert first["choices"][0]["token_ids"] == again["choices"][0]["token_ids"]
    assert first["choices"][0]["token_ids"] != other["choices"][0]["token_ids"]


async def test_text_may_be_token_ids(client: httpx2.AsyncClient, worker: Worker) -> None:
    tokens = list(worker.tokenizer.encode(WORDS))
    body = {"max_tokens": 6, "temperature": 0, "return_token_ids": True}
    texts = [
        (await post(client, TEXT, {**body, "prompt": prompt}))["choices"][0]
        for prompt in (WORDS, [WORDS], tokens, [tokens])
    ]
    assert all(text == texts[0] for text in texts)


async def test_an_answer_has_a_default_length_that_fits_the_context(
    client: httpx2.AsyncClient, worker: Worker
) -> None:
    assert worker.max_tokens(0, prompt_tokens=10) == 256
    near_the_end = {"prompt": [5] * (worker.info.context_tokens - 3), "ignore_eos": True}
    assert (await post(client, TEXT, near_the_end))["usage"]["completion_tokens"] == 3


async def test_metrics_count_and_name_no_session(client: httpx2.AsyncClient) -> None:
    await post(client, CHAT, ask(), session="nobody-may-see-this")
    text = (await client.get("/metrics")).text
    names = ("cached_tokens_total", "cache_hit_rate", "full_token_usage", "swa_token_usage", "mamba_usage")
    more = (
        "kv_available_tokens",
        "kv_evictable_tokens",
        "open_references",
        "sessions_open",
        "requests_total",
    )
    assert all(f"\nagentcache_{name}" in text for name in names + more)
    assert "nobody-may-see-this" not in text


async def test_the_worker_says_what_it_serves(client: httpx2.AsyncClient, worker: Worker) -> None:
    [model] = (await client.get("/v1/models")).json()["data"]
    assert model["id"] == worker.info.model
    assert model["agentcache"]["components"] == ["FULL", "SWA", "MAMBA"]
    assert model["agentcache"]["core"] == CORE
    assert (await client.get(f"/v1/models/{model['id']}")).json() == model
    assert (await client.get("/health")).json() == {"status": "ok"}
    assert (await client.get("/ready")).status_code == 200

"""Salts over HTTP: what one tenant computed serves that tenant, at every entry point, and no other."""

from typing import Any

import httpx2
import pytest

from tests.serving import sse

pytestmark = pytest.mark.asyncio
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
WORDS = "one two three four five six seven eight nine ten " * 8
TOOL = {"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}
CHATTED: dict[str, Any] = {"messages": [{"role": "user", "content": WORDS}]}
ENTRIES: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "chat": (CHAT, CHATTED, {}),
    "text": (TEXT, {"prompt": WORDS}, {}),
    "tokens": (TEXT, {"prompt": [5, 6, 7, 8] * 40}, {}),
    "tools": (CHAT, {**CHATTED, "tools": [TOOL]}, {}),
    "stream": (CHAT, {**CHATTED, "stream": True, "stream_options": {"include_usage": True}}, {}),
    "session": (CHAT, CHATTED, {"x-agentcache-session": "tenants"}),
    "session in the body": (CHAT, {**CHATTED, "session_id": "tenants"}, {}),
}


@pytest.mark.parametrize("entry", ENTRIES)
async def test_a_salt_keeps_tenants_apart_and_serves_each(client: httpx2.AsyncClient, entry: str) -> None:
    """R026, R027: no hit across, and a hit within, for the same text and even the same session id."""
    path, body, headers = ENTRIES[entry]
    hits = []
    for salt in ("one", "two", "", "one", "two", ""):
        salted = {**body, "cache_salt": salt} if salt else body
        sent = {**salted, "max_tokens": 1, "temperature": 0}
        answer = await client.post(path, json=sent, headers=headers)
        assert answer.status_code == 200, answer.text
        said = sse(answer.text)[-1] if body.get("stream") else answer.json()
        hits.append(said["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert hits[:3] == [0, 0, 0]
    assert hits[3] == hits[4] == hits[5] > 64


async def test_a_miss_says_where_a_sessions_prompt_left_its_path(client: httpx2.AsyncClient) -> None:
    """R022, R085, R182, R233, R235, R238: to the page, whether its head or a block in its middle changed."""
    named = {"x-agentcache-session": "drifts"}
    body: dict[str, Any] = {"max_tokens": 1, "temperature": 0}
    base = [5, 6, 7, 8] * 60
    changed_head = [9, *base[1:]]
    changed_middle = [*base[:100], 9, *base[101:]]
    why, known = [], []
    for prompt in (base, changed_head, base, changed_middle, [*base, *[11] * 80]):
        answer = await client.post(TEXT, json={**body, "prompt": prompt}, headers=named)
        why.append(answer.headers["x-agentcache-why"])
        known.append(answer.json()["agentcache"]["full_tokens"])
    assert why[0] in ("never_stored FULL at 0", "flushed FULL at 0")  # the worker is shared, and emptied
    assert why[1] == "prefix_changed FULL at 0"
    assert why[2] == "full hit"
    assert why[3].endswith("at 96"), why
    assert known[1:4] == [0, 224, 100]  # the page in which it differs
    assert why[4] == "never_stored FULL at 224"

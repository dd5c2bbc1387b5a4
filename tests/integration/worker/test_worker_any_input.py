"""Whatever JSON and headers arrive, the worker answers, never with a fault of its own, and nothing is left."""

import asyncio
from typing import Any

import httpx2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcache.worker.context import Worker
from tests.serving import client_of, nothing_left

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 5000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "auto", "user", "assistant", "tool", "text", "<|im_end|>", "é\x00", "a" * 300]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "function", "name", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "assistant", "tool", "developer"])},
    optional={"content": VALUES, "tool_calls": VALUES, "tool_call_id": VALUES, "name": VALUES},
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "messages": st.lists(MESSAGE, max_size=3) | VALUES,
        "prompt": st.lists(st.integers(0, 4200), max_size=5) | VALUES,
        **{
            name: VALUES
            for name in (
                "tools",
                "tool_choice",
                "stop",
                "seed",
                "temperature",
                "top_p",
                "stream",
                "stream_options",
                "n",
                "session_id",
                "cache_salt",
                "agentcache",
                "return_token_ids",
                "priority",
                "ignore_eos",
                "logit_bias",
                "parallel_tool_calls",
                "response_format",
            )
        },
    },
)
HEADERS = st.dictionaries(
    st.sampled_from(
        [f"x-agentcache-{name}" for name in ("session", "parent", "generation", "strict", "reuse")]
    ),
    st.sampled_from(["", "0", "1", "a", "-1", "x" * 300, "é".encode().decode("latin-1"), " b "]),
    max_size=4,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["/v1/chat/completions", "/v1/completions", "/v1/sessions"]),
    body=FIELDS,
    headers=HEADERS,
)
def test_any_json_gets_an_answer(
    shared_worker: Worker, path: str, body: dict[str, Any], headers: dict[str, str]
) -> None:
    answer = asyncio.run(_post(shared_worker, path, {**body, "max_tokens": 1}, headers))
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


async def _post(worker: Worker, path: str, body: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    async with client_of(worker) as client:
        answer = await client.post(path, json=body, headers=raw)
    await worker.thread.call(nothing_left)
    return answer

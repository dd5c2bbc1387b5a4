"""One line a request, and never what was said in it."""

import httpx2
import pytest
from structlog.testing import capture_logs

pytestmark = pytest.mark.asyncio
SECRET = "swordfish"


async def test_every_request_is_one_line_without_its_text(client: httpx2.AsyncClient) -> None:
    with capture_logs() as lines:
        headers = {"x-agentcache-session": "logged", "authorization": f"Bearer {SECRET}"}
        chat = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 2}
        answered = await client.post("/v1/chat/completions", json=chat, headers=headers)
        refused = await client.post("/v1/completions", json={"prompt": SECRET, "n": 3})
        await client.delete("/v1/sessions/logged")
        await client.get(f"/{SECRET}")
        await client.post("/tokenize", json={"prompt": "hi"})
    assert [(line["route"], line["status"]) for line in lines] == [
        ("/v1/chat/completions", 200),
        ("/v1/completions", 400),
        ("/v1/sessions", 200),
        ("other", 404),
        ("/tokenize", 200),
    ]
    assert SECRET not in str(lines)
    told = lines[0]
    assert (told["session"], told["completion_tokens"], told["reason"]) == ("logged", 2, "length")
    assert told["total_ms"] >= told["first_token_ms"] > 0
    assert told["why"] == "prompt too short"
    assert lines[1]["reason"] == "bad_request"
    ids = [line["request"] for line in lines[:2]]
    assert ids == [answer.headers["x-request-id"] for answer in (answered, refused)]
    assert all(ids)
    for line in lines:  # what every line has, in one order
        names = list(line)
        assert names[:3] == ["method", "route", "status"]
        assert names.index("total_ms") == len(names) - len(("event", "log_level")) - 1


async def test_an_unknown_field_is_told_once(client: httpx2.AsyncClient) -> None:
    with capture_logs() as lines:
        for _ in range(2):
            await client.post("/v1/completions", json={"prompt": "hi", "max_tokens": 1, "mirostat": 2})
    assert [line["field"] for line in lines if line["event"] == "field_ignored"] == ["mirostat"]

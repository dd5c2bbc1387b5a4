"""Prompts of legal size that are far too long: refused early, and nobody else waits for them."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from agentcache.engine import parts
from agentcache.engine.tokenizer import ChatTokenizer
from agentcache.worker import messages, responses
from agentcache.worker.context import Worker
from tests.encoding import Watched
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.asyncio
LONG = "".join(f"word{number} of many " for number in range(418_000))
CHAT = {"messages": [{"role": "system", "content": "You fix bugs."}, {"role": "user", "content": LONG}]}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", {"prompt": LONG}),
    ("/v1/messages", {"max_tokens": 8, "messages": CHAT["messages"][1:]}),
    ("/v1/responses", {"input": LONG}),
    ("/v1/messages/count_tokens", {"messages": CHAT["messages"][1:]}),
    ("/tokenize", CHAT),
    ("/tokenize", {"prompt": LONG}),
    ("/tokenize", {"prompt": [5] * 4097}),
    ("/tokenize?for=/v1/messages", {"messages": CHAT["messages"][1:]}),
]


@pytest.fixture
def watched(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Watched:
    assert isinstance(worker.tokenizer, ChatTokenizer)
    watched = Watched(worker.tokenizer._tokenizer)
    monkeypatch.setattr(worker.tokenizer._parts, "_encoder", watched)
    return watched


@pytest.mark.parametrize(("route", "body"), ASKED)
async def test_what_cannot_fit_is_refused_before_it_is_tokenized(
    client: httpx2.AsyncClient, watched: Watched, route: str, body: dict[str, Any]
) -> None:
    assert len(LONG) > 7_800_000
    answer = await client.post(route, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "4096" in answer.json()["error"]["message"]
    assert sum(map(len, watched.aloud + watched.quiet)) == 0


async def test_what_might_fit_is_tokenized_no_further_than_the_context(
    client: httpx2.AsyncClient, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PIECE_CHARS", 5_000)
    answer = await client.post("/tokenize", json={"prompt": LONG[:50_000]})
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert 0 < sum(map(len, watched.aloud + watched.quiet)) < 20_000


async def test_others_are_answered_while_a_prompt_is_tokenized(
    client: httpx2.AsyncClient, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    render = worker.tokenizer.render

    def slow(*given: Any, **named: Any) -> Any:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return render(*given, **named)

    monkeypatch.setattr(worker.tokenizer, "render", slow)
    asked = [asyncio.ensure_future(client.post(route, json=body)) for route, body in ASKED[:1] + ASKED[4:6]]
    await asyncio.to_thread(begun.wait, PATIENCE_S)
    assert (await client.get("/health")).status_code == 200
    go_on.set()
    assert {(await one).status_code for one in asked} == {400}


@pytest.mark.parametrize(
    ("module", "function", "route", "body"),
    [
        (messages, "_messages", *ASKED[2]),
        (messages, "_messages", *ASKED[4]),
        (messages, "_messages", *ASKED[8]),
        (responses, "_joined", *ASKED[3]),
    ],
)
async def test_histories_are_translated_off_the_loop(
    client: httpx2.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    function: str,
    route: str,
    body: Any,
) -> None:
    threads: list[threading.Thread] = []
    translate: Callable[[Any], Any] = getattr(module, function)

    def noticed(given: Any) -> Any:
        threads.append(threading.current_thread())
        return translate(given)

    monkeypatch.setattr(module, function, noticed)
    await client.post(route, json=body)
    assert threads
    assert threading.main_thread() not in threads


async def test_the_card_can_say_how_much_text_may_fit(worker: Worker) -> None:
    assert worker.prompt_bytes_max == 4096 * 64

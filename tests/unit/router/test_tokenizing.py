"""Tokens asked of a worker: what is sent, what comes back, and what a failure costs."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from agentcache.clock import ManualClock
from agentcache.errors import CacheError, Kind
from agentcache.router import tokenizing
from agentcache.router.tokenizing import REST_S, UNANSWERED_S, Tokenizing
from agentcache.web.fields import Fields
from tests.fleets import card_of, view_of
from tests.patience import PATIENCE_S, pass_time

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
VIEW = view_of("a", card=card_of("a"))
HELLO = Fields({"messages": [{"role": "user", "content": "hello"}], "temperature": 1, "stream": True})
NESTED: list[Any] = []
for _ in range(20_000):
    NESTED = [NESTED]


@dataclass(frozen=True)
class Answered:
    status: int = 200
    body: bytes = b""


class Asked:
    """A transport that answers as it is told, and remembers what it was sent."""

    def __init__(self, status: int = 200, tokens: Any = (1, 2, 3)) -> None:
        self.status = status
        self.body = json.dumps({"tokens": tokens, "count": 3, "max_model_len": 9}).encode()
        self.sent: list[tuple[str, Any, Mapping[str, str]]] = []
        self.down = self.hung = False

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> Answered:
        self.sent.append((url, json.loads(body), headers))
        await asyncio.sleep(0)
        if self.down:
            raise CacheError(Kind.UPSTREAM_FAILED, "connection refused")
        if self.hung:
            pass_time(timeout_s)
            await asyncio.Event().wait()
        assert timeout_s > 0
        return Answered(self.status, self.body)


def asking(asked: Asked, clock: ManualClock | None = None) -> Tokenizing:
    return Tokenizing(asked.post, "operator of {} at {}".format, clock or ManualClock(), PATIENCE_S)


@pytest.mark.asyncio
async def test_what_makes_the_prompt_is_sent_and_nothing_else() -> None:
    asked = Asked()
    found = await asking(asked).tokens(VIEW, CHAT, HELLO)
    assert list(found) == [1, 2, 3]
    ((url, body, headers),) = asked.sent
    assert url == "http://127.0.0.1/a/tokenize"
    assert body == {"messages": [{"role": "user", "content": "hello"}]}
    assert headers["authorization"] == f"Bearer operator of {VIEW.id} at {VIEW.url}"
    asked.sent.clear()
    await asking(asked).tokens(VIEW, TEXT, Fields({"prompt": "a longer text", "max_tokens": 3}))
    assert asked.sent[0][1] == {"prompt": "a longer text"}


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/v1/messages", {"system": "be good", "messages": [], "tools": [{"name": "shell"}]}),
        ("/v1/responses", {"instructions": "be good", "input": "hello"}),
    ],
)
@pytest.mark.asyncio
async def test_other_routes_are_asked_for_in_their_own_shape(route: str, body: dict[str, Any]) -> None:
    asked = Asked()
    await asking(asked).tokens(VIEW, route, Fields({**body, "max_tokens": 9, "stream": True}))
    assert asked.sent[0][:2] == (f"http://127.0.0.1/a/tokenize?for={route}", body)


@pytest.mark.asyncio
async def test_one_prompt_asked_by_many_at_once_is_kept_once() -> None:
    ask = asking(Asked())
    await asyncio.gather(*(ask.tokens(VIEW, CHAT, HELLO) for _ in range(20)))
    assert len(await ask.tokens(VIEW, CHAT, HELLO)) == 3


@pytest.mark.asyncio
async def test_the_same_prompt_is_asked_once() -> None:
    asked = Asked()
    ask = asking(asked)
    for _ in range(3):
        assert list(await ask.tokens(VIEW, CHAT, HELLO)) == [1, 2, 3]
    assert len(asked.sent) == 1
    assert (ask.counts.asked, ask.counts.from_cache, ask.counts.failed) == (1, 2, 0)
    await ask.tokens(view_of("b", card=card_of("b"), models=("other",)), CHAT, HELLO)
    assert len(asked.sent) == 2


@pytest.mark.asyncio
async def test_a_prompt_of_tokens_is_known_already() -> None:
    asked = Asked()
    for prompt in ([5, 6, 7], [[5, 6, 7]]):
        assert list(await asking(asked).tokens(VIEW, TEXT, Fields({"prompt": prompt}))) == [5, 6, 7]
    assert asked.sent == []


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/v1/models", {"messages": [{"role": "user", "content": "hello"}]}),
        (CHAT, {}),
        (CHAT, {"messages": NESTED}),
    ],
)
@pytest.mark.asyncio
async def test_what_no_worker_can_be_asked_is_not_asked(route: str, body: dict[str, Any]) -> None:
    asked = Asked()
    assert not await asking(asked).tokens(VIEW, route, Fields(body))
    assert asked.sent == []


@pytest.mark.parametrize("prompt", ["", [-1, 2], [2**40], [1, "text"]])
@pytest.mark.asyncio
async def test_what_is_no_prompt_has_no_tokens(prompt: object) -> None:
    assert not await asking(Asked(400)).tokens(VIEW, TEXT, Fields({"prompt": prompt}))


@pytest.mark.asyncio
async def test_a_prompt_shorter_than_a_chunk_is_not_asked() -> None:
    """The threshold is the worker's own."""
    asked = Asked()
    coarse = view_of("a", card=card_of("a", grid_tokens=4096))
    assert not await asking(asked).tokens(coarse, CHAT, HELLO)
    assert asked.sent == []
    long = Fields({"messages": [{"role": "user", "content": "hello " * 2000}]})
    assert await asking(asked).tokens(coarse, CHAT, long)


@pytest.mark.asyncio
async def test_a_prompt_that_cannot_fit_is_not_asked() -> None:
    """It would keep the worker busy to be refused."""
    asked, hello = Asked(), {"messages": [{"role": "user", "content": "hello"}]}
    size = len(json.dumps(hello, separators=(",", ":")))
    for limit, questions in ((size - 1, 0), (size, 1), (0, 1)):
        asked.sent.clear()
        view = view_of("a", card=card_of("a", prompt_bytes_max=limit))
        await asking(asked).tokens(view, CHAT, Fields(hello))
        assert len(asked.sent) == questions


@pytest.mark.parametrize("fault", ["down", "hung"])
@pytest.mark.asyncio
async def test_a_prompt_that_silenced_a_worker_is_asked_of_no_other_for_a_while(fault: str) -> None:
    """Of one whose worker is only gone others are asked."""
    asked = Asked()
    asked.down, asked.hung = fault == "down", fault == "hung"
    clock = ManualClock()
    ask = asking(asked, clock)
    assert not await ask.tokens(VIEW, CHAT, HELLO)
    asked.down = asked.hung = False
    other = view_of("b", card=card_of("b"))
    assert bool(await ask.tokens(other, CHAT, HELLO)) == (fault == "down")
    assert await ask.tokens(other, TEXT, Fields({"prompt": "another one"}))
    clock.advance(int(UNANSWERED_S * 1e9))
    assert await ask.tokens(other, CHAT, HELLO)


@pytest.mark.parametrize("fault", ["down", "hung", "500", "401", "404", "shape"])
@pytest.mark.asyncio
async def test_a_worker_that_fails_rests(fault: str) -> None:
    asked = Asked(tokens="text") if fault == "shape" else Asked(int(fault) if fault.isdigit() else 200)
    asked.down, asked.hung = fault == "down", fault == "hung"
    clock = ManualClock()
    ask = asking(asked, clock)
    assert not await ask.tokens(VIEW, CHAT, HELLO)
    assert ask.rests("a")
    assert not ask.rests("b")
    assert ask.counts.failed == 1
    clock.advance(int(REST_S * 1e9))
    assert not ask.rests("a")


@pytest.mark.asyncio
async def test_a_prompt_that_is_wrong_is_nobodys_fault() -> None:
    asked = Asked(400)
    ask = asking(asked)
    assert not await ask.tokens(VIEW, CHAT, HELLO)
    assert not ask.rests("a")
    assert ask.counts.failed == 0


@pytest.mark.asyncio
async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizing, "CACHE_TOKENS", 7)
    asked = Asked()
    ask = asking(asked)
    prompts = [Fields({"prompt": f"prompt number {number}"}) for number in range(3)]
    for prompt in [*prompts, prompts[2], prompts[1], prompts[0]]:
        assert await ask.tokens(VIEW, TEXT, prompt)
    assert (ask.counts.asked, ask.counts.from_cache) == (4, 2)
    asked.body = json.dumps({"tokens": list(range(8))}).encode()
    for _ in range(2):
        await ask.tokens(VIEW, TEXT, Fields({"prompt": "one that is too long"}))
    assert ask.counts.asked == 6

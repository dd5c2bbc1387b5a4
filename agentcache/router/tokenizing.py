"""The tokens of a prompt, asked of a worker, since only workers have tokenizers. Without an answer it is guessed."""

import asyncio
import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from agentcache.clock import Clock
from agentcache.errors import CacheError
from agentcache.router.fleet import WorkerView
from agentcache.web.fields import Fields

WAIT_S: Final = 0.5
REST_S: Final = 2.0
"""How long a worker that failed to answer is not asked again."""
CACHE_TOKENS: Final = 4_000_000
UNANSWERED_S: Final = 60.0
"""How long a prompt that a worker did not answer for is asked of nobody: it may be the prompt's own doing."""
UNANSWERED: Final = 1_000
"""Such prompts that are remembered."""
_ROUTES: Final = {
    "/v1/completions": ("/tokenize", ("prompt",)),
    "/v1/chat/completions": ("/tokenize", ("messages", "tools", "tool_choice", "chat_template_kwargs")),
    "/v1/messages": ("/tokenize?for=/v1/messages", ("system", "messages", "tools", "tool_choice")),
    "/v1/responses": ("/tokenize?for=/v1/responses", ("instructions", "input", "tools", "tool_choice")),
}
"""Where the prompt of a route's requests is asked for, and the fields that make it."""


class Answer(Protocol):
    """What came back over HTTP."""

    @property
    def status(self) -> int: ...

    @property
    def body(self) -> bytes: ...


Post = Callable[[str, bytes, Mapping[str, str], float], Awaitable[Answer]]
"""`post(url, body, headers, timeout_s)`. Errors: CacheError(UPSTREAM_FAILED)."""


class _Tokenized(msgspec.Struct):
    """The part of vLLM's answer that is read."""

    tokens: list[int]


@dataclass(slots=True)
class TokenizingCounts:
    """How questions went."""

    asked: int = 0
    failed: int = 0
    from_cache: int = 0


class Tokenizing:
    """Asks `POST /tokenize` of a worker, waits a bounded time, and remembers the last answers.

    `bearer(worker, url)` is the operator's token there (`wire.TagSigner`); "" where workers want none.
    """

    def __init__(
        self, post: Post, bearer: Callable[[str, str], str], clock: Clock, wait_s: float = WAIT_S
    ) -> None:
        self._post = post
        self._bearer = bearer
        self._clock = clock
        self._wait_s = wait_s
        self._rests_until: dict[str, int] = {}
        self._known: OrderedDict[bytes, array[int]] = OrderedDict()
        self._silenced_until: OrderedDict[bytes, int] = OrderedDict()
        self._remembered_tokens = 0
        self.counts = TokenizingCounts()

    def rests(self, worker: str) -> bool:
        """Whether a worker failed so lately that it is not asked."""
        return self._clock.now_ns() < self._rests_until.get(worker, 0)

    async def tokens(self, view: WorkerView, route: str, fields: Fields) -> "array[int]":
        """The prompt's tokens as this worker would compute them; none when nobody can say.

        Nobody is asked about a prompt of fewer bytes than the worker's chunk has tokens: no such prompt is kept. Nor
        about one that cannot fit its context, which the worker refuses in a moment, or that lately kept one silent.

        Cost  nothing for a prompt of tokens or one asked before; else a call, of `wait_s` at most
        """
        given = _given(fields)
        if given:
            return given
        path, names = _ROUTES.get(route, ("", ()))
        body = _written({name: fields.values[name] for name in names if fields.has(name)})
        if not _is_worth_asking(view, len(body)):
            return array("I")
        name = hashlib.sha256(f"{view.models}\n{path}\n".encode() + body).digest()
        if name in self._known:
            self.counts.from_cache += 1
            self._known.move_to_end(name)
            return self._known[name]
        if self._clock.now_ns() < self._silenced_until.get(name, 0):
            return array("I")
        found = await self._asked(view, path, body, name)
        self._remember(name, found)
        return found

    async def _asked(self, view: WorkerView, path: str, body: bytes, name: bytes) -> "array[int]":
        self.counts.asked += 1
        try:
            async with asyncio.timeout(self._wait_s):
                answer = await self._post(f"{view.url}{path}", body, self._headers(view), 2 * self._wait_s)
            if answer.status == 200:
                return array("I", msgspec.json.decode(answer.body, type=_Tokenized).tokens)
            if answer.status < 500 and answer.status not in (401, 404):
                return array("I")  # this prompt is wrong, not the worker
        except TimeoutError:
            self._silences(name)
        except (CacheError, msgspec.DecodeError, OverflowError):
            pass
        self.counts.failed += 1
        self._rests_until[view.id] = self._clock.now_ns() + int(REST_S * 1e9)
        return array("I")

    def _headers(self, view: WorkerView) -> dict[str, str]:
        bearer = self._bearer(view.id, view.url)
        return {"content-type": "application/json"} | (
            {"authorization": f"Bearer {bearer}"} if bearer else {}
        )

    def _silences(self, name: bytes) -> None:
        self._silenced_until[name] = self._clock.now_ns() + int(UNANSWERED_S * 1e9)
        self._silenced_until.move_to_end(name)
        if len(self._silenced_until) > UNANSWERED:
            self._silenced_until.popitem(last=False)

    def _remember(self, name: bytes, tokens: "array[int]") -> None:
        if name in self._known or not 0 < len(tokens) <= CACHE_TOKENS:
            return
        self._known[name] = tokens
        self._remembered_tokens += len(tokens)
        while self._remembered_tokens > CACHE_TOKENS:
            _, oldest = self._known.popitem(last=False)
            self._remembered_tokens -= len(oldest)


def _is_worth_asking(view: WorkerView, size_bytes: int) -> bool:
    """Whether a worker may have something of a prompt that long."""
    card = view.card
    if not card:
        return size_bytes > 0
    return size_bytes > card.grid_tokens and not 0 < card.prompt_bytes_max < size_bytes


def _written(asked: Mapping[str, object]) -> bytes:
    """The question; none for a prompt that cannot be asked for: the worker says what is wrong with it."""
    try:
        return msgspec.json.encode(asked) if asked else b""
    except (OverflowError, RecursionError):
        return b""


def _given(fields: Fields) -> "array[int]":
    """The tokens of a prompt that is sent as such."""
    prompt = fields.values.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list):
        prompt = prompt[0]
    if not isinstance(prompt, list) or not all(type(token) is int for token in prompt):
        return array("I")
    try:
        return array("I", prompt)
    except OverflowError:
        return array("I")

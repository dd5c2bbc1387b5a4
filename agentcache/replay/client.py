"""HTTP client of a running worker: chats and prompts of token ids, sessions, and what a replay reads back.

One object per worker, used from one event loop; it holds no more connections than requests in flight.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any, cast

import aiohttp

from agentcache.clock import Clock
from agentcache.errors import CacheError, Kind
from agentcache.replay.outcome import Outcome, Refused
from agentcache.replay.stream import StreamedAnswer, events
from agentcache.replay.trace import Message

CONNECT_S = 10.0
SILENCE_S = 600.0
"""Longest wait for the next byte of an answer: one long cold prompt on a slow machine."""
BUSY_RETRIES = 120
Pause = Callable[[float], Awaitable[None]]
Prompt = list[Message] | tuple[int, ...]
"""A chat, or token ids."""
_UNREACHABLE = (aiohttp.ClientConnectionError, aiohttp.InvalidURL, TimeoutError)


@dataclass(frozen=True, slots=True)
class Ask:
    """One turn to send. Without `session` it belongs to none; `reuse` False runs it with the cache off.

    `parent` is the session that began this one. `digest` asks for token ids and the digest of the first logits, which
    only agentcache's worker gives.
    """

    prompt: Prompt
    max_tokens: int
    session: str = ""
    reuse: bool = True
    digest: bool = False
    parent: str = ""

    @property
    def path(self) -> str:
        return "/v1/completions" if isinstance(self.prompt, tuple) else "/v1/chat/completions"

    def headers(self) -> dict[str, str]:
        said = {"x-agentcache-session": self.session, "x-agentcache-parent": self.parent}
        named = {name: value for name, value in said.items() if self.session and value}
        return named if self.reuse else {**named, "x-agentcache-reuse": "0"}

    def body(self, model: str) -> dict[str, Any]:
        if isinstance(self.prompt, tuple):
            said: dict[str, Any] = {"prompt": self.prompt}
        else:
            said = {"messages": [dict(message) for message in self.prompt]}
        body: dict[str, Any] = {
            "model": model,
            **said,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        extra = {"return_token_ids": True, "agentcache": {"logits_digest": True}}
        return {**body, **extra} if self.digest else body


class WorkerClient:
    """Talks to the worker at `url` (its root, with or without `/v1`). `pause` waits some seconds;
    `bearer` is the operator's token of a worker behind a router.

    Once connected, `model` is the model's name and `about` what the worker says of it.
    """

    def __init__(
        self, url: str, http: aiohttp.ClientSession, clock: Clock, pause: Pause, bearer: str = ""
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._http = http
        self._clock = clock
        self._pause = pause
        self._operator = {"authorization": f"Bearer {bearer}"} if bearer else {}
        self._unanswered: set[str] = set()
        self.model = ""
        self.about: dict[str, Any] = {}

    async def connect(self) -> str:
        """Learn the model's name; every later request names it.

        Errors  CacheError(UNREACHABLE): nothing there, or something that is no OpenAI-compatible server
        """
        listed = await self._json("GET", "/v1/models")
        try:
            self.about = dict(listed["data"][0])
            self.model = str(self.about["id"])
        except (KeyError, IndexError, TypeError, ValueError):
            raise self._unreachable("its /v1/models lists no model") from None
        return self.model

    async def ask(self, ask: Ask) -> Outcome:
        """Send one turn and read its stream to the end. A full queue is waited out as the worker says.

        Errors  CacheError(UNREACHABLE) when the connection fails; a refusal is an outcome
        """
        self._unanswered.add(ask.session)
        for _ in range(BUSY_RETRIES):
            outcome, retry_s = await self._try(ask)
            if not retry_s:
                break
            await self._pause(retry_s)
        self._unanswered.discard(ask.session)
        return outcome

    async def close_session(self, session: str) -> dict[str, Any]:
        """Close it and answer what the worker says; a session that the worker never saw is closed already.

        A turn that got no answer may still be on its way and would open what is closed here: its session is opened
        first, as a worker remembers the closing of a session that it knows.
        """
        if session in self._unanswered:
            self._unanswered.discard(session)
            await self._json("POST", "/v1/sessions", also_ok=404, json={"session_id": session})
        return await self._json("DELETE", f"/v1/sessions/{session}", also_ok=404)

    async def sessions(self) -> dict[str, Any]:
        """What the worker says of its open sessions: `data`, one object each, and `open_references`."""
        return await self._json("GET", "/v1/sessions")

    async def workers(self) -> list[dict[str, Any]]:
        """The workers of a router, as it sees them."""
        return list((await self._json("GET", "/v1/workers"))["data"])

    async def flush(self) -> None:
        """Empty the cache, so that a pass starts cold. Sessions and their ids stay."""
        await self._json("POST", "/flush_cache")

    async def metrics(self) -> str:
        """The worker's Prometheus page."""
        async with self._response("GET", "/metrics") as response:
            return await response.text()

    async def is_ready(self) -> bool:
        """True once the worker takes requests; False while nothing answers."""
        try:
            async with self._response("GET", "/ready") as response:
                return response.status == 200
        except CacheError:
            return False

    async def _try(self, ask: Ask) -> tuple[Outcome, float]:
        """The outcome, and after how many seconds to try again (0: do not)."""
        answer = StreamedAnswer(self._clock)
        body = BytesIO(json.dumps(ask.body(self.model)).encode())
        headers = {"content-type": "application/json", **ask.headers()}
        async with self._response("POST", ask.path, data=body, headers=headers) as response:
            if response.status != 200:
                busy = response.status == 429
                said = response.headers.get("retry-after", "")
                wait_s = float(said if said.isdigit() else 1) if busy else 0.0
                return _refused(response.status, await response.text()), wait_s
            async for event in events(response.content):
                answer.add(event)
        return answer.outcome(), 0.0

    async def _json(self, method: str, path: str, also_ok: int = 200, **body: Any) -> dict[str, Any]:
        async with self._response(method, path, headers=self._operator, **body) as response:
            text = await response.text()
            if response.status not in (200, 201, also_ok):
                refused = _refused(response.status, text)
                raise self._unreachable(f"{method} {path} answered {refused.status}: {refused.message}")
            try:
                return cast(dict[str, Any], json.loads(text)) if text.startswith("{") else {}
            except ValueError:
                raise self._unreachable(f"{method} {path} answered something that is not JSON") from None

    @asynccontextmanager
    async def _response(
        self, method: str, path: str, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._http.request(method, self.url + path, **options) as response:
                yield response
        except _UNREACHABLE as error:
            raise self._unreachable(str(error) or "it stopped answering") from None
        except aiohttp.ClientError as error:
            raise self._unreachable(f"{type(error).__name__}: {error}") from None

    def _unreachable(self, why: str) -> CacheError:
        message = (
            f"no worker answers at {self.url}: {why}. Start one with `agentcache serve`, or correct --url"
        )
        return CacheError(Kind.UNREACHABLE, message)


@asynccontextmanager
async def worker_client(
    url: str, clock: Clock, pause: Pause = asyncio.sleep, bearer: str = ""
) -> AsyncIterator[WorkerClient]:
    """A client of the worker at `url`, with its connections closed at the end."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, read_bufsize=2**20) as http:
        yield WorkerClient(url, http, clock, pause, bearer)


def _refused(status: int, text: str) -> Refused:
    """The OpenAI error object, or the start of whatever else was answered."""
    try:
        error = json.loads(text)["error"]
        return Refused(status, str(error.get("code") or status), str(error.get("message")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Refused(status, str(status), text.strip()[:200] or "no message")

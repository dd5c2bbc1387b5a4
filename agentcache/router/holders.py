"""What workers hold of a session, asked from themselves."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec

from agentcache.errors import CacheError
from agentcache.router.forwarding import OURS, session_path
from agentcache.router.sglang import Find
from agentcache.router.upstream import Reply
from agentcache.store.api import SessionRef
from agentcache.wire import HeldPart

Bearer = Callable[[str, str], str]
"""Worker and URL → the operator's token there (`wire.TagSigner.bearer`)."""
Get = Callable[[str, Mapping[str, str], float], Awaitable[Reply]]
"""URL, headers and a time limit in seconds → the answer. Errors: CacheError(UPSTREAM_FAILED)."""
ASK_S: Final = 1.0
"""For one answer."""
ALL_S: Final = 2.0
"""For all answers about one family."""
AT_ONCE: Final = 8
"""Questions to one worker at a time."""
_FOUND, _UNKNOWN = 200, 404


class Wait(msgspec.Struct, frozen=True):
    """What a session does at a worker, as that shows it. Times in seconds."""

    state: str = "idle"
    kind: str = "unknown"
    since_s: float | None = None
    expected_s: float | None = None
    hint_s: float | None = None
    hint_believed: bool | None = None


class SeenTurn(msgspec.Struct, frozen=True):
    """One turn of a session as its worker remembers it. `at` is when it began, Unix time there; cached by tier."""

    at: float = 0.0
    generation: int = 0
    prompt_tokens: int = 0
    cached_tokens: dict[str, int] = {}
    why: str = ""
    reason: str = "unknown"
    component: str = ""
    token: int = 0
    diverged_at: int | None = None


class HolderView(msgspec.Struct, frozen=True):
    """What a worker shows of a session (`GET /v1/sessions/ID` there)."""

    state: str = "none"
    queued: int = 0
    running: int = 0
    markers: int = 0
    held: tuple[HeldPart, ...] = ()
    wait: Wait | None = None
    turns: tuple[SeenTurn, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """The answer of one holder; `said` is why there is none."""

    worker: str
    view: HolderView
    said: str = ""


class Holders:
    """Asks workers with the operator's token for each, `bearer`. No answer in time is an answer too.

    Each worker gets a few questions at a time, and whoever asks for many sessions waits `all_s` for all of them.
    """

    def __init__(self, find: Find, get: Get, bearer: Bearer, all_s: float = ALL_S) -> None:
        self._find = find
        self._get = get
        self._bearer = bearer
        self._all_s = all_s

    async def ask(self, ref: SessionRef, workers: tuple[str, ...]) -> tuple[Asked, ...]:
        """What each of these workers has of a session; all at once, each for at most `ASK_S`."""
        (asked,) = await self.ask_all([(ref, workers)])
        return asked

    async def ask_all(
        self, sessions: Sequence[tuple[SessionRef, tuple[str, ...]]]
    ) -> list[tuple[Asked, ...]]:
        """What workers have of sessions, for each in turn."""
        until_s = asyncio.get_running_loop().time() + self._all_s
        turns: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(AT_ONCE))

        async def asked(ref: SessionRef, worker: str) -> Asked:
            async with turns[worker]:
                left_s = until_s - asyncio.get_running_loop().time()
                return await self._ask(ref, worker, min(ASK_S, left_s))

        answers = iter(
            await asyncio.gather(*(asked(ref, worker) for ref, workers in sessions for worker in workers))
        )
        return [tuple(islice(answers, len(workers))) for _, workers in sessions]

    async def _ask(self, ref: SessionRef, worker: str, wait_s: float) -> Asked:
        view = self._find(worker)
        if not view:
            return Asked(worker, HolderView(), "no worker has this name now")
        if view.kind != OURS:
            return Asked(worker, HolderView(), "it does not say what it holds")
        if not view.alive:
            return Asked(worker, HolderView(), "it is not alive")
        if wait_s <= 0:
            return Asked(worker, HolderView(), "not asked: there was no time left")
        headers = {"authorization": f"Bearer {self._bearer(worker, view.url)}"}
        try:
            reply = await self._get(f"{view.url}{session_path(ref.tenant, ref.session)}", headers, wait_s)
        except CacheError:  # its words name an address, which is the operator's to know
            return Asked(worker, HolderView(), "it gave no answer")
        if reply.status == _UNKNOWN:
            return Asked(worker, HolderView())
        if reply.status != _FOUND:
            return Asked(worker, HolderView(), f"it answered {reply.status}")
        return _read(worker, reply.body)


def _read(worker: str, body: bytes) -> Asked:
    try:
        return Asked(worker, msgspec.json.decode(body, type=HolderView))
    except (ValueError, RecursionError):
        return Asked(worker, HolderView(), "its answer makes no sense")

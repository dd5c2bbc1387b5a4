"""Closing at servers that are no workers of ours: SGLang is told over HTTP, others hold nothing by session.

close ──► the server's queue ──► a few calls at a time ──► taken: a receipt
                ▲                          │
                └──── again, later ◄───────┴──► no answer, or not now
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from agentcache.errors import CacheError
from agentcache.router.fleet import WorkerView
from agentcache.router.forwarding import OURS, plain_session
from agentcache.router.lasting import Pause
from agentcache.router.upstream import Reply
from agentcache.store.api import SessionRef
from agentcache.web.reply import encode
from agentcache.wire import Order, Outcome, Receipt

Find = Callable[[str], WorkerView | None]
Post = Callable[[str, bytes, Mapping[str, str], float], Awaitable[Reply]]
"""URL, body, headers and a time limit in seconds → the answer. Errors: CacheError(UPSTREAM_FAILED)."""
Then = Callable[[Receipt], None]

AT_ONCE: Final = 8
"""Calls to one server at a time: a family closes thousands of sessions together."""
WAITING: Final = 100_000
"""Closes that may wait for one server; what comes beyond them has failed."""
REFUSALS: Final = 4
"""Answers that refuse a close (4xx), after which it has failed. A server that gives none is told for ever."""
FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 30.0
CALL_S: Final = 2.0
_LATER: Final = (408, 425, 429)


@dataclass(slots=True)
class _Close:
    """A close that waits, and who hears what came of it."""

    ref: SessionRef
    generation: int
    then: Then
    refusals: int = 0


@dataclass(slots=True)
class _Server:
    """One server's queue. `away`: its last call had no answer, which the log has said."""

    id: str
    url: str
    waiting: deque[_Close] = field(default_factory=deque)
    calls: set[asyncio.Task[None]] = field(default_factory=set)
    away: bool = False


class PlainServers:
    """The plain servers among a router's upstreams, as a close sees them.

    Closing twice is closing once: each close is told until the server takes it, or this process ends.
    """

    def __init__(self, find: Find, post: Post, pause: Pause = asyncio.sleep) -> None:
        self._find = find
        self._post = post
        self.pause = pause
        self._servers: dict[str, _Server] = {}

    def has(self, worker: str) -> bool:
        """Whether a holder is one of these: nobody else will tell it, and it sends no receipt."""
        view = self._find(worker)
        return bool(view and view.kind != OURS)

    def tell(self, ref: SessionRef, generation: int, worker: str, then: Then) -> None:
        """Tell one of these in the background that a session is closed; `then` hears what came of it."""
        view = self._find(worker)
        if not view or view.kind != "sglang":
            then(_receipt(ref, generation, worker, Outcome.UNKNOWN, "it knows no sessions"))
            return
        server = self._servers.setdefault(worker, _Server(worker, view.url))
        if len(server.waiting) >= WAITING:
            then(_receipt(ref, generation, worker, Outcome.FAILED, f"{WAITING} closes wait for it already"))
            return
        server.waiting.append(_Close(ref, generation, then))
        if len(server.calls) < AT_ONCE:
            server.calls.add(asyncio.ensure_future(self._work(server)))

    async def stop(self) -> None:
        """End all calls; the log says how many sessions stay open at a server that was away."""
        for server in self._servers.values():
            calls = tuple(server.calls)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            if server.waiting:
                structlog.get_logger().warning(
                    "closes_untold", server=server.id, sessions=len(server.waiting)
                )

    async def _work(self, server: _Server) -> None:
        """Tell what waits, one after another; ever more slowly while it is not taken."""
        pause_s = 0.0
        try:
            while server.waiting:
                if await self._once(server, server.waiting.popleft()):
                    pause_s = 0.0
                    continue
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s or FIRST_PAUSE_S)
                await self.pause(pause_s)
        finally:
            server.calls -= {asyncio.current_task()}

    async def _once(self, server: _Server, one: _Close) -> bool:
        """One attempt at one close; whether it is over. Else it waits again, behind the others."""
        try:
            status, said = await self._told(server.url, plain_session(one.ref.tenant, one.ref.session))
        except asyncio.CancelledError:
            server.waiting.append(one)
            raise
        self._heard(server, status, said)
        if not said:
            one.then(self._of(server, one, Outcome.RELEASED, "SGLang does not say what it held"))
            return True
        one.refusals += _refused(status)
        if one.refusals >= REFUSALS:
            one.then(self._of(server, one, Outcome.FAILED, said))
            return True
        server.waiting.append(one)
        return False

    async def _told(self, url: str, session: str) -> tuple[int, str]:
        """The status that it was answered, 0 for none, and why the close was not taken: "" where it was."""
        try:
            reply = await self._post(f"{url}/close_session", encode({"session_id": session}), {}, CALL_S)
        except CacheError as error:
            return 0, error.message
        taken = 200 <= reply.status < 300
        return reply.status, "" if taken else f"/close_session answered {reply.status}"

    def _heard(self, server: _Server, status: int, said: str) -> None:
        away = bool(said) and not _refused(status)
        if away and not server.away:
            structlog.get_logger().warning(
                "closes_wait", server=server.id, sessions=len(server.waiting) + 1, why=said
            )
        server.away = away

    def _of(self, server: _Server, one: _Close, outcome: Outcome, said: str) -> Receipt:
        return _receipt(one.ref, one.generation, server.id, outcome, said)


def _refused(status: int) -> bool:
    """Whether it has answered for good, and not by doing it."""
    return 400 <= status < 500 and status not in _LATER


def _receipt(ref: SessionRef, generation: int, worker: str, outcome: Outcome, said: str) -> Receipt:
    return Receipt(Order.CLOSE, ref.tenant, ref.session, generation, worker, outcome, said=said)

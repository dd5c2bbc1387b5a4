"""Closing at servers that are no workers of ours: SGLang is told over HTTP, others hold nothing by session."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from agentcache.errors import CacheError
from agentcache.router.fleet import WorkerView
from agentcache.router.forwarding import OURS, plain_session
from agentcache.router.upstream import Reply
from agentcache.store.api import SessionRef
from agentcache.web.reply import encode
from agentcache.wire import Order, Outcome, Receipt

Find = Callable[[str], WorkerView | None]
Post = Callable[[str, bytes, Mapping[str, str], float], Awaitable[Reply]]
"""URL, body, headers and a time limit in seconds → the answer. Errors: CacheError(UPSTREAM_FAILED)."""
Pause = Callable[[float], Awaitable[None]]

ATTEMPTS: Final = 4
FIRST_PAUSE_S: Final = 0.2
"""Before the second attempt; twice as long before each further one."""
CALL_S: Final = 2.0


class PlainServers:
    """The plain servers among a router's upstreams, as a close sees them."""

    def __init__(self, find: Find, post: Post, pause: Pause = asyncio.sleep) -> None:
        self._find = find
        self._post = post
        self.pause = pause

    def has(self, worker: str) -> bool:
        """Whether a holder is one of these: nobody else will tell it, and it sends no receipt."""
        view = self._find(worker)
        return bool(view and view.kind != OURS)

    async def close(self, ref: SessionRef, generation: int, worker: str) -> Receipt:
        """Tell one of these that a session is closed, again until it takes it: closing twice is closing once."""
        view = self._find(worker)
        if not view or view.kind != "sglang":
            return _receipt(ref, generation, worker, Outcome.UNKNOWN, "it knows no sessions")
        pause_s, said = FIRST_PAUSE_S, ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await self.pause(pause_s)
                pause_s *= 2
            said = await self._told(view.url, plain_session(ref.tenant, ref.session))
            if not said:
                return _receipt(ref, generation, worker, Outcome.RELEASED, "SGLang does not say what it held")
        return _receipt(ref, generation, worker, Outcome.FAILED, said)

    async def _told(self, url: str, session: str) -> str:
        """One attempt. "" once it was taken, else why not."""
        try:
            reply = await self._post(f"{url}/close_session", encode({"session_id": session}), {}, CALL_S)
        except CacheError as error:
            return error.message
        return "" if 200 <= reply.status < 300 else f"/close_session answered {reply.status}"


def _receipt(ref: SessionRef, generation: int, worker: str, outcome: Outcome, said: str) -> Receipt:
    return Receipt(Order.CLOSE, ref.tenant, ref.session, generation, worker, outcome, said=said)

"""Closes that are acknowledged: the store closes, every holder is told, and what each says is collected.

close ──► store (tombstones; notices to the holders) ──► receipts in this router's stream ──► answer
                                                    └──► plain servers over HTTP ─────────┘
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

import structlog

from agentcache.clock import Clock, SystemClock
from agentcache.errors import CacheError
from agentcache.router.lasting import Lasting
from agentcache.router.reclosing import EpochStore, Reclosing
from agentcache.router.sglang import PlainServers
from agentcache.store.api import (
    ClosedFamily,
    ClosedOne,
    CloseVerdict,
    Closing,
    SessionRef,
)
from agentcache.wire import HeldPart, Outcome, Receipt

PENDING: Final = "pending"
"""Said of a holder that has not answered yet. It was told, and is told again when it comes back."""
READ_S: Final = 1.0
"""How long one look into the stream of receipts waits."""
STORE_PAUSE_S: Final = 0.5
CLOCK: Final = SystemClock()

_Place = tuple[str, str]
"""A session and a worker."""


class CloseStore(EpochStore, Protocol):
    """What a close asks of the session store."""

    async def receipts(self, router: str, after: str, wait_s: float) -> tuple[tuple[str, Receipt], ...]: ...


@dataclass(frozen=True, slots=True)
class Told:
    """What one holder said of one session: an `Outcome`, or PENDING."""

    worker: str
    outcome: str = PENDING
    mode: str = ""
    markers: int = 0
    released: tuple[HeldPart, ...] = ()
    said: str = ""


@dataclass(frozen=True, slots=True)
class ClosedSession:
    """One session that this close has closed, with a word of each holder."""

    session: str
    generation: int
    told: tuple[Told, ...] = ()


@dataclass(frozen=True, slots=True)
class CloseAnswer:
    """The end of a close, parents first. `more`: descendants were left, because the store stopped answering or the
    session was opened again; the sweeper goes on with them."""

    verdict: CloseVerdict
    generation: int = 0
    sessions: tuple[ClosedSession, ...] = ()
    more: bool = False


class Closer:
    """Closes for one router process. `run` reads its receipts, without it every holder is PENDING; and it closes again
    when the store has lost its data.
    """

    def __init__(
        self,
        store: CloseStore,
        router_id: str,
        new_id: Callable[[], str],
        plain: PlainServers,
        wait_s: float = 2.0,
        clock: Clock = CLOCK,
    ) -> None:
        self._store = store
        self._router_id = router_id
        self._new_id = new_id
        self._plain = plain
        self._wait_s = wait_s
        self._reclosing = Reclosing(store, clock)
        self._operations: dict[str, _Operation] = {}
        self._after = ""
        self._down = False

    async def close(self, ref: SessionRef, generation: int | None = None, mode: str = "") -> CloseAnswer:
        """Close a session and its descendants, and wait a while for what their holders say. Again is the same.

        `mode` "" is each session's own `on_close`.

        Errors   CacheError(STORE_FAILED): whether it was closed is in doubt
        """
        name = self._new_id()
        operation = self._operations[name] = _Operation()
        try:
            family, closed, more = await self._close_all(
                ref, Closing(generation, mode, name, self._router_id)
            )
            self._remember(ref.tenant, closed, mode)
            self._tell_plain(ref.tenant, closed, operation)
            expected = {(one.session, worker) for one in closed for worker in one.holders}
            await operation.complete(expected, self._wait_s)
        finally:
            del self._operations[name]
        sessions = tuple(ClosedSession(one.session, one.generation, operation.told(one)) for one in closed)
        return CloseAnswer(family.verdict, family.generation, sessions, more)

    async def close_plain(self, ref: SessionRef, generation: int, worker: str) -> None:
        """Close at one plain server again, for a request that ended there after its session; nothing elsewhere."""
        if self._plain.has(worker):
            self._plain.tell(ref, generation, worker, _log_failed)

    def closed(self, one: ClosedOne) -> None:
        """Take note of a session that the sweeper closed, and tell the plain servers that hold of it."""
        self._remember(one.tenant, (one,), "")
        self.lapsed(one)

    def lapsed(self, one: ClosedOne) -> None:
        """Tell the plain servers that hold of a session that idled out, in the background."""
        self._tell_plain(one.tenant, (one,), _Operation())

    async def run(self) -> None:
        """Read receipts until cancelled. A store that does not answer is asked again a little later."""
        await Lasting("receipts", self._plain.pause).run(self._read)

    async def stop(self) -> None:
        """End the calls to plain servers that still run."""
        await self._plain.stop()

    async def _read(self) -> float:
        try:
            await self._look()
        except CacheError as error:
            if not self._down:
                structlog.get_logger().warning("receipts_unread", why=error.message)
            self._down = True
            return STORE_PAUSE_S
        self._down = False
        return 0.0

    async def _look(self) -> None:
        """One look into the stream of receipts; the next one begins after what this one took, in a new store at its
        beginning."""
        if await self._reclosing.lost():
            self._after = ""
        await self._reclosing.catch_up()
        for place, receipt in await self._store.receipts(self._router_id, self._after, READ_S):
            self._after = place
            self._take(receipt)

    async def _close_all(
        self, ref: SessionRef, closing: Closing
    ) -> tuple[ClosedFamily, tuple[ClosedOne, ...], bool]:
        """The first answer of the store, and what it and those that went on with it have closed.

        A session that is opened again meanwhile stays open; what of its former family is left is the sweeper's.
        """
        first = family = await self._store.close(ref, closing)
        closed, going_on = list(first.closed), replace(closing, generation=first.generation)
        while family.more:
            try:
                family = await self._store.close(ref, going_on)
            except CacheError:
                return first, tuple(closed), True
            if family.verdict is CloseVerdict.STALE:
                return first, tuple(closed), True
            closed += family.closed
        return first, tuple(closed), False

    def _remember(self, tenant: str, closed: tuple[ClosedOne, ...], mode: str) -> None:
        for one in closed:
            self._reclosing.remember(SessionRef(tenant, one.session), one.generation, mode)

    def _tell_plain(self, tenant: str, closed: tuple[ClosedOne, ...], operation: "_Operation") -> None:
        def then(receipt: Receipt) -> None:
            operation.take(receipt)
            _log_failed(receipt)

        for one in closed:
            for worker in filter(self._plain.has, one.holders):
                self._plain.tell(SessionRef(tenant, one.session), one.generation, worker, then)

    def _take(self, receipt: Receipt) -> None:
        if operation := self._operations.get(receipt.operation):
            operation.take(receipt)
        _log_failed(receipt)


class _Operation:
    """The receipts of one close as they arrive, which may be before the store's own answer."""

    def __init__(self) -> None:
        self._receipts: dict[_Place, Receipt] = {}
        self._missing: set[_Place] = set()
        self._arrived = asyncio.Event()

    def take(self, receipt: Receipt) -> None:
        place = (receipt.session, receipt.worker)
        self._receipts[place] = receipt
        self._missing.discard(place)
        if not self._missing:
            self._arrived.set()

    async def complete(self, expected: set[_Place], wait_s: float) -> None:
        """Wait until all of these are there, but no longer than `wait_s`."""
        self._missing = expected - self._receipts.keys()
        if self._missing:
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._arrived.wait()

    def told(self, one: ClosedOne) -> tuple[Told, ...]:
        return tuple(self._told(one.session, worker) for worker in one.holders)

    def _told(self, session: str, worker: str) -> Told:
        receipt = self._receipts.get((session, worker))
        if not receipt:
            return Told(worker)
        return Told(
            worker, str(receipt.outcome), receipt.mode, receipt.markers, receipt.released, receipt.said
        )


def _log_failed(receipt: Receipt) -> None:
    """A close that a holder could not do is the operator's to know, whoever asked for it."""
    if receipt.outcome is Outcome.FAILED:
        structlog.get_logger().warning(
            "close_failed",
            tenant=receipt.tenant,
            session=receipt.session,
            worker=receipt.worker,
            why=receipt.said,
        )

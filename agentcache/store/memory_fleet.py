"""The fleet's side of a store in memory: workers, receipts, and the sweep."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from agentcache.store.api import ClosedOne, Page, SessionRef, Swept, WorkerEntry
from agentcache.store.memory_books import GONE_BEATS, Books, name_of, settle
from agentcache.store.memory_closing import close_left
from agentcache.store.memory_expiry import Idled, idle_out
from agentcache.store.memory_sessions import MemorySessions
from agentcache.store.places import WALK
from agentcache.wire import Outcome, Receipt

Found = TypeVar("Found")


class MemoryFleet:
    """What routers ask about workers, and what keeps the store tidy."""

    def __init__(self, books: Books) -> None:
        self.books = books

    async def prepare(self) -> str:
        return self.books.epoch

    async def forget(self) -> None:
        self.books.lose()

    async def raise_above(self, ref: SessionRef, generation: int) -> int:
        self.books.last = max(self.books.last, generation)
        session = self.books.open.get(ref)
        if not session:
            return 0
        if session.generation <= generation:
            session.generation = self.books.issue()
        return session.generation

    async def recent(self, tenant: str, limit: int) -> Page:
        books, sessions = self.books, MemorySessions(self.books)
        leases = sorted(
            ((one.deadline_ms, name_of(ref), ref) for ref, one in books.open.items()), reverse=True
        )
        every = [ref for _, ref in books.tenant(tenant)]
        ours = [ref for *_, ref in leases[:WALK] if ref.tenant == tenant]
        chosen = list(dict.fromkeys([*ours, *reversed(every)]))[:limit]
        return Page(tuple([await sessions.look(ref) for ref in chosen]), "", len(every))

    async def workers(self) -> tuple[WorkerEntry, ...]:
        watch, now_ms = self.books.watch, self.books.now_ms()
        watch.look(now_ms)
        alive_ms = now_ms - self.books.rules.worker_s * 1000
        desks = sorted(self.books.desks.items(), key=lambda one: one[0].encode())
        return tuple(
            WorkerEntry(
                desk.card,
                desk.load,
                watch.heard(desk.heard_ms, now_ms) > alive_ms,
                desk.heard_ms,
                desk.draining,
            )
            for _, desk in desks
        )

    async def drain(self, worker: str, draining: bool) -> bool:
        if worker not in self.books.desks:
            return False
        self.books.desks[worker].draining = draining
        return True

    async def receipts(self, router: str, after: str, wait_s: float) -> tuple[tuple[str, Receipt], ...]:
        def found() -> tuple[tuple[str, Receipt], ...]:
            stream = self.books.answers.get(router, [])
            return tuple((str(place), receipt) for place, receipt in stream if place > int(after or 0))

        return await waited(self.books, found, wait_s)

    async def sweep(self, limit: int) -> Swept:
        books = self.books
        _, books.watch.swept_ms = books.epoch, books.now_ms()
        books.watch.look(books.now_ms())
        self._dismiss_gone()
        old_ms = books.now_ms() - books.rules.tombstone_s * 1000
        old = [ref for ref, tomb in books.tombs.items() if tomb.closed_ms <= old_ms]
        for ref in sorted(old, key=lambda one: (books.tombs[one].closed_ms, name_of(one)))[:limit]:
            del books.tombs[ref]
        closed, looked = self._finish_closes(limit)
        due = [ref for ref, session in books.open.items() if session.deadline_ms <= books.now_ms()]
        due.sort(key=lambda one: (books.open[one].deadline_ms, name_of(one)))
        idled = Idled()
        for ref in due[: limit - looked]:
            idle_out(books, ref, idled)
        return Swept(
            offered=idled.asked,
            expired=idled.ended,
            closed=closed,
            lapsed=tuple(idled.lapsed),
            again=len(old) > limit or bool(self._abandoned()) or len(due) > limit - looked,
        )

    def _dismiss_gone(self) -> None:
        """Workers that were not heard for long: they hold nothing, and routers wait for them no longer."""
        watch, now_ms = self.books.watch, self.books.now_ms()
        gone_ms = now_ms - self.books.rules.worker_s * 1000 * GONE_BEATS
        desks = self.books.desks.items()
        for worker in [name for name, desk in desks if watch.heard(desk.heard_ms, now_ms) <= gone_ms]:
            settle(self.books, worker, Outcome.FAILED, "the worker is gone")
            del self.books.desks[worker]
            self.books.mail.pop(worker, None)

    def _finish_closes(self, limit: int) -> tuple[tuple[ClosedOne, ...], int]:
        """Go on with abandoned closes. Answers what was closed, and how many were looked at."""
        closed: list[ClosedOne] = []
        looked = 0
        for root in self._abandoned():
            some, more = close_left(self.books, root, limit - looked)
            closed += some
            looked += more
        return tuple(closed), looked

    def _abandoned(self) -> list[SessionRef]:
        """Closes that nobody goes on with, oldest first; those of a later hour are of before the clock went back."""
        now_ms, left = self.books.now_ms(), self.books.leftovers
        waited_ms = round(self.books.rules.abandoned_s * 1000)
        found = [root for root, one in left.items() if not 0 <= now_ms - one.closed_ms < waited_ms]
        return sorted(found, key=lambda one: (left[one].closed_ms, name_of(one)))


async def waited(books: Books, found: Callable[[], Found], wait_s: float) -> Found:
    """What is found, at once or when something arrives within `wait_s`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            while not found():
                await books.arrived.wait()
    return found()

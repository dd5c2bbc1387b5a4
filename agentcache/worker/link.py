"""A worker's tie to its routers: it registers, beats, reads its notices, answers for them, and offers what it has.

    cursors ──► register ──┬── each second a beat: load, highest generation
                           ├── offers: what became known here; everything after a loss, and now and then
                           └── a mailbox per shard: notice ──► engine ──► receipt

The store may be away for as long as it likes: all of it is tried again, the log says so once, and requests that come
are served meanwhile. Nothing here is remembered across a start: a worker that starts anew has nothing.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

import structlog

from agentcache.clock import Clock
from agentcache.errors import CacheError, Kind
from agentcache.routed import KnownSession
from agentcache.store.api import WorkerDesk
from agentcache.wire import Notice, Receipt, Role, WorkerCard
from agentcache.worker.link_mail import Mailbox
from agentcache.worker.link_orders import Following, failed, offers_of
from agentcache.worker.link_standing import Caller, Contact, Doubts, Pace, Pulse

OFFERS_AT_ONCE: Final = 200
NOTICES_AT_ONCE: Final = 64
FAREWELL_S: Final = 1.0
FIRST_CONTACT_S: Final = 2.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 5.0

log = structlog.get_logger(__name__)


class Link(Protocol):
    """What a server tells of its life."""

    async def start(self) -> None:
        """Requests are taken from now on. Returns once a store knows the worker, or soon where none answers."""

    async def drain(self) -> None:
        """No new work is taken."""

    async def stop(self) -> None:
        """The engine has ended. Idempotent."""


class NoLink:
    """A worker that stands alone."""

    async def start(self) -> None:
        """Nobody to tell."""

    async def drain(self) -> None:
        """Nobody to tell."""

    async def stop(self) -> None:
        """Nobody to tell."""


NO_LINK: Final = NoLink()


class RouterLink:
    """The tie of one worker, over its desk at the store.

    Caller  uses it in one event loop; `beat`, `offer` and `read_mail` are single steps of what `start` repeats
    """

    def __init__(
        self, desk: WorkerDesk, card: WorkerCard, thread: Caller, clock: Clock, pace: Pace | None = None
    ) -> None:
        self._desk = desk
        self._card = card
        self._thread = thread
        self._pace = pace or Pace()
        self._boxes = [Mailbox(desk, card.worker, shard, self._obey) for shard in range(desk.shards)]
        self._following = Following(card.worker)
        self._pulse = Pulse(thread)
        self._contact = Contact(clock)
        self._doubts = Doubts()
        self._begun = False
        self._tasks: list[asyncio.Task[None]] = []
        self._beating = asyncio.Lock()
        self.draining = False

    async def start(self) -> None:
        steps = [self._repeat(self.beat, self._pace.beat_s), self._repeat(self.offer, self._pace.beat_s)]
        steps += [self._repeat(partial(self._wait_for_mail, shard), 0.0) for shard in range(len(self._boxes))]
        self._tasks = [asyncio.ensure_future(step) for step in steps]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._contact.first.wait(), FIRST_CONTACT_S)

    async def drain(self) -> None:
        self.draining = True
        await _last_word(self.beat())

    async def stop(self) -> None:
        if not self._tasks:
            return
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._pulse.stop()
        await _last_word(self._desk.leave(self._card.worker, self._card.incarnation))

    async def beat(self) -> None:
        """Say how the worker is, and register where nobody knows it.

        Errors  CacheError(STORE_FAILED): call it again
        """
        async with self._beating:
            if not self._begun:
                await self._begin()
            sample = await self._pulse.sample(self._contact.epoch, self._contact.silent_s(), self.draining)
            self._doubts.add(sample.unconfirmed)
            card = self._card
            beat = await self._desk.heartbeat(card.worker, card.incarnation, sample.highest, sample.load)
            if beat.epoch != self._contact.epoch:
                self._doubts.add_all(lost=True)
            self._contact.found(beat.epoch, beat.unswept_s)
            if not beat.known:
                self._doubts.add_all(lost=False)
                await self._register()

    async def offer(self) -> None:
        """Offer what is in doubt, and follow what the store says of it. Waits for the engine.

        A beat goes before it: whether the store has lost its data must be known, or it would be taken at its word.

        Errors  CacheError: call it again; what was in doubt still is
        """
        if self._doubts.any:
            await self.beat()
        doubts, self._doubts = self._doubts, self._doubts.later(self._pace)
        try:
            await self._offer_these([one for one in doubts.some if one.lost], lost=True)
            if doubts.all_of_it:
                everything = await self._thread.call(lambda engine: engine.cache.known_sessions())
                await self._offer_these(everything, doubts.lost)
            await self._offer_these([one for one in doubts.some if not one.lost], lost=False)
        except CacheError:
            self._doubts.put_back(doubts)
            raise

    async def read_mail(self, shard: int = 0, wait_s: float = 0.0) -> None:
        """Read, follow and answer what has come for one shard. Errors: CacheError(STORE_FAILED): call it again."""
        if await self._boxes[shard].read(wait_s):
            self._doubts.add_all(lost=False)

    async def _begin(self) -> None:
        """Cursors first: what is told to this incarnation once it is registered must not be missed."""
        for box in self._boxes:
            await box.begin()
        self._contact.epoch = await self._desk.register(self._card)
        self._begun = True

    async def _register(self) -> None:
        """Once more: the store forgot the worker, or gave it up."""
        await self._desk.register(self._card)
        if self._contact.is_stranger_again():
            log.error(
                "router.same_worker_id",
                worker=self._card.worker,
                what="another worker registers under this id too: give each its own with --worker-id",
            )

    async def _offer_these(self, known: Sequence[KnownSession], lost: bool) -> None:
        for first in range(0, len(known), OFFERS_AT_ONCE):
            some = known[first : first + OFFERS_AT_ONCE]
            offers = offers_of(some, prefill=self._card.role == Role.PREFILL)
            answers = await self._desk.offer(self._card.worker, offers, lost)
            await self._thread.call(partial(self._following.settle, known=some, answers=answers))

    async def _obey(self, notices: Sequence[Notice]) -> Sequence[Receipt]:
        receipts: list[Receipt] = []
        for first in range(0, len(notices), NOTICES_AT_ONCE):
            some = notices[first : first + NOTICES_AT_ONCE]
            try:
                receipts += await self._thread.call(partial(self._following.obey, notices=some))
            except CacheError as error:  # the engine has ended
                receipts += [failed(notice, self._card.worker, str(error)) for notice in some]
        return receipts

    async def _wait_for_mail(self, shard: int) -> None:
        await self._contact.first.wait()
        await self.read_mail(shard, self._pace.mail_s)

    async def _repeat(self, step: Callable[[], Awaitable[None]], pause_s: float) -> None:
        """Take a step for ever; ever more slowly while it fails."""
        failures = 0
        while True:
            try:
                await step()
                failures = 0
            except CacheError as error:
                failures += 1
                if error.kind is Kind.STORE_FAILED:
                    self._doubts.add_all(lost=False)
                    self._contact.lost(error)
            except Exception:
                failures += 1
                log.exception("router.link_failed")
            backing_off = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures, 10))
            await self._pace.pause(backing_off if failures else pause_s)


async def _last_word(call: Awaitable[object]) -> None:
    """Tell the store, if it listens now: nothing that fails here keeps a worker from ending."""
    try:
        await asyncio.wait_for(call, FAREWELL_S)
    except (CacheError, TimeoutError):
        return
    except Exception:
        log.exception("router.link_failed")

"""What a link knows between two steps: how the engine is, whether the store is there, and what must be asked of it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import structlog

from agentcache.clock import Clock
from agentcache.engine.engine import Engine
from agentcache.errors import CacheError
from agentcache.routed import KnownSession
from agentcache.types import SessionId
from agentcache.wire import WorkerLoad
from agentcache.worker.link_mail import MAIL_WAIT_S
from agentcache.worker.link_orders import Sample, take_sample

T = TypeVar("T")
PATIENCE_S: Final = 0.5
"""How long a beat waits for the engine: in a long step the load is that of the last beat."""
STUCK_BEATS: Final = 60
"""After so many beats without a word from the engine the worker takes no new work."""
DOUBTED: Final = 8192
NEVER_S: Final = 1e9
STRANGER, SUSPICIOUS = 3, 9
"""How much each time weighs that the store does not know the worker, against one for each that it does; and when
it is too much."""

log = structlog.get_logger(__name__)


class Caller(Protocol):
    """Runs functions on an engine's thread; `EngineThread` does."""

    async def call(self, function: Callable[[Engine], T]) -> T: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """When what is done, in seconds. `pause` waits; tests have their own."""

    beat_s: float = 1.0
    offer_s: float = 60.0  # everything is offered so often: what any fault has left behind is found
    mail_s: float = MAIL_WAIT_S
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep


class Doubts:
    """What the store is to be asked about: some sessions, or all of it, after a loss of the store's data or not.

    Of many more than `DOUBTED` sessions no list is kept: then it is all of it.
    """

    def __init__(self) -> None:
        self._some: dict[SessionId, KnownSession] = {}
        self.all_of_it = False
        self.lost = False
        self._turns = 0

    @property
    def any(self) -> bool:
        """Whether there is something to ask."""
        return self.all_of_it or bool(self._some)

    @property
    def some(self) -> tuple[KnownSession, ...]:
        """The sessions in doubt, each as it was last known."""
        return tuple(self._some.values())

    def add(self, some: tuple[KnownSession, ...]) -> None:
        """These are in doubt."""
        self._some.update((one.session, one) for one in some)
        if len(self._some) > DOUBTED:
            self.add_all(lost=False)
            self._some = {session: one for session, one in self._some.items() if one.lost}
        if len(self._some) > DOUBTED:
            self.add_all(lost=True)
            self._some = {}

    def add_all(self, lost: bool) -> None:
        """All is in doubt."""
        self.all_of_it = True
        self.lost = self.lost or lost

    def put_back(self, doubts: "Doubts") -> None:
        """These were not settled."""
        newer, self._some = self.some, {}
        self.add(doubts.some)
        self.add(newer)
        if doubts.all_of_it:
            self.add_all(doubts.lost)

    def later(self, pace: Pace) -> "Doubts":
        """What is in doubt once these are settled: nothing, or all of it where it is time to look again."""
        doubts = Doubts()
        doubts._turns = 0 if self.all_of_it else self._turns + 1
        doubts.all_of_it = doubts._turns * pace.beat_s >= pace.offer_s
        return doubts


class Contact:
    """Whether the store answers, and as which; says a change once. `first` is set once it has answered."""

    def __init__(self, clock: Clock) -> None:
        self.first = asyncio.Event()
        self.epoch = ""
        self._clock = clock
        self._there = True
        self._heard_ns = 0
        self._strangeness = 0
        self._suspects = False

    def found(self, epoch: str, unswept_s: float = 0.0) -> None:
        """It answered; a router was there `unswept_s` ago."""
        self.epoch = epoch
        self._heard_ns = self._clock.now_ns() - round(unswept_s * 1e9)
        self._strangeness = max(0, self._strangeness - 1)
        self.first.set()
        if not self._there:
            self._there = True
            log.info("router.store_is_back")

    def lost(self, error: CacheError) -> None:
        """It did not answer."""
        if self._there:
            self._there = False
            log.warning("router.store_is_away", error=str(error), what="serving goes on; it is tried again")

    def silent_s(self) -> float:
        """Seconds since a router was last there, as far as the store could say."""
        if not self.first.is_set():
            return NEVER_S
        return (self._clock.now_ns() - self._heard_ns) / 1e9

    def is_stranger_again(self) -> bool:
        """The store did not know the worker. True once that is so often that somebody else must have its name."""
        self._strangeness += STRANGER
        news = self._strangeness >= SUSPICIOUS and not self._suspects
        self._suspects = self._suspects or news
        return news


class Pulse:
    """Samples of an engine that may be in the middle of a long step, stuck, or gone."""

    def __init__(self, thread: Caller, patience_s: float = PATIENCE_S) -> None:
        self._thread = thread
        self._patience_s = patience_s
        self._asked: asyncio.Future[Sample] | None = None
        self._last = Sample(WorkerLoad())
        self._missed = 0

    async def sample(self, epoch: str, silent_s: float, draining: bool) -> Sample:
        """How the engine is, or was; what is unconfirmed is told once."""
        asked = self._asked or asyncio.ensure_future(
            self._thread.call(lambda engine: take_sample(engine, epoch, silent_s))
        )
        done, _ = await asyncio.wait({asked}, timeout=self._patience_s)
        if not done:
            self._asked = asked
            self._missed += 1
            return self._known(draining or self._missed >= STUCK_BEATS)
        self._asked, self._missed = None, 0
        try:
            fresh = asked.result()
        except CacheError:  # the engine has ended
            return self._known(draining=True)
        self._last = Sample(fresh.load, fresh.highest)
        return Sample(self._known(draining).load, fresh.highest, fresh.unconfirmed)

    def stop(self) -> None:
        """Wait for nothing any more."""
        if self._asked:
            self._asked.cancel()

    def _known(self, draining: bool) -> Sample:
        load = self._last.load
        told = WorkerLoad(load.waiting, load.running, load.open_sessions, draining)
        return Sample(told, self._last.highest)

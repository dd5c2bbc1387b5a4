"""What the threads of an external tier ask on nobody's flight: questions of a lookup, a probe, and upkeep."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from agentcache.keys import object_name
from agentcache.tiers.alarm import NEVER_NS, Alarm
from agentcache.tiers.api import Keep, Presence
from agentcache.tiers.crew import Crew, Lane
from agentcache.tiers.flights import Terms
from agentcache.tiers.knowledge import Identity
from agentcache.tiers.moves import Desk
from agentcache.tiers.rules import NS
from agentcache.tiers.stores.api import BlobStore
from agentcache.types import ComponentName

ASKED_AT_ONCE = 256  # names in one call that moves no data
PATHS = 32  # whose order of use is to be set
PROBE = object_name(bytes(32), ComponentName("PROBE"))


class Question:
    """Whether objects are there: open until every answer is known, or until it is ended without."""

    def __init__(self, desk: Desk, wanted: Sequence[Identity], terms: Terms) -> None:
        self.terms = terms
        self.calling = False
        self._desk = desk
        self._left = list(wanted)
        self._lock = threading.Lock()
        self._open = True
        self._late = False

    @property
    def live(self) -> bool:
        return self._open

    def close(self, late: bool = False) -> bool:
        """End it: what was not answered cannot be said now. True for the first who does."""
        with self._lock:
            first, self._open = self._open, False
            if first:
                self._late = late
                self._desk.standing.give_up(self._left)
            return first

    def step(self) -> bool:
        more = False
        try:
            more = self._open and self._desk.standing.asking and self._ask()
        except Exception as fault:  # whatever a store comes up with, the thread goes on
            self._failed(fault)
        if not more and self.close():
            self._desk.wake()
        return more

    def _ask(self) -> bool:
        batch = self._left[:ASKED_AT_ONCE]
        since_ns = self._desk.clock.now_ns()
        self.calling = True
        names = [object_name(page_hash, component) for component, page_hash in batch]
        answers = list(zip(batch, self._desk.store.exists(names), strict=True))
        self.calling = False
        if self._desk.clock.now_ns() < self.terms.deadline_ns:
            self._desk.standing.succeeded()
        with self._lock:
            if self._open:
                self._left = self._left[len(batch) :]
                self._desk.standing.answered(answers, since_ns)
                self._desk.standing.count(missed=sum(not found for _, found in answers))
        return bool(self._left) and self._open

    def _failed(self, fault: Exception) -> None:
        self.calling = False
        if not self._late:  # else it has been counted already
            self._desk.standing.failed(f"{type(fault).__name__}: {fault}")


class Questions:
    """The questions that are open, and the answers as far as they are known. The engine's thread's."""

    def __init__(self, desk: Desk, crew: Crew, alarm: Alarm) -> None:
        self._desk = desk
        self._crew = crew
        self._alarm = alarm
        self._open: list[Question] = []

    def answers(self, wanted: Sequence[Identity], now_ns: int) -> list[Presence]:
        """What is believed; what is unknown is asked, in one question, and PENDING until that ends."""
        answers = self._desk.standing.believed(wanted, now_ns)
        if not all(answers):
            unknown = (identity for identity, answer in zip(wanted, answers, strict=True) if not answer)
            self._ask(list(dict.fromkeys(unknown)), now_ns)
        return [answer or Presence.PENDING for answer in answers]

    def end_late(self, now_ns: int) -> None:
        standing = self._desk.standing
        for question in self._open:
            if now_ns >= question.terms.deadline_ns and question.close(late=True):
                standing.late(question.calling, question.terms.successes)
        self._open = [question for question in self._open if question.live]

    def end_all(self) -> None:
        for question in self._open:
            question.close()
        self._open = []

    @property
    def deadline_ns(self) -> int:
        """When the next one is late."""
        return min((question.terms.deadline_ns for question in self._open), default=NEVER_NS)

    @property
    def last_ns(self) -> int:
        """When the last one is late; 0 where there is none."""
        return max((question.terms.deadline_ns for question in self._open), default=0)

    @property
    def settled(self) -> bool:
        return not any(question.live for question in self._open)

    def _ask(self, unknown: list[Identity], now_ns: int) -> None:
        standing = self._desk.standing
        standing.learn(unknown, Presence.PENDING)
        terms = Terms(now_ns + self._desk.rules.deadline_ns, standing.successes)
        question = Question(self._desk, unknown, terms)
        self._open.append(question)
        self._crew.put(Lane.ASK, question)
        self._alarm.not_after(terms.deadline_ns)


class Probe:
    """A question to a store that failed, on which nobody waits. Queued at most once, though all threads hang."""

    live = True

    def __init__(self, desk: Desk, crew: Crew) -> None:
        self._desk = desk
        self._crew = crew
        self._queued = False

    def send(self) -> None:
        if not self._queued:
            self._queued = True
            self._crew.put(Lane.ASK, self)

    def step(self) -> bool:
        self._queued = False
        try:
            self._desk.store.exists([PROBE])
        except Exception:
            self._desk.standing.probed(False)
        else:
            self._desk.standing.probed(True)
        return False


class Upkeep:
    """Soft classes, the order of use and the backend's own figures, when nothing else is to do.

    Best effort: what comes while the store is not asked, or beyond `max_known` names and a few paths, is dropped.
    Classes go before the order: an object that changes its class is the newest in it.
    """

    live = True

    def __init__(self, desk: Desk, crew: Crew) -> None:
        self._desk = desk
        self._crew = crew
        self._lock = threading.Lock()
        self._keeps: dict[str, Keep] = {}
        self._paths: deque[Iterator[Identity]] = deque(maxlen=PATHS)
        self._path: Iterator[Identity] = iter(())  # of `step` alone
        self._stale = False
        self._refresh_ns = 0
        self._queued = False

    def retain(self, names: Iterable[str], keep: Keep) -> None:
        """The last word about an object counts."""
        with self._lock:
            for name in names:
                self._keeps.pop(name, None)
                self._keeps[name] = keep
            while len(self._keeps) > self._desk.rules.max_known:
                del self._keeps[next(iter(self._keeps))]
            self._enter()

    def touch(self, objects: Iterator[Identity]) -> None:
        """These were used now, the first one first."""
        with self._lock:
            self._paths.append(objects)
            self._enter()

    def refresh(self, now_ns: int) -> None:
        """Ask the backend for its figures, unless that was done not long ago."""
        with self._lock:
            if now_ns >= self._refresh_ns:
                self._refresh_ns = now_ns + int(self._desk.rules.status_s * NS)
                self._stale = True
                self._enter()

    def step(self) -> bool:
        midway = False
        try:
            midway = self._do(self._desk.store)
        except Exception as fault:  # whatever a store comes up with, the thread goes on
            self._desk.standing.failed(f"{type(fault).__name__}: {fault}")
        with self._lock:
            self._queued = midway or self._stale or bool(self._keeps) or bool(self._paths)
            return self._queued

    def _enter(self) -> None:
        if not self._queued:
            self._queued = True
            self._crew.put(Lane.UPKEEP, self)

    def _do(self, store: BlobStore) -> bool:
        """Whether a path was begun and is not through."""
        with self._lock:
            stale, self._stale = self._stale, False
            path, self._path = self._path, iter(())
            if not self._desk.standing.asking:
                self._keeps.clear()
                self._paths.clear()
                return False
            names, keep = self._next_names()
        if stale:
            self._desk.standing.heard(store.status())
        if names:
            store.retain(names, keep)
            self._path = path
            return True
        return self._touch(store, path)

    def _touch(self, store: BlobStore, path: Iterator[Identity]) -> bool:
        """Use some more of a path, or of the next one. A path in which the store fails is not gone on with."""
        some = list(islice(path, ASKED_AT_ONCE))
        if not some:
            with self._lock:
                path = self._paths.popleft() if self._paths else iter(())
            some = list(islice(path, ASKED_AT_ONCE))
        if some:
            store.retain([object_name(page_hash, component) for component, page_hash in some], None)
            self._path = path
        return bool(some)

    def _next_names(self) -> tuple[list[str], Keep]:
        """The oldest names that go to one class, out of the queue."""
        keep = next(iter(self._keeps.values()), Keep.LOOSE)
        names = [name for name, wanted in self._keeps.items() if wanted is keep][:ASKED_AT_ONCE]
        for name in names:
            del self._keeps[name]
        return names, keep

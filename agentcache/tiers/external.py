"""An external tier over any store: a queue of jobs in front of something slow, fallible and shared.

    engine's thread    StoredTier ── Flight, Question ──> Crew ── LoadWork, StoreWork … ──> BlobStore
                            ^                                          │
                            └── poll ──── results, in order of end ────┘    on_ended: look now

The engine's thread never waits for the store: only, at most, for one page's copy behind the lock of a flight. A
flight is closed once, by whichever comes first: its last batch, a fault, its deadline, `cancel`, the breaker, `close`.
A thread that comes back later finds it closed and touches nothing.
"""

import threading
from collections.abc import Callable, Mapping, Sequence

from agentcache.clock import Clock
from agentcache.tiers.alarm import Alarm
from agentcache.tiers.api import ExternalStatus, JobResult, Keep, Presence, SlotBytes, Transfer
from agentcache.tiers.asking import Probe, Questions, Upkeep
from agentcache.tiers.crew import Crew, Lane, Work
from agentcache.tiers.flights import Flight, Terms, identities
from agentcache.tiers.knowledge import Identity
from agentcache.tiers.moves import Desk, LoadWork, StoreWork
from agentcache.tiers.rules import NS, ExternalRules
from agentcache.tiers.standing import Standing
from agentcache.tiers.stores.api import BlobStore
from agentcache.types import PoolName, TierName

__all__ = ["ExternalRules", "StoredTier"]


class StoredTier:
    """The external tier over a `BlobStore`, which it owns and closes. All calls but `status` are the engine's thread's.

    `on_ended` is called when there is something for `poll` or `lookup` to find, deadlines included: from any thread,
    from inside a call of the engine's too, so it only leaves a mark or sets an event.
    A fault of the store is a smaller `landed`, a RETRY, and a line in `status`; it never comes out of a call.
    """

    def __init__(
        self,
        store: BlobStore,
        pools: Mapping[PoolName, SlotBytes],
        page_tokens: int,
        clock: Clock,
        rules: ExternalRules | None = None,
        on_ended: Callable[[], None] = lambda: None,
    ) -> None:
        rules = rules or ExternalRules()
        standing = Standing(store.name, rules, clock)
        self._desk = Desk(store, standing, rules, clock, self._wake, lambda path: self._upkeep.touch(path))
        self._on_ended = on_ended
        self._pools = pools
        self._page_tokens = page_tokens
        self._flights: dict[int, Flight] = {}
        self._changed = threading.Condition()  # something ended; guards the two below
        self._ended: list[JobResult] = []
        self._out = 0
        self._queued_bytes = 0
        self._closed = False
        self._crew = Crew(rules.threads)
        self._alarm = Alarm(clock, on_ended)
        self._questions = Questions(self._desk, self._crew, self._alarm)
        self._probe = Probe(self._desk, self._crew)
        self._upkeep = Upkeep(self._desk, self._crew)
        self._upkeep.refresh(clock.now_ns())

    @property
    def name(self) -> TierName:
        return TierName.EXTERNAL

    def lookup(self, wanted: Sequence[Identity]) -> tuple[Presence, ...]:
        """Answers from what is believed; what is unknown is asked, in one question, and PENDING meanwhile.

        An object that a flight of ours is storing is not PENDING for that: its page is still in the tree, so hardly
        anybody asks, and whoever does should not wait for the queue of stores. It is MISS until it has landed, and HIT
        from then on. RETRY: the breaker is open, the deadline has passed, or more was wanted than is remembered.

        Cost  O(wanted)
        """
        now_ns = self._tick()
        if not self._asked:
            return (Presence.RETRY,) * len(wanted)
        most = self._desk.rules.max_known
        answers = self._questions.answers(wanted[:most], now_ns)
        return (*answers, *(Presence.RETRY for _ in wanted[most:]))

    def submit_load(self, transfer: Transfer) -> None:
        flight = self._flight(transfer, transfer.job.target, _bytes(transfer, self._pools))
        self._start(flight, Lane.LOAD, LoadWork(self._desk, flight, self._page_tokens))

    def submit_store(self, transfer: Transfer) -> None:
        """Beyond `max_queued_bytes` in flight a store ends with nothing; one alone is always let in.

        Bytes that are known to be there do not count: a path is offered whole, and most of it has been sent before.
        """
        size_bytes = _fresh_bytes(transfer, self._pools, self._page_tokens, self._desk.standing)
        refused = self._queued_bytes and self._queued_bytes + size_bytes > self._desk.rules.max_queued_bytes
        flight = self._flight(transfer, transfer.job.source, size_bytes, 0 if refused else size_bytes)
        if refused:
            flight.close()
        self._queued_bytes += flight.terms.queued_bytes
        self._start(flight, Lane.STORE, StoreWork(self._desk, flight, self._page_tokens))

    def cancel(self, number: int) -> None:
        if flight := self._flights.get(number):
            flight.close()
            self._crew.prune()

    def poll(self) -> tuple[JobResult, ...]:
        """Cost: O(1) when nothing has ended and nothing is late."""
        self._tick()
        if not self._ended:
            return ()
        with self._changed:
            results, self._ended = tuple(self._ended), []
        for result in results:
            self._queued_bytes -= self._flights.pop(result.job.number).terms.queued_bytes
        return results

    def drain(self) -> None:
        """Wait until all jobs and questions have ended, in real time, as long as their deadlines leave by the clock.

        What a hung store still holds then ends as cancelled, and RETRY.
        """
        now_ns = self._tick()
        flights = (flight.terms.deadline_ns for flight in self._flights.values())
        left_ns = max((self._questions.last_ns, *flights)) - now_ns
        with self._changed:
            self._changed.wait_for(lambda: not self._out and self._questions.settled, max(0, left_ns) / NS)
        self._end_all()

    def close(self) -> None:
        """Waits `close_s` for the threads and as long for the store, at most: what hangs is left to itself."""
        if self._closed:
            return
        self._closed = True
        self._end_all()
        self._crew.stop()
        self._alarm.stop()
        last = threading.Thread(target=_let_go, args=(self._crew, self._desk), daemon=True)
        last.start()
        last.join(2 * self._desk.rules.close_s)

    def retain(self, names: Sequence[str], keep: Keep) -> None:
        if self._asked:
            self._upkeep.retain(names, keep)

    def status(self) -> ExternalStatus:
        """From any thread."""
        now_ns = self._desk.clock.now_ns()
        self._send_probe(now_ns)
        self._upkeep.refresh(now_ns)
        return self._desk.standing.status()

    @property
    def _asked(self) -> bool:
        """Work is given to the threads at all."""
        return self._desk.standing.asking and not self._closed

    def _flight(
        self, transfer: Transfer, slots_on: TierName, size_bytes: int, queued_bytes: int = 0
    ) -> Flight:
        pools = [self._pools[PoolName(target.component, slots_on)] for target in transfer.targets]
        deadline_ns = self._desk.clock.now_ns() + self._desk.rules.deadline_of_ns(size_bytes)
        terms = Terms(deadline_ns, self._desk.standing.successes, queued_bytes)
        return Flight(transfer, pools, terms, self._report)

    def _start(self, flight: Flight, lane: Lane, work: Work) -> None:
        """Queue a flight, or end it with nothing where there is nothing to do or nobody to ask."""
        self._flights[flight.transfer.job.number] = flight
        with self._changed:
            self._out += 1
        if not self._asked or not flight.transfer.targets:
            flight.close()
        if flight.open:
            self._crew.put(lane, work)
            self._alarm.not_after(flight.terms.deadline_ns)
        else:
            self._on_ended()

    def _report(self, result: JobResult) -> None:
        """Take a flight's result, from whichever thread closed it."""
        with self._changed:
            self._ended.append(result)
            self._out -= 1
            self._changed.notify_all()

    def _wake(self) -> None:
        """Something ended in a thread."""
        with self._changed:
            self._changed.notify_all()
        self._on_ended()

    def _tick(self) -> int:
        """Let time pass: end what is late, and all there is while the store is not asked. Returns the time."""
        now_ns = self._desk.clock.now_ns()
        self._send_probe(now_ns)
        if now_ns >= self._alarm.at_ns or not self._desk.standing.asking:
            self._end_late(now_ns)
        return now_ns

    def _send_probe(self, now_ns: int) -> None:
        if not self._desk.standing.asking and self._desk.standing.probe_due(now_ns):
            self._probe.send()

    def _end_late(self, now_ns: int) -> None:
        standing = self._desk.standing
        for flight in self._flights.values():
            late = now_ns >= flight.terms.deadline_ns
            if late and flight.close(late=True):
                standing.late(bool(flight.calling), flight.terms.successes)
                standing.learn(flight.calling, Presence.MISS)
        self._questions.end_late(now_ns)
        if not standing.asking:  # perhaps since a moment ago
            self._end_all()
        self._crew.prune()
        waiting = (flight.terms.deadline_ns for flight in self._flights.values() if flight.open)
        self._alarm.set(min((self._questions.deadline_ns, *waiting)))

    def _end_all(self) -> None:
        for flight in self._flights.values():
            flight.close()
        self._questions.end_all()


def _bytes(transfer: Transfer, pools: Mapping[PoolName, SlotBytes]) -> int:
    """What a load will bring."""
    job = transfer.job
    sizes = (pools[PoolName(target.component, job.target)].slot_bytes for target in transfer.targets)
    return sum(len(target.slots) * size for target, size in zip(transfer.targets, sizes, strict=True))


def _fresh_bytes(
    transfer: Transfer, pools: Mapping[PoolName, SlotBytes], page: int, standing: Standing
) -> int:
    """What a store will have to send, as far as is known. Cost O(pages)."""
    fresh = 0
    for target in transfer.targets:
        marks = standing.marked(identities(target, transfer.hashes, page))
        fresh += marks.count(False) * pools[PoolName(target.component, transfer.job.source)].slot_bytes
    return fresh


def _let_go(crew: Crew, desk: Desk) -> None:
    crew.join(desk.rules.close_s)
    desk.store.close()

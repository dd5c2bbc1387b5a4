"""What an external tier knows of its store: whether to ask it at all, what it holds, and what came of asking."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentcache.clock import Clock
from agentcache.tiers.api import ExternalStatus, Presence
from agentcache.tiers.breaker import Breaker, Circuit
from agentcache.tiers.knowledge import Identity, Knowledge
from agentcache.tiers.rules import NS, ExternalRules
from agentcache.tiers.stores.api import StoreStatus


class Standing:
    """Breaker, knowledge and counts behind one lock, which is never held while a store or a pool is called.

    A failure is a call that failed or a deadline that was missed: each flight and question counts once.
    """

    def __init__(self, backend: str, rules: ExternalRules, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._breaker = Breaker(rules)
        self._knowledge = Knowledge(rules.max_known, int(rules.belief_s * NS))
        self._successes = 0
        self._counts = ExternalStatus(backend, "up")

    @property
    def asking(self) -> bool:
        """The store is asked; False while the breaker is not closed."""
        return self._breaker.circuit is Circuit.CLOSED

    @property
    def successes(self) -> int:
        """Calls that came back in time, so far."""
        return self._successes

    def probe_due(self, now_ns: int) -> bool:
        with self._lock:
            return self._breaker.probe_due(now_ns)

    def probed(self, answered: bool) -> None:
        """A store that is back may have come back empty: what was known of it is forgotten."""
        with self._lock:
            self._breaker.probed(answered, self._clock.now_ns())
            if self.asking:
                self._knowledge.clear()

    def succeeded(self) -> None:
        with self._lock:
            self._successes += 1
            self._breaker.succeeded()

    def failed(self, why: str) -> None:
        with self._lock:
            self._fail(why)

    def late(self, calling: bool, successes: int) -> None:
        """Something missed its deadline, in a call or waiting for a thread; `successes` were there when it began.

        Waiting counts as a failure only if no call came back since then: a store that answers is busy, not gone.
        """
        with self._lock:
            if calling or self._successes == successes:
                self._fail("no answer within the deadline")

    def _fail(self, why: str) -> None:
        self._counts = replace(self._counts, failed=self._counts.failed + 1, error=why)
        self._breaker.failed(self._clock.now_ns())

    def believed(self, wanted: Sequence[Identity], now_ns: int) -> list[Presence | None]:
        with self._lock:
            return self._knowledge.believed(wanted, now_ns)

    def marked(self, identities: Iterable[Identity]) -> list[bool]:
        """Which objects were put or seen, as far as is remembered."""
        with self._lock:
            return [self._knowledge.marked(identity) for identity in identities]

    def learn(self, identities: Iterable[Identity], presence: Presence) -> None:
        with self._lock:
            self._knowledge.learn(identities, presence, self._clock.now_ns())

    def answered(self, asked: Sequence[tuple[Identity, bool]], since_ns: int) -> None:
        """What the store said about objects, to a call that began at `since_ns`."""
        with self._lock:
            self._knowledge.answered(asked, since_ns, self._clock.now_ns())

    def give_up(self, identities: Iterable[Identity]) -> None:
        """A question about these ended without an answer."""
        with self._lock:
            self._knowledge.give_up(identities, self._clock.now_ns())

    def count(self, stored: int = 0, loaded: int = 0, missed: int = 0, refused: int = 0) -> None:
        with self._lock:
            was = self._counts
            self._counts = replace(
                was,
                stored=was.stored + stored,
                loaded=was.loaded + loaded,
                missed=was.missed + missed,
                refused=was.refused + refused,
            )

    def heard(self, own: StoreStatus) -> None:
        """The backend's own figures, as of now."""
        with self._lock:
            self._counts = replace(
                self._counts,
                address=own.address,
                objects=own.objects,
                used_bytes=own.used_bytes,
                capacity_bytes=own.capacity_bytes,
            )

    def status(self) -> ExternalStatus:
        with self._lock:
            return replace(self._counts, state="up" if self.asking else "down")

"""A circuit breaker: when a store keeps failing, it is not asked at all."""

from enum import StrEnum

from agentcache.tiers.rules import NS, ExternalRules


class Circuit(StrEnum):
    """Whether the store is asked: always, never, or by one probe."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Failures in a row open it; after a cool-down one probe decides. Time comes by argument; no lock of its own.

        CLOSED --failures_to_open in a row--> OPEN --cool_down_s--> HALF_OPEN --the probe is answered--> CLOSED
                                                ^-- the probe fails, or takes deadline_s ----'

    What ordinary calls find out while it is not closed is old news and changes nothing.
    """

    def __init__(self, rules: ExternalRules) -> None:
        self._failures_to_open = rules.failures_to_open
        self._cool_down_ns = int(rules.cool_down_s * NS)
        self._patience_ns = rules.deadline_ns
        self._failures = 0
        self._since_ns = 0
        self.circuit = Circuit.CLOSED

    def succeeded(self) -> None:
        if self.circuit is Circuit.CLOSED:
            self._failures = 0

    def failed(self, now_ns: int) -> None:
        """One more failure, or deadline miss."""
        if self.circuit is Circuit.CLOSED:
            self._failures += 1
            if self._failures >= self._failures_to_open:
                self._turn(Circuit.OPEN, now_ns)

    def probe_due(self, now_ns: int) -> bool:
        """Let time pass. True once a cool-down: send one probe and tell `probed` what came of it."""
        waited_ns = now_ns - self._since_ns
        if self.circuit is Circuit.HALF_OPEN and waited_ns >= self._patience_ns:
            self._turn(Circuit.OPEN, now_ns)
        elif self.circuit is Circuit.OPEN and waited_ns >= self._cool_down_ns:
            self._turn(Circuit.HALF_OPEN, now_ns)
            return True
        return False

    def probed(self, answered: bool, now_ns: int) -> None:
        """The probe came back. One that was given up already says nothing any more."""
        if self.circuit is Circuit.HALF_OPEN:
            self._turn(Circuit.CLOSED if answered else Circuit.OPEN, now_ns)

    def _turn(self, circuit: Circuit, now_ns: int) -> None:
        self.circuit = circuit
        self._since_ns = now_ns
        self._failures = 0

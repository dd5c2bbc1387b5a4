"""What a router's `/metrics` says of waits: whom turns leave sessions waiting for, and how true hints were."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from agentcache.router.metrics import NAMESPACE
from agentcache.waits import WaitKind

_OFF: Final = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)


class WaitCounts:
    """Counts in the registry of the router's other metrics. No label has a session, a tenant or a tool."""

    def __init__(self, registry: CollectorRegistry) -> None:
        ends = Counter(
            "turn_waits",
            "Turns of sessions by whom they leave the session waiting for",
            ["kind"],
            namespace=NAMESPACE,
            registry=registry,
        )
        hints = Counter(
            "wait_hints",
            "Learned tool waits that workers were told, and those that no worker took",
            ["outcome"],
            namespace=NAMESPACE,
            registry=registry,
        )
        self._off = Histogram(
            "wait_hint_error",
            "How far the waits were from what workers were told: |ln(wait / hint)|",
            namespace=NAMESPACE,
            registry=registry,
            buckets=_OFF,
        )
        self._ends = {kind: ends.labels(kind.value) for kind in WaitKind}
        self._hints = {sent: hints.labels("sent" if sent else "failed") for sent in (True, False)}

    def ended(self, kind: WaitKind) -> None:
        self._ends[kind].inc()

    def hinted(self, sent: bool) -> None:
        self._hints[sent].inc()

    def was_off(self, logarithms: float) -> None:
        self._off.observe(logarithms)

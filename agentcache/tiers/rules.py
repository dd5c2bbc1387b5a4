"""What an external tier may cost: how long it is waited for, how much waits for it, how often it is asked."""

from dataclasses import dataclass, fields

from agentcache.errors import CacheError, Kind

NS = 1_000_000_000
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ExternalRules:
    """The limits of an external tier.

    A job has `deadline_s`, and `deadline_per_mib_s` for each MiB of it, from its submission; a question has
    `deadline_s`. After `failures_to_open` failures in a row nothing is asked for `cool_down_s`; then one probe is. What
    was learnt of an object is believed for `belief_s`, of the last `max_known` objects. Stores beyond
    `max_queued_bytes` in flight end with nothing. A call to the store moves at most `batch_objects` or `batch_bytes`.
    The backend's own figures are as old as `status_s`, or older where nobody asks. `close` waits for the threads and
    for the store, `close_s` each, at most.
    """

    threads: int = 2
    deadline_s: float = 2.0
    deadline_per_mib_s: float = 0.02
    failures_to_open: int = 3
    cool_down_s: float = 5.0
    belief_s: float = 5.0
    max_known: int = 1 << 18
    max_queued_bytes: int = 256 * MIB
    batch_objects: int = 32
    batch_bytes: int = 8 * MIB
    status_s: float = 2.0
    close_s: float = 0.5

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise CacheError(Kind.BAD_CONFIG, f"{field.name} of an external tier must be over 0")

    @property
    def deadline_ns(self) -> int:
        return int(self.deadline_s * NS)

    def deadline_of_ns(self, size_bytes: int) -> int:
        """How long a job of this size may take."""
        return int((self.deadline_s + self.deadline_per_mib_s * size_bytes / MIB) * NS)

"""The times and bounds of a session store, the same for all who share it."""

from dataclasses import dataclass

from agentcache.ids import MAX_DEPTH

FORMAT = 1
"""Of keys and values. A store with another one is refused at `prepare`."""
DEPTH = MAX_DEPTH
"""Of a family; what is deeper gets no parent."""


@dataclass(frozen=True, slots=True)
class StoreRules:
    """Times and bounds. `in_flight_s`: how long a request whose router died keeps its session from idling out."""

    ttl_s: float = 1800.0
    reopen_after_s: float = 60.0
    tombstone_s: float = 3600.0
    tombstones: int = 1_000_000
    in_flight_s: float = 600.0
    worker_s: float = 5.0  # without a heartbeat for so long a worker is not alive
    close_limit: int = 1000  # sessions that one call of `close` closes
    abandoned_s: float = 5.0  # a close that has not been gone on with for so long is gone on with by sweeps
    stream_length: int = 100_000

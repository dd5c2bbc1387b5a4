"""What looking answers: a tree by position, counts per pool, an external tier as it is."""

from dataclasses import dataclass

from agentcache.types import ComponentName, PoolName, SessionId, TierName


@dataclass(frozen=True, slots=True)
class MarkerView:
    """One marker of a session, by position; for `snapshot` and explanations."""

    session: SessionId
    generation: int
    frontier: int
    alternate: int
    start_seq: int
    finish_seq: int
    left: bool


@dataclass(frozen=True, slots=True)
class PageView:
    """One page position of the tree as `snapshot` shows it: everything observable, nothing about nodes."""

    path: tuple[int, ...]
    namespace: str
    slots: tuple[tuple[ComponentName, TierName, int], ...]
    locks: tuple[tuple[ComponentName, int], ...]
    references: tuple[tuple[ComponentName, int], ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state by position, equal between two cores that agree."""

    pages: tuple[PageView, ...]
    markers: tuple[MarkerView, ...]
    leases: int
    jobs: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Branch:
    """A path of the tree without forks, from `start` to `end` in tokens.

    `parent`: its place in the outline, -1 for one that begins a prompt. `resident`: pages by component and tier, of
    states their number. `referenced`: pages of FULL that sessions reference, `running`: that a request holds.
    `reusable`: the deepest boundary at or above the end, in tokens: what lies beyond is out of reach. `markers`: that
    end here.
    """

    parent: int
    start: int
    end: int
    namespace: str
    resident: tuple[tuple[ComponentName, TierName, int], ...]
    referenced: int
    running: int
    reusable: int
    markers: int
    used_ns: int


@dataclass(frozen=True, slots=True)
class Outline:
    """The branches that were used last, each behind its parent; `more`: there are others."""

    branches: tuple[Branch, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class PoolCount:
    """Slots the tree owns of one pool: all, protected (leased or in a job), and referenced by sessions."""

    pool: PoolName
    cached: int
    protected: int
    referenced: int


@dataclass(frozen=True, slots=True)
class CoreStats:
    """Counts that a core answers in O(pools)."""

    pools: tuple[PoolCount, ...]
    pages: int
    leases: int
    jobs: int
    sessions: int
    markers: int


ABSENT = "absent"
"""The state of an external tier that is not there."""


@dataclass(frozen=True, slots=True)
class ExternalStatus:
    """An external tier as it is now. Counts are since it was attached; None: the backend cannot say.

    `state` is "up", "down" (the breaker is open: nothing is asked) or "absent".
    """

    backend: str
    state: str
    address: str = ""
    objects: int | None = None
    used_bytes: int | None = None
    capacity_bytes: int | None = None
    stored: int = 0
    loaded: int = 0
    missed: int = 0
    refused: int = 0  # present, but not what was asked for: another layout, cut short, corrupt
    failed: int = 0
    error: str = ""  # the last failure, in words

"""Plain frozen values that cross the contracts. No behaviour beyond arithmetic on their own fields.

Positions and lengths are tokens from the root; slots are int32 indices into a pool of one component on one tier.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

import numpy as np
from numpy.typing import NDArray

Slots = NDArray[np.int32]
Tokens = NDArray[np.int32]
ComponentName = NewType("ComponentName", str)
SessionId = NewType("SessionId", str)

FULL = ComponentName("FULL")
SWA = ComponentName("SWA")
MAMBA = ComponentName("MAMBA")

NO_SLOTS: Slots = np.empty(0, dtype=np.int32)


class TierName(StrEnum):
    """Where bytes live: device L1, host L2, external L3."""

    DEVICE = "device"
    HOST = "host"
    EXTERNAL = "external"


@dataclass(frozen=True, slots=True)
class Region:
    """Tokens `[start, end)` of a path. A checkpoint region is the empty interval at its position."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Path:
    """The region is every token before the boundary."""

    def region(self, boundary: int, page_tokens: int) -> Region:
        return Region(0, boundary)


@dataclass(frozen=True, slots=True)
class Window:
    """The region is the `tokens` tokens before the boundary, rounded outward to pages.

    An attention window of W needs W - 1 of them.
    """

    tokens: int

    def region(self, boundary: int, page_tokens: int) -> Region:
        start = max(0, boundary - self.tokens)
        return Region(start - start % page_tokens, boundary)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The region is one state at exactly the boundary; states exist at multiples of `grid_tokens`."""

    grid_tokens: int

    def region(self, boundary: int, page_tokens: int) -> Region:
        return Region(boundary, boundary)


Rule = Path | Window | Checkpoint


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """A component as data: its rule, what it needs below it, and the bytes of one slot.

    One slot holds a page (Path, Window) or a state (Checkpoint); `slot_bytes` is 0 in accounting pools.
    """

    name: ComponentName
    rule: Rule
    needs: tuple[ComponentName, ...] = (FULL,)
    slot_bytes: int = 0


def full_spec(slot_bytes: int = 0) -> ComponentSpec:
    """FULL attention: path reuse. Always the first component."""
    return ComponentSpec(FULL, Path(), (), slot_bytes)


def swa_spec(window_tokens: int, name: str = SWA, slot_bytes: int = 0) -> ComponentSpec:
    """Sliding-window attention: `window_tokens` tokens before the boundary must be resident."""
    return ComponentSpec(ComponentName(name), Window(window_tokens), (FULL,), slot_bytes)


def mamba_spec(grid_tokens: int, name: str = MAMBA, slot_bytes: int = 0) -> ComponentSpec:
    """Recurrent state: a checkpoint at the boundary, possible at multiples of `grid_tokens`."""
    return ComponentSpec(ComponentName(name), Checkpoint(grid_tokens), (FULL,), slot_bytes)


@dataclass(frozen=True, slots=True)
class PoolName:
    """The slots of one component on one tier."""

    component: ComponentName
    tier: TierName


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A handle for a node; a stale one is refused, not dereferenced."""

    index: int
    generation: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """A position on a path: `length` tokens from the root, at or above `node`, valid for one `epoch`."""

    node: NodeRef
    length: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Lease:
    """A running request's protection of the device copies that it depends on; released once."""

    number: int


class MissReason(StrEnum):
    """Why the boundary is not deeper. Ordered as a person would ask."""

    NOT_CACHED = "not_cached"  # FULL ends here: these tokens were never published, or evicted
    WINDOW_GAP = "window_gap"  # FULL goes on, a page of the window before it is gone
    NO_CHECKPOINT = "no_checkpoint"  # FULL goes on, no state at that position
    ON_HOST = "on_host"  # resident, but only on the host
    CUSTOM = "custom"  # a custom component refused


@dataclass(frozen=True, slots=True)
class Miss:
    """What stopped the vote at the deepest refused candidate: component, position (tokens) and reason."""

    component: ComponentName
    position: int
    reason: MissReason


@dataclass(frozen=True, slots=True)
class MatchResult:
    """The outcome of a vote.

    `device` is the deepest boundary whose regions are all on the device, `any_tier` the deepest on device or host,
    never shallower. `full_tokens` is how far FULL alone would have gone on any tier, by page, within the limit. `miss`
    is about the deepest candidate on the FULL path when that is deeper than `device`: the first component, in spec
    order, whose data are on no tier, or else (ON_HOST) the first whose data are not on the device. Where all on the
    FULL path are accepted but the key goes on: FULL, NOT_CACHED, at `full_tokens`. None: `device` is the last one.
    """

    device: Boundary
    any_tier: Boundary
    full_tokens: int
    miss: Miss | None


@dataclass(frozen=True, slots=True)
class Piece:
    """Slots of one component for tokens `[start, end)` of a path; one slot a page, or one state at start == end."""

    component: ComponentName
    start: int
    end: int
    slots: Slots = field(default_factory=lambda: NO_SLOTS)


@dataclass(frozen=True, slots=True)
class Locked:
    """A lease and the device slots of every component's region at its boundary, in spec order."""

    lease: Lease
    boundary: Boundary
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """A transfer in flight, by position: protects its source pieces until `commit`.

    `leaving` is true when the source copies go once landed (a demotion), false for a copy.
    """

    number: int
    source: TierName
    target: TierName
    pieces: tuple[Piece, ...]
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class SessionTag:
    """What a request says about its session. `generation` is a fence: the caller insists on that one."""

    session: SessionId
    generation: int | None = None
    parent: SessionId | None = None
    strict: bool = False  # refused rather than unreferenced
    superseded: bool = False  # it replaces the branch before it (compaction, edit)
    issued: bool = False  # by a router, which alone reopens
    placement: int = 0  # counts moves between workers
    epoch: str = ""  # the store's
    expected_s: float = 0.0  # from the turn's end until the session is back; 0: not said
    ttl_s: float = 0.0  # its idle lease from now on; 0: as it is
    fork: bool = False  # it inherits its parent's path until its first turn has registered


class SessionState(StrEnum):
    """What the answer says about the session that a request named."""

    OPEN = "open"
    CLOSED = "closed"
    EXPIRED = "expired"  # its idle lease ran out; this request opened the next generation
    STALE = "stale"
    NONE = "none"  # no session named


class EventKind(StrEnum):
    STORED = "stored"
    REMOVED = "removed"
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class Event:
    """A placement event of one component on a tier, in chained page hashes (`keys.py`), stored ones parents first.

    A state has the hash of the page that ends at it. What is stored of FULL says its `tokens` and the hash before its
    first page, `parent` (None at the root). CLEARED is about every component.
    """

    kind: EventKind
    tier: TierName
    hashes: tuple[bytes, ...] = ()
    parent: bytes | None = None
    tokens: tuple[int, ...] = ()
    component: ComponentName = FULL


@dataclass(frozen=True, slots=True)
class Free:
    """Return these slots to their pool."""

    pool: PoolName
    slots: Slots


@dataclass(frozen=True, slots=True)
class Move:
    """Submit this job to the tier that carries it out, then `commit` it exactly once."""

    job: Job


@dataclass(frozen=True, slots=True)
class Emit:
    """Publish this placement event."""

    event: Event


Effect = Free | Move | Emit
Effects = tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Insert:
    """What a request offers to the tree: slots on `tier`, DEVICE, or HOST for a graft.

    `full` holds one slot a page for `[full_from, key end)`; None: from `after`, the lease's end or 0. Pages before it
    have their FULL already. `pieces` are window intervals and checkpoints (start == end), anywhere beyond `after`.
    """

    full: Slots
    pieces: tuple[Piece, ...] = ()
    after: Lease | None = None
    tier: TierName = TierName.DEVICE
    priority: int = 0
    full_from: int | None = None


@dataclass(frozen=True, slots=True)
class Inserted:
    """Who owns each offered slot now.

    `frontier` is the deepest boundary on the key that votes on device or host. `taken` slots belong to the tree, `kept`
    pieces (beyond the frontier, useless to anyone yet) stay with the caller, the effects free the rest, the duplicates.
    """

    frontier: Boundary
    taken: tuple[Piece, ...]
    kept: tuple[Piece, ...]
    effects: Effects = ()


@dataclass(frozen=True, slots=True)
class Evicted:
    """Slots of the asked component and tier: freed now, moving (free after `commit`), and still short."""

    freed: int
    moving: int
    short: int
    effects: Effects = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """A job and, for a load, the lease of the region's device part. `job` is None when nothing is to move."""

    job: Job | None
    lease: Lease | None = None
    effects: Effects = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """What a job's outcome did: pieces now on the target tier, and its pieces that are on no tier any more."""

    landed: tuple[Piece, ...]
    dropped: tuple[Piece, ...]
    effects: Effects = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """What a finished turn leaves behind for its session.

    `frontier` is the deepest boundary voted at its end, `alternate` the deepest one not after the last user
    message (None: no such boundary). `start_seq` was taken at admission, `finish_seq` at completion.
    """

    frontier: Boundary | None
    alternate: Boundary | None
    start_seq: int
    finish_seq: int
    superseded: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """What one component holds on one tier for somebody; states have no tokens. `shared_slots`: others' as well."""

    component: ComponentName
    tier: TierName
    tokens: int
    slots: int
    shared_slots: int


class ReleaseMode(StrEnum):
    """What a close does with what only that session referenced."""

    RELEASE = "release"  # references go, data stays
    DEMOTE = "demote"  # down a tier where there is one
    DROP = "drop"  # freed
    PREVIEW = "preview"  # changes nothing, answers what the session holds


@dataclass(frozen=True, slots=True)
class Released:
    """What a release let go of, per component and tier; `mode` is what was done (demote may act as release)."""

    mode: ReleaseMode
    held: tuple[Held, ...]
    markers: int
    effects: Effects = ()


class WaitState(StrEnum):
    """What a session is doing."""

    RUNNING = "running"
    PENDING = "pending"  # a request of it is queued
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Wait:
    """What a session is doing, for orders that use it; monotonic times."""

    state: WaitState
    since_ns: int = 0  # running or idle since
    key_ns: int = 0  # running or idle: `since_ns` less the gap that is expected, or was
    hint_ns: int | None = None  # idle: a gap that somebody told, a duration
    seq: int = 0  # pending: the place in the queue
    eta_ns: int | None = None  # pending: the start that the scheduler expects; None: first come, first served

"""What a session store promises to routers and to workers.

One record per session of a tenant: generation, worker, idle deadline, requests in flight, parent, and every worker that
may hold data of it. All records of a tenant live in one shard, so a session, its family and its tenant's limit change
together. Every call is one atomic change, and total: what cannot be is a value.

Times are Unix milliseconds of the store's own clock (`TIME` of the server; an injected one in tests); durations come in
seconds. Generations never repeat, across closes, forgotten tombstones, and a store that lost everything:
`max(last + 1, the store's clock in µs, the highest that any worker reported + 1)`.

Errors, of every call: CacheError(STORE_FAILED) when the store did not answer in time, is not there, or takes no writes.
The change may or may not have happened. Sent again a call changes nothing twice, but for a fence of `open`. A call
whose connection breaks is sent again by the store itself, which `open` and `tag` know and answer as the first time;
`close` and `sweep` may then have closed what they do not list, and `close` says ALREADY.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from agentcache.store.desk_api import Beat as Beat
from agentcache.store.desk_api import Mail as Mail
from agentcache.store.desk_api import Offer as Offer
from agentcache.store.desk_api import Offered as Offered
from agentcache.store.desk_api import OfferVerdict as OfferVerdict
from agentcache.store.desk_api import WorkerDesk as WorkerDesk
from agentcache.store.names import SessionRef as SessionRef
from agentcache.store.rules import DEPTH as DEPTH
from agentcache.store.rules import FORMAT as FORMAT
from agentcache.store.rules import StoreRules as StoreRules
from agentcache.wire import Receipt, WorkerCard, WorkerLoad


@dataclass(frozen=True, slots=True)
class Opening:
    """An explicit open. `ttl_s` 0: the store's default. `limit`: open sessions that the tenant may have; 0: any.

    `fork`: if it has no worker yet and its parent's is registered, it is placed there, and that worker is sent FORK.
    """

    parent: str = ""
    ttl_s: float = 0.0
    fence: bool = False
    on_close: str = "release"
    limit: int = 0
    fork: bool = False


class OpenVerdict(StrEnum):
    CREATED = "created"
    UNCHANGED = "unchanged"  # it was open already
    FENCED = "fenced"  # it was open, its generation was raised
    NO_PARENT = "no_parent"  # unknown
    PARENT_CLOSED = "parent_closed"
    CYCLE = "cycle"  # the parent descends from the session, or is it
    TOO_DEEP = "too_deep"  # `DEPTH` sessions are above the parent already
    LIMITED = "limited"


@dataclass(frozen=True, slots=True)
class Opened:
    """The answer to an open; only the first three verdicts have changed or found a session."""

    verdict: OpenVerdict
    generation: int = 0
    open_sessions: int = 0  # of the tenant, with this one
    worker: str = ""  # that has it; of a fork its parent's


@dataclass(frozen=True, slots=True)
class Use:
    """A request of a session.

    `request_id` makes a repeated call the same call. `fence`: insist on that generation; `strict`: rather no answer
    than one without a reference. `parent`: adopted by a session that has none, if it is open, no descendant, and has
    fewer than `DEPTH` sessions above it. `worker`: taken if the session has none yet. `ttl_s`: how long the session
    may idle from now on, 0 as before; never less than it was opened with. `expected_s`: how long it is said to wait
    after this request, 0 for nothing.
    """

    request_id: str
    worker: str = ""
    parent: str = ""
    fence: int | None = None
    strict: bool = False
    limit: int = 0
    ttl_s: float = 0.0
    expected_s: float = 0.0


class TagVerdict(StrEnum):
    JOINED = "joined"
    OPENED = "opened"  # its first generation, or one after a close long ago
    EXPIRED = "expired"  # it had idled out: the next generation
    CLOSED = "closed"  # serve unreferenced, under the closed generation; with fence or strict: refuse
    STALE = "stale"  # the fence is not the current generation: refuse
    UNKNOWN = "unknown"  # fenced, and there is no such session: refuse
    LIMITED = "limited"  # the tenant has too many: serve unreferenced; with strict: refuse


@dataclass(frozen=True, slots=True)
class Tagged:
    """How to serve a request. `generation` is current (CLOSED: the closed one); `worker` "" where none has it yet.

    `prefill` computed prompts for it last; "" for nobody. `ttl_s`: how long it may idle, 0 for one that is not open.
    """

    verdict: TagVerdict
    generation: int = 0
    worker: str = ""
    placement: int = 0
    parent: str = ""
    parent_ignored: bool = False
    epoch: str = ""
    prefill: str = ""
    ttl_s: float = 0.0

    @property
    def referenced(self) -> bool:
        """Whether the session is open and the request is in flight for it."""
        return self.verdict in (TagVerdict.JOINED, TagVerdict.OPENED, TagVerdict.EXPIRED)


@dataclass(frozen=True, slots=True)
class Placed:
    """Which worker has a session, or computes its prompts, and how often one of the two has changed."""

    worker: str
    placement: int
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a request. `registered`: its worker ended the turn itself, so that other workers' claims may go.

    `refused`: it was not begun, and nothing comes of it.
    """

    request_id: str
    generation: int
    worker: str
    placement: int
    registered: bool
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Closing:
    """A close of a session with all its descendants, at most `close_limit` of them in one call.

    `mode` "" is each session's own `on_close`. `again`: it was closed before data was lost; what is open under an
    older generation is closed, an unknown id gets its tombstone back, and a later generation, which stays open, is
    known to have been closed before.
    """

    generation: int | None = None
    mode: str = "release"
    operation: str = ""
    reply_to: str = ""
    again: bool = False


class CloseVerdict(StrEnum):
    CLOSED = "closed"
    ALREADY = "already"  # a session tombstone is there
    STALE = "stale"  # the generation given is not the current one: nothing changed
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ClosedOne:
    """A session that was closed, and the workers that were told."""

    session: str
    generation: int
    holders: tuple[str, ...]
    tenant: str = ""  # whose it is: a sweep knows no tenant beforehand


@dataclass(frozen=True, slots=True)
class ClosedFamily:
    """The answer to a close, parents first. `more`: descendants are left; the same call again, with its
    generation lest it was opened again, goes on with them, and answers ALREADY for the session itself."""

    verdict: CloseVerdict
    generation: int = 0
    closed: tuple[ClosedOne, ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """Where one session is. `state` is open, closed or none."""

    ref: SessionRef
    state: str
    generation: int = 0
    worker: str = ""
    placement: int = 0
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionRecord(SessionPlace):
    """One session as it is. Durations in seconds."""

    parent: str = ""
    children: int = 0
    in_flight: int = 0
    ttl_s: float = 0.0
    idle_s: float = 0.0
    on_close: str = "release"
    paused: str = ""  # the tool that it waits for, as `pause` told
    expected_s: float = 0.0  # what was said last of this wait, by a pause or the request before; 0: nothing
    prefill: str = ""  # the holder that computes its prompts
    child_names: tuple[str, ...] = ()  # as many as `look` was asked for


@dataclass(frozen=True, slots=True)
class Page:
    """Open sessions of a tenant, oldest first; `after` continues, "" at the end."""

    records: tuple[SessionRecord, ...]
    after: str = ""
    open_sessions: int = 0


class SessionStore(Protocol):
    """What a router asks: sessions and where they are."""

    async def open(self, ref: SessionRef, opening: Opening) -> Opened: ...

    async def tag(self, ref: SessionRef, use: Use) -> Tagged:
        """Take in a request: renew the lease, count it in flight, and say generation and worker."""

    async def done(self, ref: SessionRef, done: Done) -> bool:
        """End a request; False if the session has ended or moved on to another generation meanwhile.

        When it `registered` on the worker that has the session now, every other holder is sent MOVED, and is none now,
        but for the one that computes its prompts. A session that `tag` opened, and of which every request until now
        was `refused`, none is in flight, and nobody has opened or noted anything, is idle at once: the next sweep ends
        it as any whose lease is over, unless a request comes before.
        """

    async def assign(
        self, ref: SessionRef, generation: int, seen: int, worker: str, prefill: bool = False
    ) -> Placed:
        """Give the session to a worker, if it has none or `seen` is its placement; else answer who has it.

        The first writer wins, the others adopt. A worker that it had before stays a holder. With `prefill` the worker
        computes prompts for the one that has the session from now on, and is a holder, too: each change of that is a
        placement, and the answer names nobody where `seen` is not the placement any more.
        """

    async def close(self, ref: SessionRef, closing: Closing) -> ClosedFamily: ...

    async def look(self, ref: SessionRef, children: int = 0) -> SessionRecord:
        """One session; with so many of its children by name, the oldest, in the order of their names."""

    async def list(self, tenant: str, after: str, limit: int) -> Page:
        """Errors  CacheError(BAD_REQUEST) for an `after` that no page ended with."""

    async def note(self, ref: SessionRef, note: "Note") -> SessionRecord:
        """Record a touch, a pause or a resume of an open session; each renews its lease. `state` says if it is open.

        A pause takes the place of another; what was said of the time stands where it names none.
        """


class NoteKind(StrEnum):
    TOUCH = "touch"
    PAUSE = "pause"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Note:
    """`generation` None: whatever it is; else nothing is noted for another one (the record says which is current)."""

    kind: NoteKind
    generation: int | None = None
    tool: str = ""
    expected_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did. `again`: it stopped at its limit."""

    offered: int = 0  # expiries sent to workers
    expired: int = 0
    closed: tuple[ClosedOne, ...] = ()  # descendants that a capped close had left
    lapsed: tuple[ClosedOne, ...] = ()
    """Of the expired those with holders that are not registered: nobody told them (SGLang, told by the router)."""
    again: bool = False


@dataclass(frozen=True, slots=True)
class WorkerEntry:
    """A registered worker. `alive`: it was heard within `worker_s`, or could not be while the store was away."""

    card: WorkerCard
    load: WorkerLoad
    alive: bool
    heard_ms: int
    draining: bool = False  # as operators said, beside what its load says


class Fleet(Protocol):
    """What routers ask about workers, and what keeps the store tidy."""

    async def prepare(self) -> str:
        """Check the format, and answer the epoch: another one after every start of the server.

        A server that is killed may lose what it answered last, and nobody can tell.

        Errors  BAD_CONFIG for keys of another format names the command
        """

    async def forget(self) -> None:
        """Delete every session, worker and notice, of whatever format. The epoch is a new one then."""

    async def raise_above(self, ref: SessionRef, generation: int) -> int:
        """Raise an open session above a generation that a worker has seen; answers its own, 0 if it is not open."""

    async def recent(self, tenant: str, limit: int) -> Page:
        """Open sessions of a tenant, those whose leases end last first: where all have one lease, those used last.

        Of all sessions of a shard the `WALK` with the last leases are looked through, then come the tenant's newest.
        """

    async def workers(self) -> tuple[WorkerEntry, ...]:
        """All that are registered, by name. A store that takes no writes hears nobody: it fails, as if it were away."""

    async def drain(self, worker: str, draining: bool) -> bool:
        """Mark a worker; False if it is not registered."""

    async def sweep(self, limit: int) -> Swept:
        """Offer expiry to holders of idle sessions, finish expiries and abandoned closes, forget old tombstones.

        Parents with open children, sessions in flight or that workers call busy are armed again; the lease of a parent
        starts anew whenever a child ends, but for one that is being asked to let go. A worker that is gone
        (not heard for ten times `worker_s`) holds nothing any more.
        """

    async def receipts(self, router: str, after: str, wait_s: float) -> tuple[tuple[str, Receipt], ...]:
        """Receipts for a router, with their places in its stream. Waits at most `wait_s` for the first."""


class Store(SessionStore, Fleet, WorkerDesk, Protocol):
    """All of it in one object, as memory and Redis have it."""

    async def aclose(self) -> None:
        """Let go of connections; what is stored stays. Idempotent."""

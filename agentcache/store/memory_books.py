"""What a session store in memory knows, and the small changes that its calls are made of."""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from agentcache.ids import scoped
from agentcache.store.api import DEPTH, OpenVerdict, SessionRef, StoreRules, TagVerdict
from agentcache.store.memory_watch import Watch
from agentcache.types import SessionId
from agentcache.wire import Notice, Outcome, Receipt, WorkerCard, WorkerLoad

Item = TypeVar("Item")
ASKED = "asked"
RELEASED = "released"
OFFER_BEATS = 2  # an expiry that was offered is looked at again after so many times `worker_s`
GONE_BEATS = 10  # a worker that was not heard for so many times `worker_s` is gone


@dataclass(slots=True)
class Past:
    """How an open session came to be: the generation that it was opened under, which is its place among the tenant's,
    and the one through which it was closed before, 0 if it never was; `least_ttl_ms`: the lease that it was opened
    with, 0 for the usual one."""

    opened: int
    closed_through: int
    least_ttl_ms: int = 0


class Holders(dict[str, str]):
    """Worker → the incarnation that may hold something. `prefill`: the one that computes prompts for the session's own,
    "" for none."""

    prefill = ""


@dataclass(slots=True)
class Session:
    """An open session. `registered`: a turn did, on the worker of now.

    `waits`: for which tool, and how long it is expected to. `began`: the request that began the generation, and how;
    OPENED only until somebody uses the session.
    `in_flight`: request id → until when it counts, in ms.
    `expiring`: "", or that its holders were asked to let go, or that one of them did.
    """

    past: Past
    generation: int
    ttl_ms: int
    used_ms: int
    deadline_ms: int
    worker: str = ""
    placement: int = 0
    registered: bool = False
    parent: str = ""
    on_close: str = "release"
    waits: tuple[str, float] = ("", 0.0)
    expiring: str = ""
    began: tuple[str, TagVerdict] = ("", TagVerdict.JOINED)
    holders: Holders = field(default_factory=Holders)
    in_flight: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tombstone:
    generation: int
    closed_ms: int


@dataclass(frozen=True, slots=True)
class Family:
    """Children of a closed session, oldest first. Those with a generation above `through`, opened or fenced after it,
    are spared."""

    through: int
    children: deque[SessionRef]


@dataclass(slots=True)
class Leftover:
    """What a capped close has still to close, and how. `closed_ms`: when one last went on with it."""

    closed_ms: int
    mode: str
    operation: str
    reply_to: str
    families: list[Family] = field(default_factory=list)


@dataclass(slots=True)
class Desk:
    """A registered worker. `pending`: notices whose receipt a router waits for."""

    card: WorkerCard
    heard_ms: int
    load: WorkerLoad = field(default_factory=WorkerLoad)
    draining: bool = False
    pending: dict[tuple[str, SessionRef], Notice] = field(default_factory=dict)


class Books:
    """All that is known. Methods are the words in which the rules of the store are written; none of them waits."""

    def __init__(self, rules: StoreRules, now_ms: Callable[[], int], new_epoch: Callable[[], str]) -> None:
        self.rules = rules
        self.now_ms = now_ms
        self._new_epoch = new_epoch
        self.arrived = asyncio.Event()
        self.watch = Watch(round(rules.worker_s * 1000))
        self._place = 0
        self.lose()

    def lose(self) -> None:
        """Forget everything, as a server that lost its data."""
        self._epoch = ""
        self.watch.lose()
        self.last = 0
        self.open: dict[SessionRef, Session] = {}
        self.tombs: dict[SessionRef, Tombstone] = {}
        self.kids: dict[SessionRef, dict[SessionRef, int]] = {}
        self.leftovers: dict[SessionRef, Leftover] = {}
        self.desks: dict[str, Desk] = {}
        self.mail: dict[str, list[tuple[int, Notice | None]]] = {}
        self.answers: dict[str, list[tuple[int, Receipt]]] = {}

    @property
    def epoch(self) -> str:
        """A name for what is known since the last loss, made when it is first asked for."""
        if not self._epoch:
            self._epoch, self.watch.swept_ms = self._new_epoch(), self.now_ms()
        return self._epoch

    def issue(self) -> int:
        """The next generation."""
        self.last = max(self.last + 1, self.now_ms() * 1000)
        return self.last

    def begin(self, ref: SessionRef, ttl_s: float, generation: int = 0) -> Session:
        """Open a session that is not open."""
        now_ms = self.now_ms()
        opened = generation or self.issue()
        self.last = max(self.last, opened)
        ttl_ms = round((ttl_s or self.rules.ttl_s) * 1000)
        past = Past(opened, self.closed_through(ref))
        session = Session(past, opened, ttl_ms, now_ms, now_ms + ttl_ms)
        self.open[ref] = session
        self.tombs.pop(ref, None)
        return session

    def end(self, ref: SessionRef) -> Session:
        """Take an open session off the books, its parent's too, whose lease starts anew. Its children stay."""
        session = self.open.pop(ref)
        above = SessionRef(ref.tenant, session.parent)
        siblings = self.kids.get(above, {})
        was_child = siblings.pop(ref, None)
        if was_child and not siblings:
            del self.kids[above]
        parent = self.open.get(above)
        if was_child and parent and not parent.expiring:
            parent.deadline_ms = max(parent.deadline_ms, self.now_ms() + parent.ttl_ms)
        return session

    def bury(self, ref: SessionRef, generation: int) -> None:
        """Leave a tombstone, the newest of at most `tombstones`."""
        self.last = max(self.last, generation)
        self.tombs[ref] = Tombstone(generation, self.now_ms())
        over = max(0, len(self.tombs) - self.rules.tombstones)
        oldest = heapq.nsmallest(over, self.tombs, key=lambda one: (self.tombs[one].closed_ms, name_of(one)))
        for one in oldest:
            del self.tombs[one]

    def closed_through(self, ref: SessionRef) -> int:
        """The generation through which a session is closed, whether it was opened again or not; 0 if it never was."""
        if session := self.open.get(ref):
            return session.past.closed_through
        return self.tombs[ref].generation if ref in self.tombs else 0

    def renew(self, session: Session) -> None:
        """A use: the lease begins anew. Where a holder has let go meanwhile, it is a lease of the next generation."""
        session.used_ms = self.now_ms()
        session.deadline_ms = session.used_ms + session.ttl_ms
        if session.expiring == RELEASED:
            session.generation = self.issue()
        session.expiring = ""

    def give(self, session: Session, worker: str) -> None:
        """Place a session on a worker."""
        session.worker = worker
        session.placement += 1
        session.registered = False
        if session.holders.prefill == worker:
            session.holders.prefill = ""
        self.hold(session, worker)

    def hold(self, session: Session, worker: str) -> None:
        """The worker, as it runs now, may hold data of the session."""
        session.holders[worker] = self.incarnation(worker)

    def holders(self, session: Session) -> tuple[str, ...]:
        """The workers that may hold data of the session and have not started anew since."""
        held = session.holders.items()
        return tuple(sorted(name for name, born in held if born in ("", self.incarnation(name))))

    def incarnation(self, worker: str) -> str:
        """ "" for one that is not registered."""
        desk = self.desks.get(worker)
        return desk.card.incarnation if desk else ""

    def parent(self, ref: SessionRef, session: Session) -> str:
        """The parent, while it has the session among its children."""
        kids = self.kids.get(SessionRef(ref.tenant, session.parent), {})
        return session.parent if ref in kids else ""

    def adopt(self, ref: SessionRef, parent: str) -> None:
        session = self.open[ref]
        session.parent = parent
        self.kids.setdefault(SessionRef(ref.tenant, parent), {})[ref] = session.generation

    def misfit(self, parent: str, ref: SessionRef) -> OpenVerdict | None:
        """What keeps a session from having a parent: that is the session, or descends from it, or is too deep."""
        above = SessionRef(ref.tenant, parent)
        for _ in range(DEPTH):
            if above == ref:
                return OpenVerdict.CYCLE
            session = self.open.get(above)
            if not session or not (parent := self.parent(above, session)):
                return None
            above = SessionRef(ref.tenant, parent)
        return OpenVerdict.TOO_DEEP

    def tenant(self, tenant: str) -> Iterator[tuple[int, SessionRef]]:
        """The open sessions of a tenant with their places, oldest first."""
        ours = ((session.past.opened, ref) for ref, session in self.open.items() if ref.tenant == tenant)
        return iter(sorted(ours, key=lambda one: (one[0], name_of(one[1]))))

    def full(self, tenant: str, limit: int) -> bool:
        return limit > 0 and count_open(self, tenant) >= limit

    def post(self, worker: str, notice: Notice) -> bool:
        """Tell a registered worker."""
        if worker not in self.desks:
            return False
        if notice.reply_to:
            ref = SessionRef(notice.tenant, notice.session)
            self.desks[worker].pending[notice.operation, ref] = notice
        self.append(self.mail.setdefault(worker, []), notice)
        return True

    def append(self, stream: "list[tuple[int, Item]]", what: Item) -> None:
        """Put something at the end of a stream and wake those who wait; the oldest leave a full one."""
        self._place += 1
        stream.append((self._place, what))
        del stream[: -self.rules.stream_length]
        self.arrived.set()
        self.arrived = asyncio.Event()


def count_open(books: Books, tenant: str) -> int:
    """How many open sessions a tenant has."""
    return sum(ref.tenant == tenant for ref in books.open)


def oldest_children(books: Books, ref: SessionRef, limit: int) -> tuple[str, ...]:
    """The names of so many open children, in order."""
    kids = books.kids.get(ref, {})
    oldest = heapq.nsmallest(limit, kids, key=lambda one: (kids[one], name_of(one)))
    return tuple(sorted(child.session for child in oldest))


def count_on(session: Session) -> None:
    """Somebody uses a session, and not only to be refused."""
    by, verdict = session.began
    session.began = (by, TagVerdict.JOINED if verdict is TagVerdict.OPENED else verdict)


def end_unused(books: Books, session: Session) -> None:
    """After a refused request of a session that nobody has used: it is idle now, unless another one is under way."""
    now_ms = books.now_ms()
    if all(until_ms <= now_ms for until_ms in session.in_flight.values()):
        session.deadline_ms = now_ms


def lend(books: Books, session: Session, worker: str) -> None:
    """Let a worker compute the session's prompts. Whoever did so before is like one that had the session."""
    if session.holders.prefill != worker:
        session.holders.prefill = worker
        session.placement += 1
    books.hold(session, worker)


def settle(books: Books, worker: str, outcome: Outcome, said: str = "") -> None:
    """Answer for a worker that will not: everything that routers wait for."""
    pending = books.desks[worker].pending if worker in books.desks else {}
    for notice in pending.values():
        answers = books.answers.setdefault(notice.reply_to, [])
        books.append(answers, receipt_for(notice, worker, outcome, said))
    pending.clear()


def name_of(ref: SessionRef) -> bytes:
    """What sessions of one moment are ordered by."""
    return scoped(ref.tenant, SessionId(ref.session)).encode()


def receipt_for(notice: Notice, worker: str, outcome: Outcome, said: str = "") -> Receipt:
    """The answer that a worker no longer gives itself."""
    return Receipt(
        notice.order,
        notice.tenant,
        notice.session,
        notice.generation,
        worker,
        outcome,
        notice.operation,
        notice.reply_to,
        mode=notice.mode,
        said=said,
    )

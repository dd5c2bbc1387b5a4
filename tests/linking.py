"""A worker's link over a store in memory, and an engine that keeps account: taken step by step, on a manual clock."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from agentcache.cache import Ticket
from agentcache.clock import ManualClock
from agentcache.engine.api import Admitted, Event, GenerateRequest
from agentcache.engine.engine import Engine
from agentcache.errors import CacheError, Kind
from agentcache.holdings import SessionView
from agentcache.ids import scoped
from agentcache.store.api import (
    Beat,
    Closing,
    Done,
    Mail,
    Offer,
    Offered,
    SessionRef,
    StoreRules,
    Tagged,
    Use,
    WorkerDesk,
)
from agentcache.store.memory import MemoryStore
from agentcache.types import SessionId
from agentcache.wire import Hints, Receipt, Role, Tag, WorkerCard, WorkerLoad
from agentcache.worker.headers import routed_identity
from agentcache.worker.link import RouterLink
from agentcache.worker.link_standing import Pace
from tests.accounting import account, play

T = TypeVar("T")
TENANT = "acme"
TOKENS = tuple(range(5, 5 + 96))
RULES = StoreRules(ttl_s=100.0, worker_s=5.0)


def ref(session: str) -> SessionRef:
    return SessionRef(TENANT, session)


class FaultyDesk:
    """A worker's desk that is away while told so, and remembers what was said."""

    def __init__(self, desk: WorkerDesk) -> None:
        self._desk = desk
        self.away = False
        self.fails_at = ""
        self.said: list[tuple[str, Any]] = []

    @property
    def shards(self) -> int:
        return self._desk.shards

    async def register(self, card: WorkerCard) -> str:
        self._note("register", card)
        return await self._desk.register(card)

    async def heartbeat(self, worker: str, incarnation: str, highest: int, load: WorkerLoad) -> Beat:
        self._note("heartbeat", (highest, load))
        return await self._desk.heartbeat(worker, incarnation, highest, load)

    async def leave(self, worker: str, incarnation: str) -> None:
        self._note("leave", incarnation)
        await self._desk.leave(worker, incarnation)

    async def offer(self, worker: str, offers: Sequence[Offer], lost: bool) -> tuple[Offered, ...]:
        if offers:
            self._note("offer", (tuple(offers), lost))
        return await self._desk.offer(worker, offers, lost)

    async def mail(self, worker: str, shard: int, cursor: str, wait_s: float) -> Mail:
        self._note("mail", cursor)
        return await self._desk.mail(worker, shard, cursor, wait_s)

    async def receipt(self, receipt: Receipt) -> None:
        self._note("receipt", receipt)
        await self._desk.receipt(receipt)

    def told(self, what: str) -> list[Any]:
        """Everything of a kind that got through, and forget it."""
        found = [value for name, value in self.said if name == what]
        self.said = [(name, value) for name, value in self.said if name != what]
        return found

    def _note(self, what: str, value: object) -> None:
        if self.away or what == self.fails_at:
            raise CacheError(Kind.STORE_FAILED, "the store is away")
        self.said.append((what, value))


class OnEngine:
    """Runs functions on an engine at once, as if its thread were between two steps."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.ended: CacheError | None = None

    async def call(self, function: Callable[[Engine], T]) -> T:
        if self.ended:
            raise self.ended
        return function(self.engine)


class LinkWorld:
    """One worker `w1` with its engine, desk and link; the store knows a second worker, `w2`, that is only a name."""

    def __init__(self, pace: Pace | None = None) -> None:
        self.clock = ManualClock(10**12)
        self.now_ms = 1_800_000_000_000
        epochs = map("epoch{}".format, itertools.count(1))
        self.store = MemoryStore(RULES, lambda: self.now_ms, lambda: next(epochs))
        self.pace = pace or Pace()
        self._numbers = itertools.count(1)
        self.restart()

    def restart(self) -> None:
        """The worker starts anew, with nothing."""
        self.engine = account(clock=self.clock, host_mib=None, ttl_s=100.0)
        self.desk = FaultyDesk(self.store)
        self.thread = OnEngine(self.engine)
        self.link = self.linked("w1", f"start{next(self._numbers)}")

    def linked(self, worker: str, incarnation: str, role: Role = Role.BOTH) -> RouterLink:
        card = WorkerCard(worker, incarnation, "http://w", "tiny-all", 4096, 4, 32, 8, 64, role=role)
        return RouterLink(self.desk, card, self.thread, self.clock, self.pace)

    def wait(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1e9))
        self.now_ms += round(seconds * 1000)

    async def idle(self, seconds: int) -> None:
        """Time passes, with a beat now and then; a router is there, and ends no session."""
        for _ in range(0, seconds, 4):
            self.wait(4)
            await self.store.sweep(0)
            await self.step()

    async def step(self) -> None:
        """A beat, what is in doubt, and the mail."""
        await self.link.beat()
        await self.link.offer()
        await self.link.read_mail()

    # a router

    async def tagged(self, session: str, worker: str = "w1", **use: Any) -> Tag:
        """Take in a request, for a worker; a session that has none is given to it."""
        request_id = f"r{next(self._numbers)}"
        told = await self.store.tag(ref(session), Use(request_id, worker=worker, **use))
        return self.tag_of(session, told, request_id)

    def tag_of(self, session: str, told: Tagged, request_id: str) -> Tag:
        return Tag(
            TENANT,
            "salt",
            session,
            told.generation,
            told.placement,
            told.parent,
            Hints(),
            f"{request_id}.1",
            "w1",
            self.now_ms,
            told.epoch,
        )

    async def done(self, tag: Tag, registered: bool = True, worker: str = "w1") -> bool:
        request_id = tag.request_id.removesuffix(".1")
        end = Done(request_id, tag.generation, worker, tag.placement, registered)
        return await self.store.done(ref(tag.session), end)

    async def move(self, session: str, to: str) -> Tag:
        """Another worker gets the session, and ends a turn of it there."""
        now = await self.store.look(ref(session))
        await self.store.assign(ref(session), now.generation, now.placement, to)
        tag = await self.tagged(session, worker=to)
        if to != "w1":
            await self.done(tag, worker=to)
        return tag

    async def close(self, session: str, **closing: Any) -> None:
        await self.store.close(ref(session), Closing(operation="op", reply_to="router", **closing))

    async def answers(self) -> list[Receipt]:
        """What the router was answered so far."""
        return [receipt for _, receipt in await self.store.receipts("router", "0", 0.0)]

    # the worker

    def begin(self, tag: Tag) -> str:
        """A request comes, and its turn is running when this returns."""
        identity = routed_identity(tag)
        request = GenerateRequest(
            tag.request_id, TOKENS, 4, session=identity.tag, tenant_salt=identity.salt, output=(5, 6, 7, 8)
        )
        self.engine.submit(request)
        told: list[Event] = []
        while not any(isinstance(event, Admitted) for event in told):
            told += self.engine.step()
        return str(next(event.state for event in told if isinstance(event, Admitted)))

    def enter(self, tag: Tag) -> Ticket:
        """A request comes, and waits."""
        return self.engine.cache.enter(routed_identity(tag).tag)

    def finish(self) -> None:
        """All turns end."""
        play(self.engine, self.clock, lambda _: None)

    def serve(self, tag: Tag) -> str:
        """A whole turn; the state that its answer says."""
        state = self.begin(tag)
        self.finish()
        return state

    async def turn(self, session: str, **use: Any) -> Tag:
        """A whole turn, with the router's part."""
        tag = await self.tagged(session, **use)
        self.serve(tag)
        await self.done(tag)
        return tag

    def view(self, session: str) -> SessionView:
        return self.engine.cache.session(scoped(TENANT, SessionId(session)))

    @property
    def referenced(self) -> set[str]:
        """The sessions that have markers."""
        return {str(view.session) for view in self.engine.cache.sessions() if view.markers}

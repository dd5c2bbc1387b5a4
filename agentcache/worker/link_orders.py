"""What a router orders, carried out on the engine's thread: notices become receipts, answers to offers are followed."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agentcache.engine.engine import Engine
from agentcache.errors import CacheError
from agentcache.holdings import Holding, LetGo
from agentcache.ids import scoped, unscoped
from agentcache.routed import KnownSession
from agentcache.store.api import Offer, Offered, OfferVerdict, SessionRef
from agentcache.types import ReleaseMode, SessionId, SessionTag
from agentcache.wire import HeldPart, Notice, Order, Outcome, Receipt, WorkerLoad

AHEAD: Final = 1024
"""So many sessions whose end was heard of before its notice came are remembered."""


@dataclass(frozen=True, slots=True)
class Sample:
    """How a worker is: its load, the highest generation that any router named, and whom to ask the store about."""

    load: WorkerLoad
    highest: int = 0
    unconfirmed: tuple[KnownSession, ...] = ()


def take_sample(engine: Engine, epoch: str, silent_s: float) -> Sample:
    """The engine as it is; its routers' store was heard `silent_s` seconds ago. Cost O(1) and each new session."""
    highest = engine.cache.heard_router(epoch, silent_s)
    load = engine.load()
    told = WorkerLoad(load.waiting, load.running, engine.cache.stats().sessions.open)
    return Sample(told, highest, engine.cache.unconfirmed_sessions())


class Following:
    """Follows what routers say. All of it runs on the engine's thread.

    What an answer to an offer let go of is remembered: the notice that says the same is on its way, and its receipt
    tells it.
    """

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._ahead: OrderedDict[SessionId, LetGo] = OrderedDict()

    def obey(self, engine: Engine, notices: Sequence[Notice]) -> list[Receipt]:
        """Follow orders in their order, and say what each let go of."""
        return [self._obey(engine, notice) for notice in notices]

    def settle(self, engine: Engine, known: Sequence[KnownSession], answers: Sequence[Offered]) -> None:
        """Follow what a store says of the sessions that it was offered."""
        for one, answer in zip(known, answers, strict=True):
            let_go = _settled(engine, one, answer)
            if let_go.markers:
                self._ahead[one.session] = let_go
                if len(self._ahead) > AHEAD:
                    self._ahead.popitem(last=False)

    def _obey(self, engine: Engine, notice: Notice) -> Receipt:
        """A fault of ours is an outcome too: the router is waiting."""
        session = scoped(notice.tenant, SessionId(notice.session))
        try:
            let_go = _follow(engine, session, notice)
        except CacheError as error:
            return failed(notice, self._worker, str(error))
        ahead = self._ahead.pop(session, let_go)
        if ahead.generation <= notice.generation and not let_go.markers:
            let_go = replace(ahead, generation=let_go.generation, busy=let_go.busy)
        return _receipt(notice, let_go, self._worker)


def failed(notice: Notice, worker: str, said: str) -> Receipt:
    """The receipt for an order that could not be followed."""
    return Receipt(
        order=notice.order,
        tenant=notice.tenant,
        session=notice.session,
        generation=notice.generation,
        worker=worker,
        outcome=Outcome.FAILED,
        operation=notice.operation,
        reply_to=notice.reply_to,
        said=said,
    )


def offers_of(known: Iterable[KnownSession], prefill: bool = False) -> list[Offer]:
    """Sessions as they are offered to a store: by their tenants' names for them. `prefill`: the worker's role."""
    return [
        Offer(
            ref=SessionRef(*unscoped(one.session)),
            generation=one.generation,
            placement=one.placement,
            idle_s=one.idle_s,
            ttl_s=one.ttl_s,
            parent=unscoped(one.parent)[1] if one.parent else "",
            prefill=prefill,
        )
        for one in known
    ]


def _settled(engine: Engine, known: KnownSession, answer: Offered) -> LetGo:
    session, cache = known.session, engine.cache
    match answer.verdict:
        case OfferVerdict.CLOSED:
            return cache.close_through(session, answer.generation, ReleaseMode.RELEASE)
        case OfferVerdict.MOVED:
            return cache.moved_away(session, answer.generation, answer.placement)
        case OfferVerdict.GONE:
            return cache.expire_through(session, known.generation, even_busy=True)
        case OfferVerdict.KEEP | OfferVerdict.HELD:
            return LetGo(session, known.generation, known=True, busy=known.busy)


def _follow(engine: Engine, session: SessionId, notice: Notice) -> LetGo:
    match notice.order:
        case Order.CLOSE:
            return engine.cache.close_through(session, notice.generation, _mode(notice.mode))
        case Order.EXPIRE:
            return engine.cache.expire_through(session, notice.generation)
        case Order.MOVED:
            return engine.cache.moved_away(session, notice.generation, notice.placement)
        case Order.FORK:
            return _fork(engine, session, notice)


def _fork(engine: Engine, session: SessionId, notice: Notice) -> LetGo:
    """As a request of the session does that is never begun: it is open here from now on, and inherits.

    One whose turn has registered is past that, and it may wait for a tool by now: for it the word comes too late.
    """
    if engine.cache.paths.generation(session) == notice.generation:
        return LetGo(session, notice.generation, known=True, busy=False)
    tag = SessionTag(
        session,
        notice.generation,
        parent=scoped(notice.tenant, SessionId(notice.parent)),
        issued=True,
        placement=notice.placement,
        fork=True,
    )
    ticket = engine.cache.enter(tag)
    engine.cache.leave(ticket)
    return LetGo(session, ticket.generation, known=ticket.registers, busy=False)


def _mode(named: str) -> ReleaseMode:
    """How to release; what a later router may ask for is a release at least."""
    known = (ReleaseMode.RELEASE, ReleaseMode.DEMOTE, ReleaseMode.DROP)
    return ReleaseMode(named) if named in known else ReleaseMode.RELEASE


def _receipt(notice: Notice, let_go: LetGo, worker: str) -> Receipt:
    followed = Outcome.RELEASED if let_go.known else Outcome.UNKNOWN
    return Receipt(
        order=notice.order,
        tenant=notice.tenant,
        session=notice.session,
        generation=let_go.generation,
        worker=worker,
        outcome=Outcome.BUSY if let_go.busy else followed,
        operation=notice.operation,
        reply_to=notice.reply_to,
        released=tuple(_part(holding) for holding in let_go.released),
        markers=let_go.markers,
        mode=str(let_go.mode),
    )


def _part(holding: Holding) -> HeldPart:
    return HeldPart(
        holding.component,
        str(holding.tier),
        holding.tokens,
        holding.slots,
        holding.bytes,
        holding.shared_slots,
    )

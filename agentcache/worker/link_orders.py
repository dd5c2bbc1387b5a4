"""What a router orders, carried out on the engine's thread: notices become receipts, answers to offers are followed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentcache.engine.engine import Engine
from agentcache.errors import CacheError
from agentcache.holdings import Holding, LetGo
from agentcache.ids import scoped, unscoped
from agentcache.routed import KnownSession
from agentcache.store.api import Offer, Offered, OfferVerdict, SessionRef
from agentcache.types import ReleaseMode, SessionId
from agentcache.wire import HeldPart, Notice, Order, Outcome, Receipt, WorkerLoad


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


def obey(engine: Engine, notice: Notice, worker: str) -> Receipt:
    """Follow one order, and say what that let go of. A fault of ours is an outcome too: the router is waiting."""
    try:
        return _receipt(notice, _follow(engine, notice), worker)
    except CacheError as error:
        return failed(notice, worker, str(error))


def obey_all(engine: Engine, notices: Sequence[Notice], worker: str) -> list[Receipt]:
    """Follow orders in their order."""
    return [obey(engine, notice, worker) for notice in notices]


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


def offers_of(known: Iterable[KnownSession]) -> list[Offer]:
    """Sessions as they are offered to a store: by their tenants' names for them."""
    return [
        Offer(
            ref=SessionRef(*unscoped(one.session)),
            generation=one.generation,
            placement=one.placement,
            idle_s=one.idle_s,
            ttl_s=one.ttl_s,
            parent=unscoped(one.parent)[1] if one.parent else "",
        )
        for one in known
    ]


def settle(engine: Engine, known: Sequence[KnownSession], answers: Sequence[Offered]) -> None:
    """Follow what a store says of the sessions that it was offered."""
    for one, answer in zip(known, answers, strict=True):
        match answer.verdict:
            case OfferVerdict.CLOSED:
                engine.cache.close_through(one.session, answer.generation, ReleaseMode.RELEASE)
            case OfferVerdict.MOVED:
                engine.cache.moved_away(one.session, answer.generation, answer.placement)
            case OfferVerdict.GONE:
                engine.cache.expire_through(one.session, one.generation, even_busy=True)
            case OfferVerdict.KEEP | OfferVerdict.HELD:
                pass


def _follow(engine: Engine, notice: Notice) -> LetGo:
    session = scoped(notice.tenant, SessionId(notice.session))
    match notice.order:
        case Order.CLOSE:
            return engine.cache.close_through(session, notice.generation, _mode(notice.mode))
        case Order.EXPIRE:
            return engine.cache.expire_through(session, notice.generation)
        case Order.MOVED:
            return engine.cache.moved_away(session, notice.generation, notice.placement)


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
    return HeldPart(holding.component, str(holding.tier), holding.tokens, holding.slots, holding.bytes)

"""Idle sessions in memory: their holders are asked to let go, and when all have, the session is off the books."""

from dataclasses import dataclass, field

from agentcache.store.api import ClosedOne, SessionRef
from agentcache.store.memory_books import ASKED, OFFER_BEATS, RELEASED, Books, Session, Tombstone
from agentcache.wire import Notice, Order, Outcome, Receipt


@dataclass(slots=True)
class Idled:
    """What became of idle sessions: holders that were asked, sessions that ended, and whom nobody told of that."""

    asked: int = 0
    ended: int = 0
    lapsed: list[ClosedOne] = field(default_factory=list)


def idle_out(books: Books, ref: SessionRef, idled: Idled) -> None:
    """End a session whose lease is over, or ask its holders to let go, or arm it again."""
    session, now_ms = books.open[ref], books.now_ms()
    in_flight = [until_ms for until_ms in session.in_flight.values() if until_ms > now_ms]
    if in_flight:
        session.deadline_ms = max(in_flight)
        return
    if books.kids.get(ref):
        session.deadline_ms = now_ms + session.ttl_ms
        return
    holders = books.holders(session)
    asked = [worker for worker in holders if worker in books.desks]
    if not asked:
        _lapse(books, ref)
        idled.ended += 1
        if holders:
            idled.lapsed.append(ClosedOne(ref.session, session.generation, holders, ref.tenant))
        return
    session.expiring = session.expiring or ASKED
    session.deadline_ms = now_ms + round(OFFER_BEATS * books.rules.worker_s * 1000)
    notice = Notice(Order.EXPIRE, ref.tenant, ref.session, session.generation, session.placement)
    for worker in asked:
        books.post(worker, notice)
    idled.asked += len(asked)


def let_go(books: Books, receipt: Receipt) -> None:
    """A worker's answer to an expiry. One that is busy, or failed, keeps the session as it was."""
    ref = SessionRef(receipt.tenant, receipt.session)
    session = books.open.get(ref)
    if not session or receipt.generation > session.generation:
        return
    if receipt.outcome in (Outcome.BUSY, Outcome.FAILED):
        if session.expiring and receipt.generation == session.generation:
            books.renew(session)
        return
    if receipt.generation < session.generation:
        if receipt.worker != session.worker:
            session.holders.pop(receipt.worker, None)
        return
    if session.holders.pop(receipt.worker, None) is not None:
        _one_less(books, ref, session)


def _one_less(books: Books, ref: SessionRef, session: Session) -> None:
    """A holder has let go of the generation that is current: it takes no more turns of it."""
    going, left = bool(session.expiring), books.holders(session)
    if going and any(worker in books.desks for worker in left):
        session.expiring = RELEASED
    elif not going or books.kids.get(ref):
        session.generation = books.issue()
        session.expiring = ""
        session.deadline_ms = max(session.deadline_ms, books.now_ms() + session.ttl_ms * going)
    elif left:  # only such as cannot be asked: the next sweep says whom nobody told
        session.expiring = RELEASED
        session.deadline_ms = books.now_ms()
    else:
        _lapse(books, ref)


def _lapse(books: Books, ref: SessionRef) -> None:
    """End an idle session. One that was closed before it was opened stays closed through that generation."""
    session = books.end(ref)
    if session.past.closed_through:
        before_ms = books.now_ms() - round(books.rules.reopen_after_s * 1000) - 1
        books.tombs[ref] = Tombstone(session.past.closed_through, before_ms)

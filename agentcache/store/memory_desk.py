"""The workers' side of a store in memory."""

from collections.abc import Sequence

import msgspec

from agentcache.store.api import Beat, Mail, Offer, Offered, OfferVerdict, SessionRef
from agentcache.store.memory_books import Books, Desk, Session, settle
from agentcache.store.memory_expiry import let_go
from agentcache.store.memory_fleet import waited
from agentcache.wire import Notice, Order, Outcome, Receipt, WorkerCard, WorkerLoad

MAIL_NOTICES = 1000


class MemoryDesk:
    """What a worker tells and asks."""

    shards = 1

    def __init__(self, books: Books) -> None:
        self.books = books

    async def register(self, card: WorkerCard) -> str:
        books, now_ms = self.books, self.books.now_ms()
        if books.incarnation(card.worker) == card.incarnation:
            books.desks[card.worker].card = card
            books.desks[card.worker].heard_ms = now_ms
        else:
            settle(books, card.worker, Outcome.RESTARTED)
            books.desks[card.worker] = Desk(card, now_ms)
        return books.epoch

    async def heartbeat(self, worker: str, incarnation: str, highest: int, load: WorkerLoad) -> Beat:
        books = self.books
        books.last = max(books.last, highest)
        known = books.incarnation(worker) == incarnation
        if known:
            books.desks[worker].heard_ms = books.now_ms()
            books.desks[worker].load = load
        return Beat(known, books.epoch, max(0, books.now_ms() - books.watch.swept_ms) / 1000)

    async def leave(self, worker: str, incarnation: str) -> None:
        if self.books.incarnation(worker) == incarnation:
            settle(self.books, worker, Outcome.RESTARTED)
            del self.books.desks[worker]
            self.books.mail.pop(worker, None)

    async def offer(self, worker: str, offers: Sequence[Offer], lost: bool) -> tuple[Offered, ...]:
        return tuple([self._compare(worker, offer, lost) for offer in offers])

    async def mail(self, worker: str, shard: int, cursor: str, wait_s: float) -> Mail:
        books = self.books
        if not cursor:
            return Mail(cursor=self._end(worker))
        place = int(cursor)

        def found() -> Sequence[tuple[int, Notice | None]]:
            return [one for one in books.mail.get(worker, []) if one[0] > place]

        gap = place not in [at for at, _ in books.mail.get(worker, [])]
        unread = (found() if gap else await waited(books, found, wait_s))[:MAIL_NOTICES]
        notices = [msgspec.structs.replace(notice, at=str(at)) for at, notice in unread if notice]
        return Mail(
            tuple(notices), str(unread[-1][0]) if unread else self._end(worker) if gap else cursor, gap
        )

    async def receipt(self, receipt: Receipt) -> None:
        books = self.books
        if receipt.order is Order.EXPIRE:
            let_go(books, receipt)
        desk = books.desks.get(receipt.worker)
        asked = (receipt.operation, SessionRef(receipt.tenant, receipt.session))
        if receipt.order is Order.CLOSE and desk and (notice := desk.pending.pop(asked, None)):
            books.append(books.answers.setdefault(notice.reply_to, []), receipt)

    def _end(self, worker: str) -> str:
        """The end of a worker's stream; an empty one gets a mark, so that a cursor always names what is there."""
        stream = self.books.mail.setdefault(worker, [])
        if not stream:
            self.books.append(stream, None)
        return str(stream[-1][0])

    def _compare(self, worker: str, offer: Offer, lost: bool) -> Offered:
        """What a worker may do with what it has."""
        books, ref = self.books, offer.ref
        books.last = max(books.last, offer.generation)
        closed_through = books.closed_through(ref)
        if closed_through >= offer.generation:
            return Offered(OfferVerdict.CLOSED, closed_through)
        if session := books.open.get(ref):
            return self._compare_open(worker, offer, session)
        if not lost or offer.idle_s >= (offer.ttl_s or books.rules.ttl_s):
            return Offered(OfferVerdict.GONE)
        if self._is_orphan(offer):
            books.bury(ref, offer.generation)
            return Offered(OfferVerdict.CLOSED, offer.generation)
        self._again(worker, offer)
        return Offered(OfferVerdict.KEEP, offer.generation, offer.placement)

    def _compare_open(self, worker: str, offer: Offer, session: Session) -> Offered:
        """A live record wins, unless it is older than what the worker was told."""
        books = self.books
        newer = (offer.generation, offer.placement) > (session.generation, session.placement)
        if offer.generation > session.generation:
            session.generation = books.issue()
        if offer.prefill:
            self._compare_lent(worker, offer, session)
        elif not session.worker or (newer and session.worker != worker):
            session.placement = max(session.placement, offer.placement - 1)
            books.give(session, worker)
        if session.worker == worker:
            books.hold(session, worker)
            return Offered(OfferVerdict.KEEP, session.generation, session.placement)
        if session.registered and session.holders.prefill != worker:
            session.holders.pop(worker, None)
            return Offered(OfferVerdict.MOVED, session.generation, session.placement)
        books.hold(session, worker)
        return Offered(OfferVerdict.HELD, session.generation, session.placement)

    def _compare_lent(self, worker: str, offer: Offer, session: Session) -> None:
        """A worker that computes prompts has the session never; it may be the one that did so last."""
        session.placement = max(session.placement, offer.placement)
        if session.worker != worker and not session.holders.prefill:
            session.holders.prefill = worker

    def _is_orphan(self, offer: Offer) -> bool:
        """Whether a lost session's parent was closed since: it would have been closed with it, had it been known."""
        parent = SessionRef(offer.ref.tenant, offer.parent)
        return self.books.closed_through(parent) > offer.generation

    def _again(self, worker: str, offer: Offer) -> None:
        """Open a session that was lost, with what is left of its lease, and its parent, which must have been open."""
        books, ref = self.books, offer.ref
        session = books.begin(ref, offer.ttl_s, offer.generation)
        session.placement = offer.placement
        if offer.prefill:
            session.holders.prefill = worker
        else:
            session.worker = worker
        books.hold(session, worker)
        session.used_ms -= round(offer.idle_s * 1000)
        session.deadline_ms -= round(offer.idle_s * 1000)
        parent = SessionRef(ref.tenant, offer.parent)
        if not offer.parent or parent in books.tombs or books.misfit(offer.parent, ref):
            return
        if parent not in books.open:
            books.begin(parent, offer.ttl_s)
        books.adopt(ref, offer.parent)

"""The sessions of a store in memory: the readable form of what each script does in Redis."""

from agentcache.store.api import (
    ClosedFamily,
    CloseVerdict,
    Closing,
    Done,
    Note,
    NoteKind,
    Opened,
    Opening,
    OpenVerdict,
    Page,
    Placed,
    SessionRecord,
    SessionRef,
    Tagged,
    TagVerdict,
    Use,
)
from agentcache.store.memory_books import (
    Books,
    Leftover,
    Session,
    count_on,
    count_open,
    end_unused,
    lend,
    oldest_children,
)
from agentcache.store.memory_closing import close_left, close_one
from agentcache.store.places import place_after
from agentcache.wire import Notice, Order


class MemorySessions:
    """What a router asks about sessions. Every call is one step: none waits."""

    def __init__(self, books: Books) -> None:
        self.books = books

    async def open(self, ref: SessionRef, opening: Opening) -> Opened:
        books, session = self.books, self.books.open.get(ref)
        verdict = self._refusal(ref, opening, session)
        if verdict:
            return self._opened(ref, verdict)
        if not session:
            verdict, session = OpenVerdict.CREATED, books.begin(ref, opening.ttl_s)
            session.on_close, session.past.least_ttl_ms = opening.on_close, round(opening.ttl_s * 1000)
        elif session.expiring:
            verdict, session.generation = OpenVerdict.CREATED, books.issue()
        elif opening.fence:
            verdict, session.generation = OpenVerdict.FENCED, books.issue()
        else:
            verdict = OpenVerdict.UNCHANGED
            count_on(session)
        if verdict is not OpenVerdict.UNCHANGED:
            session.began = ("", TagVerdict.JOINED)
        session.expiring = ""
        if opening.parent and not books.parent(ref, session):
            books.adopt(ref, opening.parent)
        if opening.fork:
            self._fork(ref, session)
        books.renew(session)
        return self._opened(ref, verdict)

    async def tag(self, ref: SessionRef, use: Use) -> Tagged:
        session = self.books.open.get(ref)
        if not session:
            return self._tag_closed(ref, use)
        self._forget_dead(session)
        if session.in_flight.get(use.request_id, 0) > self.books.now_ms():
            by, verdict = session.began
            repeated = verdict if by == use.request_id else TagVerdict.JOINED
            return self._tagged(ref, use, repeated)
        if use.fence is not None and use.fence != session.generation:
            return self._unserved(use, TagVerdict.STALE, session.generation)
        if not session.expiring:
            return self._join(ref, use, TagVerdict.JOINED)
        if use.fence is not None:
            return self._unserved(use, TagVerdict.UNKNOWN)
        session.generation = self.books.issue()
        session.expiring = ""
        return self._join(ref, use, TagVerdict.EXPIRED)

    async def done(self, ref: SessionRef, done: Done) -> bool:
        session = self.books.open.get(ref)
        if not session:
            return False
        session.in_flight.pop(done.request_id, None)
        if session.generation != done.generation:
            return False
        if done.refused and session.began[1] is TagVerdict.OPENED:
            end_unused(self.books, session)
            return True
        count_on(session)
        if done.registered and (done.worker, done.placement) == (session.worker, session.placement):
            session.registered = True
            self._move_away(ref, session)
        self.books.renew(session)
        return True

    async def assign(
        self, ref: SessionRef, generation: int, seen: int, worker: str, prefill: bool = False
    ) -> Placed:
        session = self.books.open.get(ref)
        if not session:
            return Placed("", 0)
        if prefill:
            return self._lent(session, generation, seen, worker)
        free = not session.worker or (seen == session.placement and worker != session.worker)
        if free and session.generation == generation:
            self.books.give(session, worker)
        return Placed(session.worker, session.placement, session.generation)

    async def close(self, ref: SessionRef, closing: Closing) -> ClosedFamily:
        books, session = self.books, self.books.open.get(ref)
        again = (closing.generation or 0) if closing.again else 0
        if not session:
            return self._close_on(ref, closing)
        if session.generation < again:
            session.generation = again
            books.last = max(books.last, session.generation)
        elif session.generation > again:
            session.past.closed_through = max(session.past.closed_through, again)
        if closing.generation not in (None, session.generation):
            return ClosedFamily(CloseVerdict.STALE, session.generation)
        left = Leftover(books.now_ms(), closing.mode, closing.operation, closing.reply_to)
        if ref in books.leftovers:
            left.families += books.leftovers[ref].families
        books.leftovers[ref] = left
        root = close_one(books, ref, left)
        closed, _ = close_left(books, ref, books.rules.close_limit - 1)
        more = ref in books.leftovers
        return ClosedFamily(CloseVerdict.CLOSED, root.generation, (root, *closed), more)

    async def look(self, ref: SessionRef, children: int = 0) -> SessionRecord:
        books = self.books
        if session := books.open.get(ref):
            now_ms = books.now_ms()
            return SessionRecord(
                ref,
                "open",
                session.generation,
                session.worker,
                session.placement,
                books.holders(session),
                books.parent(ref, session),
                children=len(books.kids.get(ref, {})),
                in_flight=sum(until_ms > now_ms for until_ms in session.in_flight.values()),
                ttl_s=session.ttl_ms / 1000,
                idle_s=max(0, now_ms - session.used_ms) / 1000,
                on_close=session.on_close,
                paused=session.waits[0],
                expected_s=session.waits[1],
                prefill=session.holders.prefill,
                child_names=oldest_children(books, ref, children),
            )
        if tomb := books.tombs.get(ref):
            return SessionRecord(ref, "closed", tomb.generation)
        return SessionRecord(ref, "none")

    async def list(self, tenant: str, after: str, limit: int) -> Page:
        every, start = list(self.books.tenant(tenant)), place_after(after)
        rest = [one for one in every if one[0] > start]
        records = tuple([await self.look(ref) for _, ref in rest[:limit]])
        return Page(records, str(rest[limit - 1][0]) if len(rest) > limit else "", len(every))

    async def note(self, ref: SessionRef, note: Note) -> SessionRecord:
        session = self.books.open.get(ref)
        if session and note.generation in (None, session.generation):
            count_on(session)
            if note.kind is NoteKind.PAUSE:
                session.waits = (note.tool, note.expected_s or session.waits[1])
            elif note.kind is NoteKind.RESUME:
                session.waits = ("", 0.0)
            self.books.renew(session)
        return await self.look(ref)

    def _refusal(self, ref: SessionRef, opening: Opening, session: Session | None) -> OpenVerdict | None:
        books, parent = self.books, SessionRef(ref.tenant, opening.parent)
        why = books.misfit(opening.parent, ref) if opening.parent else None
        has = session and books.parent(ref, session)
        if why and not (has and why is OpenVerdict.TOO_DEEP):
            return why
        if opening.parent and parent not in books.open:
            return OpenVerdict.PARENT_CLOSED if parent in books.tombs else OpenVerdict.NO_PARENT
        if not session and books.full(ref.tenant, opening.limit):
            return OpenVerdict.LIMITED
        return None

    def _fork(self, ref: SessionRef, session: Session) -> None:
        """Place a session with its parent, whose worker is told to let it inherit."""
        books, parent = self.books, self.books.parent(ref, session)
        above = books.open.get(SessionRef(ref.tenant, parent))
        if session.worker or not parent or not above or above.worker not in books.desks:
            return
        books.give(session, above.worker)
        order = (Order.FORK, ref.tenant, ref.session, session.generation, session.placement)
        books.post(above.worker, Notice(*order, parent=parent))

    def _opened(self, ref: SessionRef, verdict: OpenVerdict) -> Opened:
        session, count = self.books.open.get(ref), count_open(self.books, ref.tenant)
        if not session:
            return Opened(verdict, 0, count)
        return Opened(verdict, session.generation, count, session.worker)

    def _tag_closed(self, ref: SessionRef, use: Use) -> Tagged:
        """A request of a session that is not open."""
        books, tomb = self.books, self.books.tombs.get(ref)
        fenced = use.fence is not None
        if tomb and (fenced or books.now_ms() - tomb.closed_ms <= books.rules.reopen_after_s * 1000):
            return self._unserved(use, TagVerdict.CLOSED, tomb.generation)
        if fenced:
            return self._unserved(use, TagVerdict.UNKNOWN)
        if books.full(ref.tenant, use.limit):
            return self._unserved(use, TagVerdict.LIMITED)
        books.begin(ref, 0)
        return self._join(ref, use, TagVerdict.OPENED)

    def _join(self, ref: SessionRef, use: Use, verdict: TagVerdict) -> Tagged:
        """Take in a request of an open session; it comes back from what it waited for."""
        books, session = self.books, self.books.open[ref]
        if use.parent and not books.parent(ref, session):
            known = SessionRef(ref.tenant, use.parent) in books.open
            if known and not books.misfit(use.parent, ref):
                books.adopt(ref, use.parent)
        if session.worker:
            books.hold(session, session.worker)
        elif use.worker:
            books.give(session, use.worker)
        if verdict is not TagVerdict.JOINED:
            session.began = (use.request_id, verdict)
        session.in_flight[use.request_id] = books.now_ms() + round(books.rules.in_flight_s * 1000)
        session.waits = ("", use.expected_s)
        if use.ttl_s:
            session.ttl_ms = max(round(use.ttl_s * 1000), session.past.least_ttl_ms)
        books.renew(session)
        return self._tagged(ref, use, verdict)

    def _tagged(self, ref: SessionRef, use: Use, verdict: TagVerdict) -> Tagged:
        session = self.books.open[ref]
        parent = self.books.parent(ref, session)
        return Tagged(
            verdict,
            session.generation,
            session.worker,
            session.placement,
            parent,
            parent_ignored=bool(use.parent) and use.parent != parent,
            epoch=self.books.epoch,
            prefill=session.holders.prefill,
            ttl_s=session.ttl_ms / 1000,
        )

    def _unserved(self, use: Use, verdict: TagVerdict, generation: int = 0) -> Tagged:
        return Tagged(verdict, generation, parent_ignored=bool(use.parent), epoch=self.books.epoch)

    def _forget_dead(self, session: Session) -> None:
        """Requests whose routers never said that they ended; looked for now and then, they count no more anyway."""
        now_ms = self.books.now_ms()
        if now_ms % 16:
            return
        session.in_flight = {rid: until for rid, until in session.in_flight.items() if until > now_ms}

    def _lent(self, session: Session, generation: int, seen: int, worker: str) -> Placed:
        """Who computes the session's prompts from now on; nobody new if the session has changed meanwhile."""
        fits = (session.generation, session.placement) == (generation, seen) and worker != session.worker
        if fits:
            lend(self.books, session, worker)
        return Placed(worker if fits else "", session.placement, session.generation)

    def _move_away(self, ref: SessionRef, session: Session) -> None:
        """The worker of now has what is needed: the others may let go, but for who computes its prompts."""
        notice = Notice(Order.MOVED, ref.tenant, ref.session, session.generation, session.placement)
        staying = (session.worker, session.holders.prefill)
        for worker in self.books.holders(session):
            if worker not in staying:
                self.books.post(worker, notice)
        self.books.hold(session, session.worker)
        for worker in session.holders.keys() - set(staying):
            del session.holders[worker]

    def _close_on(self, ref: SessionRef, closing: Closing) -> ClosedFamily:
        """A session that is not open: go on with what a capped close of it has left."""
        books = self.books
        if closing.again and (closing.generation or 0) > books.closed_through(ref):
            books.bury(ref, closing.generation or 0)
        tomb, was_left = books.tombs.get(ref), ref in books.leftovers
        if was_left:
            books.leftovers[ref].closed_ms = books.now_ms()
        closed, _ = close_left(books, ref, books.rules.close_limit) if was_left else ((), 0)
        verdict = CloseVerdict.ALREADY if tomb else CloseVerdict.UNKNOWN
        return ClosedFamily(verdict, tomb.generation if tomb else 0, closed, ref in books.leftovers)

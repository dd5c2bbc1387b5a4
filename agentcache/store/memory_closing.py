"""Closes in memory: a family from its root down, some sessions at a time."""

from agentcache.store.api import ClosedOne, SessionRef
from agentcache.store.memory_books import Books, Family, Leftover
from agentcache.wire import Notice, Order


def close_one(books: Books, ref: SessionRef, how: Leftover) -> ClosedOne:
    """Close an open session: its holders are told, its children are left to `how`."""
    session = books.open[ref]
    mode = how.mode or session.on_close
    notice = Notice(
        Order.CLOSE,
        ref.tenant,
        ref.session,
        session.generation,
        session.placement,
        mode,
        how.operation,
        how.reply_to,
    )
    holders = books.holders(session)
    for worker in holders:
        books.post(worker, notice)
    if children := books.kids.pop(ref, {}):
        how.families.append(Family(books.last, children))
    books.bury(ref, session.generation)
    books.end(ref)
    return ClosedOne(ref.session, session.generation, holders, ref.tenant)


def close_left(books: Books, root: SessionRef, limit: int) -> tuple[tuple[ClosedOne, ...], int]:
    """Go on with a close. Answers what it closed, and how many sessions it looked at: at most `limit`."""
    left = books.leftovers[root]
    closed: list[ClosedOne] = []
    looked = 0
    while left.families and looked < limit:
        looked += 1
        family = left.families[0]
        child = min(family.children, key=lambda one: (family.children[one], one.session.encode()))
        del family.children[child]
        if not family.children:
            left.families.pop(0)
        if child in books.open and books.open[child].generation <= family.through:
            closed.append(close_one(books, child, left))
    if not left.families:
        del books.leftovers[root]
    return tuple(closed), looked

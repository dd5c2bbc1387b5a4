"""Closes in memory: a family from its root down, some sessions at a time."""

from collections import deque

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
        oldest_first = sorted(children, key=lambda one: (children[one], one.session.encode()))
        how.families.append(Family(books.last, deque(oldest_first)))
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
        child = family.children.popleft()
        if not family.children:
            left.families.pop(0)
        if child in books.open and books.open[child].generation <= family.through:
            closed.append(close_one(books, child, left))
    if not left.families:
        del books.leftovers[root]
    return tuple(closed), looked

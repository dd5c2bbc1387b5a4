"""The sessions of a store in Redis: one script a call."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentcache.ids import scoped
from agentcache.store.api import (
    ClosedFamily,
    ClosedOne,
    CloseVerdict,
    Closing,
    Done,
    Note,
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
from agentcache.store.calls import Calls, milliseconds
from agentcache.store.places import WALK, place_after
from agentcache.types import SessionId


class RedisSessions:
    """What a router asks about sessions."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    async def open(self, ref: SessionRef, opening: Opening) -> Opened:
        ttl_ms, fence = milliseconds(opening.ttl_s), int(opening.fence)
        words = (opening.parent, ttl_ms, fence, opening.on_close, opening.limit, int(opening.fork))
        verdict, generation, count, worker = await self._ask("open", ref, *words)
        return Opened(OpenVerdict(verdict), int(generation), count, worker)

    async def tag(self, ref: SessionRef, use: Use) -> Tagged:
        fence, ttl_ms = _or_none(use.fence), milliseconds(use.ttl_s)
        words = (use.request_id, use.worker, use.parent, fence, use.limit, ttl_ms, repr(use.expected_s))
        told = await self._ask("tag", ref, *words)
        verdict, generation, worker, placement, parent, ignored, epoch, prefill, ttl_ms = told
        known = self.calls.epoch(self.calls.shard(ref.tenant), epoch)
        return Tagged(
            TagVerdict(verdict),
            int(generation),
            worker,
            int(placement),
            parent,
            bool(ignored),
            known,
            prefill,
            int(ttl_ms) / 1000,
        )

    async def done(self, ref: SessionRef, done: Done) -> bool:
        how = (int(done.registered), int(done.refused))
        words = (done.request_id, done.generation, done.worker, done.placement, *how)
        return bool(await self._ask("done", ref, *words))

    async def assign(
        self, ref: SessionRef, generation: int, seen: int, worker: str, prefill: bool = False
    ) -> Placed:
        name, placement, current = await self._ask("assign", ref, generation, seen, worker, int(prefill))
        return Placed(name, int(placement), int(current))

    async def close(self, ref: SessionRef, closing: Closing) -> ClosedFamily:
        how = (closing.mode, closing.operation, closing.reply_to, int(closing.again))
        verdict, generation, more, *closed = await self._ask("close", ref, _or_none(closing.generation), *how)
        return ClosedFamily(CloseVerdict(verdict), int(generation), closed_ones(closed), bool(more))

    async def look(self, ref: SessionRef, children: int = 0) -> SessionRecord:
        view, *names = await self._ask("look", ref, children)
        return replace(_record(ref, view), child_names=tuple(sorted(names)))

    async def list(self, tenant: str, after: str, limit: int) -> Page:
        start = str(place_after(after) or "")
        reply = await self.calls.ask("list", self.calls.shard(tenant), tenant, start, limit)
        count, rest, *found = reply
        records = [_record(SessionRef(tenant, session), view) for session, *view in found]
        return Page(tuple(records), rest, count)

    async def recent(self, tenant: str, limit: int) -> Page:
        words = (tenant, limit, WALK)
        count, *found = await self.calls.ask("recent", self.calls.shard(tenant), *words)
        return Page(tuple(_record(SessionRef(tenant, session), view) for session, *view in found), "", count)

    async def note(self, ref: SessionRef, note: Note) -> SessionRecord:
        words = (note.kind.value, _or_none(note.generation), note.tool, repr(note.expected_s))
        return _record(ref, await self._ask("note", ref, *words))

    async def _ask(self, name: str, ref: SessionRef, *words: str | int) -> Any:
        shard = self.calls.shard(ref.tenant)
        return await self.calls.ask(name, shard, scoped(ref.tenant, SessionId(ref.session)), *words)


def closed_ones(found: Sequence[Sequence[str]]) -> tuple[ClosedOne, ...]:
    return tuple(
        ClosedOne(session, int(generation), tuple(sorted(holders)), tenant)
        for tenant, session, generation, *holders in found
    )


def _or_none(number: int | None) -> str | int:
    return "" if number is None else number


def _record(ref: SessionRef, view: Sequence[Any]) -> SessionRecord:
    """A session as the script `view` says it."""
    state, generation, *rest = view
    if not rest:
        return SessionRecord(ref, state, int(generation))
    worker, placement, parent, children, in_flight, ttl_ms, idle_ms, on_close, *rest = rest
    tool, expected_s, prefill, *holders = rest
    return SessionRecord(
        ref,
        state,
        int(generation),
        worker,
        int(placement),
        tuple(sorted(holders)),
        parent,
        children,
        in_flight,
        ttl_s=int(ttl_ms) / 1000,
        idle_s=int(idle_ms) / 1000,
        on_close=on_close,
        paused=tool,
        expected_s=float(expected_s),
        prefill=prefill,
    )

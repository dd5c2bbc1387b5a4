"""What calls of a replay put into the cache: at the boundaries where an engine would, in slots had beforehand.

    0          hit           b1           b2       prompt end         answer end
    |== locked ==|-- reserved, published when computed --|tail|-- chunk by chunk, as it finds room --|

The engine's own policy counts in tokens, the tree of a replay in pages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from agentcache.cache import ActiveTurn, UnifiedRadixCache
from agentcache.engine.publish import Need, PublishPolicy
from agentcache.replay.lab.parts import Parts
from agentcache.replay.paged import PagedCall, Pages
from agentcache.stats import PoolUse
from agentcache.types import (
    FULL,
    NO_SLOTS,
    Checkpoint,
    ComponentName,
    ComponentSpec,
    Piece,
    Slots,
    TierName,
    Window,
)

ALL = 2**31


@dataclass(slots=True)
class Reserved:
    """The boundaries of a prompt that will be published, in tokens, and the slots for that."""

    boundaries: tuple[int, ...] = ()
    slots: dict[ComponentName, Slots] = field(default_factory=dict)


def cut_tokens(call: PagedCall, page_tokens: int) -> int:
    """The tokens of a prompt's whole pages, and one more where there are some behind them: then all may be reused."""
    return len(call.prompt) * page_tokens + (call.reusable == len(call.prompt))


class Publishing:
    """Publishes for the turns of one cache. Without slots for all of it, as much of a path as there is room for."""

    def __init__(self, cache: UnifiedRadixCache, parts: Parts, page_tokens: int) -> None:
        self._cache = cache
        self._page = page_tokens
        self._hybrid = parts.hybrid
        self._policy = PublishPolicy(
            page_tokens, parts.grid(page_tokens), parts.specs(page_tokens), parts.every_chunks
        )
        self._sizes = {use.pool.component: use.size for use in self._device()}

    def end(self, pages: int) -> int:
        """How many of so many leading pages can be published."""
        return pages - pages % (self._policy.grid_tokens // self._page)

    def reserve(self, turn: ActiveTurn, call: PagedCall, must: bool) -> Reserved | None:
        """Slots for what the prompt will publish; None: not now. With `must` for what can be had of it now."""
        tokens = cut_tokens(call, self._page)
        wanted = self._wanted(turn, tokens, self._sizes)
        reserved = self._lease(turn, *wanted)
        while reserved is None and must and self._cache.tiers.make_way():
            reserved = self._lease(turn, *wanted)
        if reserved is None and must:
            reserved = self._lease(turn, *self._that_fit(turn, tokens)) or Reserved()
        return reserved

    def publish(self, turn: ActiveTurn, path: Pages, reserved: Reserved) -> None:
        """What was reserved for is computed: it is put into the cache; slots that are left go back."""
        for boundary in reserved.boundaries:
            self._offer(turn, path, boundary, reserved.slots)
        for component, slots in reserved.slots.items():
            if slots.size:
                self._cache.return_slots(turn, component, slots)

    def answer(self, turn: ActiveTurn, path: Pages) -> None:
        """The answer has ended: it is published as far as it finds room; of a hybrid model chunk by chunk."""
        start, end = turn.boundary_tokens * self._page, self.end(len(path)) * self._page
        step = self._policy.grid_tokens if self._hybrid else max(1, end - start)
        for boundary in range(start + step, end + 1, step):
            if not self._extend(turn, path, boundary):
                return

    # inside

    def _extend(self, turn: ActiveTurn, path: Pages, boundary: int) -> bool:
        """Publish up to here, or else as far as there is room; False: not up to here."""
        start = turn.boundary_tokens * self._page
        reserved = self._lease(turn, (boundary,), self._policy.need(start, (boundary,)))
        reserved = reserved or self._lease(turn, *self._deepest(start, boundary, self._room()))
        self.publish(turn, path, reserved or Reserved())
        return turn.boundary_tokens * self._page >= boundary

    def _lease(self, turn: ActiveTurn, boundaries: tuple[int, ...], need: Need) -> Reserved | None:
        slots = self._cache.reserve(turn, need)
        return None if slots is None else Reserved(boundaries, dict(slots))

    def _offer(self, turn: ActiveTurn, path: Pages, boundary: int, slots: dict[ComponentName, Slots]) -> None:
        """Publish at a boundary with some of these slots, unless they are too few by now."""
        bare = self._policy.pieces(turn.boundary_tokens * self._page, boundary)
        counts = {piece.component: self._policy.count(piece) for piece in bare}
        if any(slots[name].size < count for name, count in counts.items()):
            return
        pieces = [self._filled(piece, slots[piece.component][: counts[piece.component]]) for piece in bare]
        for name, count in counts.items():
            slots[name] = slots[name][count:]
        full = pieces.pop(0).slots if FULL in counts else NO_SLOTS
        inserted = self._cache.publish(turn, path[: boundary // self._page], full, tuple(pieces))
        for piece in inserted.kept:
            slots[piece.component] = np.concatenate((slots[piece.component], piece.slots))

    def _filled(self, piece: Piece, slots: Slots) -> Piece:
        """A piece in the pages of the tree."""
        return Piece(piece.component, piece.start // self._page, piece.end // self._page, slots.copy())

    def _wanted(
        self, turn: ActiveTurn, tokens: int, sizes: Mapping[ComponentName, int]
    ) -> tuple[tuple[int, ...], Need]:
        """The engine's choice; of full attention alone the last boundary holds the others, and is used in any case."""
        start = turn.boundary_tokens * self._page
        if self._hybrid:
            return self._policy.reservation(start, tokens, tokens, sizes, turn.full_tokens * self._page)
        boundaries = self._policy.essential(start, tokens)[-1:] or (start,)
        return boundaries, self._policy.need(start, boundaries)

    def _that_fit(self, turn: ActiveTurn, tokens: int) -> tuple[tuple[int, ...], Need]:
        """The engine's choice for a machine that has no more than what is free or can be evicted now."""
        start, room = turn.boundary_tokens * self._page, self._room()
        held = self._policy.held(start)
        boundaries, need = self._wanted(turn, tokens, {name: room[name] + held[name] for name in room})
        if all(count <= room[name] for name, count in need.items()):
            return boundaries, need
        return self._deepest(start, tokens, room)

    def _deepest(
        self, start: int, end: int, room: Mapping[ComponentName, int]
    ) -> tuple[tuple[int, ...], Need]:
        """The last boundary up to `end` that there is room for, alone; none: nothing is to be had."""
        reach = min(
            end, start + self._page * min(self._reach(spec, room[spec.name]) for spec in self._policy.specs)
        )
        boundary = reach - reach % self._policy.grid_tokens
        boundaries = (boundary,) if boundary > start or not self._hybrid else ()
        return boundaries, self._policy.need(start, boundaries)

    def _reach(self, spec: ComponentSpec, room: int) -> int:
        """How many pages further the next boundary may lie with so many slots of a component."""
        match spec.rule:
            case Window(tokens):
                return room if room * self._page < tokens else ALL
            case Checkpoint():
                return ALL if room else 0
            case _:
                return room

    def _room(self) -> dict[ComponentName, int]:
        """Slots that can be had now."""
        return {use.pool.component: use.free + use.cached - use.protected for use in self._device()}

    def _device(self) -> list[PoolUse]:
        return [use for use in self._cache.stats().pools if use.pool.tier is TierName.DEVICE]

"""What one call did, collected as the effects that the cache will apply."""

import numpy as np

from agentcache.tree.reference.node import Node
from agentcache.types import (
    FULL,
    ComponentName,
    Effect,
    Effects,
    Emit,
    Event,
    EventKind,
    Free,
    Job,
    Move,
    Piece,
    PoolName,
    SessionId,
    Slots,
    TierName,
)


def slots_of(numbers: list[int]) -> Slots:
    return np.array(numbers, dtype=np.int32)


class Changes:
    """Effects of one call: frees before the moves that may use them, placement events last."""

    def __init__(self) -> None:
        self._steps: list[dict[PoolName, list[int]] | Job] = []
        self._events: list[tuple[EventKind, TierName, list[Node]]] = []
        self.dropped = False
        self.disturbed: dict[SessionId, None] = {}  # sessions that referenced what was dropped

    def free(self, pool: PoolName, slot: int) -> None:
        if not self._steps or isinstance(self._steps[-1], Job):
            self._steps.append({})
        frees = self._steps[-1]
        assert not isinstance(frees, Job)
        frees.setdefault(pool, []).append(slot)

    def move(self, job: Job) -> None:
        self._steps.append(job)

    def stored(self, node: Node, tier: TierName) -> None:
        last = self._events[-1] if self._events else None
        if last and last[:2] == (EventKind.STORED, tier) and last[2][-1] is node.parent:
            last[2].append(node)
        else:
            self._events.append((EventKind.STORED, tier, [node]))

    def removed(self, node: Node, tier: TierName) -> None:
        last = self._events[-1] if self._events else None
        if last and last[:2] == (EventKind.REMOVED, tier):
            last[2].append(node)
        else:
            self._events.append((EventKind.REMOVED, tier, [node]))

    def cleared(self, tiers: tuple[TierName, ...]) -> None:
        """Everything went: one event a tier replaces the removals."""
        self._events = [(EventKind.CLEARED, tier, []) for tier in tiers]

    def effects(self, emit_events: bool) -> Effects:
        steps: list[Effect] = []
        for step in self._steps:
            if isinstance(step, Job):
                steps.append(Move(step))
            else:
                steps += [Free(pool, slots_of(slots)) for pool, slots in step.items()]
        if emit_events:
            steps += [Emit(_event(*event)) for event in self._events]
        return tuple(steps)


def _event(kind: EventKind, tier: TierName, nodes: list[Node]) -> Event:
    hashes = tuple(node.digest() for node in nodes)
    if kind is not EventKind.STORED:
        return Event(kind, tier, hashes)
    above = nodes[0].above
    tokens = np.frombuffer(b"".join(node.edge for node in nodes), dtype="<i4")
    return Event(kind, tier, hashes, above.digest() if above.end else None, tuple(tokens.tolist()))


class Pieces:
    """Gathers single page positions of one path into pieces, one per contiguous run and component."""

    def __init__(self, page_tokens: int) -> None:
        self._page_tokens = page_tokens
        self._runs: dict[ComponentName, list[tuple[int, int, list[int]]]] = {}

    def add(self, name: ComponentName, node_end: int, slot: int, is_state: bool) -> None:
        """Positions of one component must come shallowest first."""
        start = node_end if is_state else node_end - self._page_tokens
        runs = self._runs.setdefault(name, [])
        if runs and not is_state and runs[-1][1] == start:
            begin, _, slots = runs[-1]
            slots.append(slot)
            runs[-1] = (begin, node_end, slots)
        else:
            runs.append((start, node_end, [slot]))

    def build(self) -> tuple[Piece, ...]:
        """FULL first, then the components in the order in which they came."""
        names = sorted(self._runs, key=lambda name: name != FULL)
        return tuple(
            Piece(name, start, end, slots_of(slots))
            for name in names
            for start, end, slots in self._runs[name]
        )

"""What one call did, collected as the effects that the cache will apply."""

from collections.abc import Iterator

import numpy as np

from agentcache.tree.api import CoreConfig
from agentcache.tree.reference.node import Node
from agentcache.types import (
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
        self._stored: list[tuple[TierName, list[Node]]] = []
        self._removed: dict[TierName, list[Node]] = {}
        self._cleared: tuple[TierName, ...] = ()
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
        tier_of_last, nodes = self._stored[-1] if self._stored else (None, [])
        if tier_of_last is tier and nodes[-1] is node.parent:
            nodes.append(node)
        else:
            self._stored.append((tier, [node]))

    def removed(self, node: Node, tier: TierName) -> None:
        self._removed.setdefault(tier, []).append(node)

    def cleared(self, tiers: tuple[TierName, ...]) -> None:
        """Everything went: one event a tier replaces the removals."""
        self._removed, self._cleared = {}, tiers

    def effects(self, emit_events: bool) -> Effects:
        steps: list[Effect] = []
        for step in self._steps:
            if isinstance(step, Job):
                steps.append(Move(step))
            else:
                steps += [Free(pool, slots_of(slots)) for pool, slots in step.items()]
        if emit_events:
            steps += [Emit(event) for event in self._events()]
        return tuple(steps)

    def _events(self) -> Iterator[Event]:
        """What was stored, then what was removed: at most one event a tier."""
        for tier, nodes in self._stored:
            yield _stored_event(tier, nodes)
        for tier in TierName:
            if tier in self._removed:
                yield Event(EventKind.REMOVED, tier, _digests(self._removed[tier]))
        for tier in self._cleared:
            yield Event(EventKind.CLEARED, tier)


def _digests(nodes: list[Node]) -> tuple[bytes, ...]:
    return tuple(node.digest() for node in nodes)


def _stored_event(tier: TierName, nodes: list[Node]) -> Event:
    above = nodes[0].above
    tokens = np.frombuffer(b"".join(node.edge for node in nodes), dtype="<i4")
    parent = above.digest() if above.end else None
    return Event(EventKind.STORED, tier, _digests(nodes), parent, tuple(tokens.tolist()))


class Pieces:
    """Gathers single page positions of one path into pieces, one per contiguous run, in spec order."""

    def __init__(self, config: CoreConfig) -> None:
        self._page_tokens = config.page_tokens
        self._runs: dict[ComponentName, list[tuple[int, int, list[int]]]] = {
            spec.name: [] for spec in config.specs
        }

    def add(self, name: ComponentName, node_end: int, slot: int, is_state: bool) -> None:
        """Positions of one component must come shallowest first."""
        start = node_end if is_state else node_end - self._page_tokens
        runs = self._runs[name]
        if runs and not is_state and runs[-1][1] == start:
            begin, _, slots = runs[-1]
            slots.append(slot)
            runs[-1] = (begin, node_end, slots)
        else:
            runs.append((start, node_end, [slot]))

    def build(self) -> tuple[Piece, ...]:
        return tuple(
            Piece(name, start, end, slots_of(slots))
            for name, runs in self._runs.items()
            for start, end, slots in runs
        )

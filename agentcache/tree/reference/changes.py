"""What one call did, collected as the effects that the cache will apply."""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from agentcache.tree.api import CoreConfig
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

Told = dict[tuple[ComponentName, TierName], list[Node]]


def slots_of(numbers: list[int]) -> Slots:
    return np.array(numbers, dtype=np.int32)


class Changes:
    """Effects of one call: frees before the moves that may use them, placement events last."""

    def __init__(self) -> None:
        self._steps: list[dict[PoolName, list[int]] | Job] = []
        self._runs: list[tuple[TierName, list[Node]]] = []  # FULL that was stored, by path
        self._stored: Told = {}
        self._removed: Told = {}
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

    def stored(self, node: Node, name: ComponentName, tier: TierName) -> None:
        """To be told: a page or state is new on a tier."""
        if name != FULL:
            self._stored.setdefault((name, tier), []).append(node)
            return
        tier_of_last, nodes = self._runs[-1] if self._runs else (None, [])
        if tier_of_last is tier and nodes[-1] is node.parent:
            nodes.append(node)
        else:
            self._runs.append((tier, [node]))

    def removed(self, node: Node, name: ComponentName, tier: TierName) -> None:
        """To be told: a page or state went from a tier."""
        self._removed.setdefault((name, tier), []).append(node)

    def cleared(self, tiers: tuple[TierName, ...]) -> None:
        """Everything went: one event a tier replaces the removals."""
        self._removed, self._cleared = {}, tiers

    def effects(self, config: CoreConfig) -> Effects:
        steps: list[Effect] = []
        for step in self._steps:
            if isinstance(step, Job):
                steps.append(Move(step))
            else:
                steps += [Free(pool, slots_of(slots)) for pool, slots in step.items()]
        if config.emit_events:
            steps += [Emit(event) for event in self._events([spec.name for spec in config.specs])]
        return tuple(steps)

    def _events(self, names: list[ComponentName]) -> Iterator[Event]:
        """What was stored, FULL first, then what was removed, FULL last: aux data never lie where no FULL is."""
        for tier, nodes in self._runs:
            yield _stored_event(tier, nodes)
        yield from _told(EventKind.STORED, self._stored, names)
        yield from _told(EventKind.REMOVED, self._removed, reversed(names))
        for tier in self._cleared:
            yield Event(EventKind.CLEARED, tier)


def _told(kind: EventKind, told: Told, names: Iterable[ComponentName]) -> Iterator[Event]:
    """At most one event a component and tier, the device first."""
    for place in itertools.product(names, TierName):
        if place in told:
            name, tier = place
            yield Event(kind, tier, _digests(told[place]), component=name)


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

"""Accounting pools of the tests: who has each slot, and a marker of what wrote it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from agentcache.keys import Key
from agentcache.types import ComponentName, PoolName


@dataclass(frozen=True, slots=True)
class Mark:
    """What wrote a slot: the data for `component` at the end of `path`. Its depth is the length of the path."""

    namespace: str
    path: tuple[int, ...]
    component: ComponentName


def mark_of(key: Key, end: int, component: ComponentName) -> Mark:
    return Mark(key.namespace.digest().hex(), tuple(key.tokens[:end].tolist()), component)


@dataclass
class Ledger:
    """One pool. Every slot is free, private to a request, landing (a job's destination), or the tree's."""

    name: PoolName
    size: int
    free: list[int] = field(default_factory=list)
    private: set[int] = field(default_factory=set)
    landing: set[int] = field(default_factory=set)
    marks: dict[int, Mark] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free = list(range(self.size))

    def take(self, count: int) -> list[int] | None:
        """The most recently freed slots, so that a use after free meets the new owner's mark."""
        if count > len(self.free):
            return None
        taken = [self.free.pop() for _ in range(count)]
        self.private.update(taken)
        return taken

    def write(self, slot: int, mark: Mark) -> None:
        assert slot in self.private or slot in self.landing, (
            f"{self.name}: write to {slot}, which is not ours"
        )
        self.marks[slot] = mark

    def to_landing(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self.private.remove(slot)
            self.landing.add(slot)

    def to_tree(self, slots: Iterable[int]) -> None:
        """The tree owns these now."""
        for slot in slots:
            assert slot in self.private or slot in self.landing, f"{self.name}: {slot} was not offered"
            self.private.discard(slot)
            self.landing.discard(slot)

    def give_back(self, slots: Iterable[int]) -> None:
        """Free slots, whoever had them. Twice is the fault that this class exists for."""
        for slot in slots:
            assert 0 <= slot < self.size, f"{self.name}: no slot {slot}"
            assert slot not in self.free, f"{self.name}: slot {slot} freed twice"
            self.private.discard(slot)
            self.landing.discard(slot)
            self.marks.pop(slot, None)
            self.free.append(slot)

    def verify(self, slot: int, mark: Mark) -> None:
        """A named slot still holds what the name says."""
        assert self.marks.get(slot) == mark, f"{self.name}[{slot}] holds {self.marks.get(slot)}, not {mark}"

    def cached(self) -> set[int]:
        """By the law, what the tree must own: everything else."""
        return set(range(self.size)) - set(self.free) - self.private - self.landing

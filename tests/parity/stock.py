"""Free slots of every pool, and the destinations of transfers under way."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from agentcache.types import ComponentName, Effects, Free, Job, Move, Piece, PoolName, TierName
from tests.builders import slots_of
from tests.flight import piece_ends

Target = tuple[ComponentName, int, int, int]  # component, start, end, destination slot


class Stock:
    """Which slots nobody has. What is taken depends on the history alone, not on the order of a core's frees."""

    def __init__(self, pools: dict[PoolName, int]) -> None:
        self.sizes = pools
        self._free = {pool: list(range(size)) for pool, size in pools.items()}

    def free(self, component: ComponentName, tier: TierName) -> int:
        return len(self._free.get(PoolName(component, tier), ()))

    def take(self, component: ComponentName, tier: TierName, count: int) -> list[int] | None:
        pool = self._free[PoolName(component, tier)]
        if count > len(pool):
            return None
        pool[:], taken = pool[: len(pool) - count], pool[len(pool) - count :]
        return taken

    def give_back(self, pool: PoolName, slots: Iterable[int]) -> None:
        back = sorted(slots)
        twice = set(back) & set(self._free[pool])
        assert not twice, f"{pool}: freed twice: {sorted(twice)}"
        self._free[pool] += back

    def taken(self, component: ComponentName, tier: TierName) -> list[int]:
        """Slots that somebody has."""
        pool = PoolName(component, tier)
        return sorted(set(range(self.sizes[pool])) - set(self._free[pool]))

    def settle(self, effects: Effects) -> list[Job]:
        """Return what was freed; answers the jobs to carry out."""
        freed: dict[PoolName, list[int]] = {}
        for effect in effects:
            if isinstance(effect, Free):
                freed.setdefault(effect.pool, []).extend(effect.slots.tolist())
        for pool, slots in freed.items():
            self.give_back(pool, slots)
        return [effect.job for effect in effects if isinstance(effect, Move)]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A job under way and the destinations that it has."""

    job: Job
    targets: tuple[Target, ...]

    @classmethod
    def begin(cls, job: Job, stock: Stock, page: int) -> "Transfer":
        targets: list[Target] = []
        for piece in job.pieces:
            for end in piece_ends(piece, page):
                outside = job.target is TierName.EXTERNAL
                slots = [len(targets)] if outside else stock.take(piece.component, job.target, 1)
                start = end if piece.start == piece.end else end - page
                targets += [(piece.component, start, end, slot) for slot in slots or ()]
        return cls(job, tuple(targets))

    def land(self, stock: Stock, share: int, seed: int) -> tuple[Piece, ...]:
        """About `share` percent of what has a destination, joined where contiguous; the rest is given back."""
        landed: list[Piece] = []
        for component, start, end, slot in self.targets:
            if zlib.crc32(f"{seed}.{component}.{end}".encode()) % 100 >= share:
                if self.job.target is not TierName.EXTERNAL:
                    stock.give_back(PoolName(component, self.job.target), [slot])
                continue
            last = landed[-1] if landed else None
            if last and start < end and seed % 2 and (last.component, last.end) == (component, start):
                landed[-1] = Piece(component, last.start, end, slots_of([*last.slots.tolist(), slot]))
            else:
                landed.append(Piece(component, start, end, slots_of([slot])))
        return tuple(landed)

"""What a driver remembers about leases and jobs that are out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agentcache.keys import Key
from agentcache.types import ComponentName, Job, Lease, Piece, Region, TierName
from tests.builders import slots_of
from tests.ledger import Ledger, Mark

KeepPage = Callable[[Piece, int], bool]  # does the page of this piece that ends here land?
Ledgers = Callable[[ComponentName, TierName], Ledger]


@dataclass
class HeldLease:
    """A lease that is out, and the page ends (or state position) that it must protect of each component."""

    lease: Lease
    key: Key
    length: int
    covered: dict[ComponentName, tuple[int, ...]]
    for_load: bool = False


def region_ends(region: Region, page: int) -> tuple[int, ...]:
    """Ends of the pages of a region; a state lies at the end of its page, and there is none at 0."""
    if region.start == region.end:
        return (region.end,) if region.end else ()
    return tuple(range(region.start + page, region.end + 1, page))


def piece_ends(piece: Piece, page: int) -> list[int]:
    """Where each slot of a piece belongs: page ends, or the state's position."""
    if piece.start == piece.end:
        return [piece.end] * len(piece.slots)
    return list(range(piece.start + page, piece.end + 1, page))


@dataclass
class Flight:
    """A job that is out: its source marks as they were when it left, and its destination slots by source slot."""

    job: Job
    marks: dict[tuple[ComponentName, int], Mark]
    targets: dict[tuple[ComponentName, int], int]

    def depart(self, ledgers: Ledgers, page: int, must_fit: bool) -> None:
        """Read the source pieces and take destination slots, as many as there are."""
        for piece, end, slot in self._pages(page):
            mark = ledgers(piece.component, self.job.source).marks[slot]
            assert (mark.component, len(mark.path)) == (piece.component, end)
            self.marks[piece.component, slot] = mark
            if self.job.target is not TierName.EXTERNAL:
                self._take_target(
                    ledgers(piece.component, self.job.target), (piece.component, slot), must_fit
                )

    def _take_target(self, ledger: Ledger, source: tuple[ComponentName, int], must_fit: bool) -> None:
        slots = ledger.take(1)
        assert slots or not must_fit, "a demotion was planned without room for it"
        if slots:
            ledger.to_landing(slots)
            self.targets[source] = slots[0]

    def _pages(self, page: int) -> Iterator[tuple[Piece, int, int]]:
        for piece in self.job.pieces:
            for end, slot in zip(piece_ends(piece, page), piece.slots.tolist(), strict=True):
                yield piece, end, slot

    def land(self, ledgers: Ledgers, page: int, keep: KeepPage) -> tuple[Piece, ...]:
        """One landed piece a page, its bytes (the mark) copied now, late, from the source; the rest is given back."""
        landed = []
        for piece, end, slot in self._pages(page):
            mark = ledgers(piece.component, self.job.source).marks.get(slot)
            assert mark == self.marks[piece.component, slot], "the source of a job changed under it"
            target = self.targets.get((piece.component, slot))
            if target is not None and keep(piece, end):
                ledgers(piece.component, self.job.target).write(target, mark)
                start = end if piece.start == piece.end else end - page
                landed.append(Piece(piece.component, start, end, slots_of([target])))
            elif target is not None:
                ledgers(piece.component, self.job.target).give_back([target])
        return tuple(landed)

"""Tiers that do what a test says: jobs end late, in any order, whole, in part or not at all.

Instead of bytes every slot and every object carries a mark, the path that wrote it. A copy reads its source when it
lands, so a slot that was given to somebody else in the meantime is found out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from agentcache.keys import object_name
from agentcache.tiers.api import ExternalStatus, JobResult, Keep, Presence, Transfer
from agentcache.types import ComponentName, Job, Piece, TierName

Mark = tuple[object, bytes]
Marks = dict[tuple[ComponentName, int], Mark]
Lands = Callable[[Piece, int], bool]
"""Whether the page of this piece that ends here (or the state here) arrives."""


def everything(_piece: Piece, _end: int) -> bool:
    return True


def nothing(_piece: Piece, _end: int) -> bool:
    return False


def ends_of(piece: Piece, page: int) -> list[int]:
    """Where each slot of a piece belongs."""
    if piece.start == piece.end:
        return [piece.end] * piece.slots.size
    return list(range(piece.start + page, piece.end + 1, page))


@dataclass
class ScriptedTier:
    """A tier whose jobs wait until `land` is called; with `prompt` they land whole at the next poll."""

    name: TierName
    page: int
    marks: Mapping[TierName, Marks]
    prompt: bool = False
    objects: dict[str, Mark] = field(default_factory=dict)
    answer: Callable[[str], Presence] | None = None
    classes: dict[str, Keep] = field(default_factory=dict)
    waiting: list[Transfer] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    closed: bool = False
    _ended: list[JobResult] = field(default_factory=list)

    # the contract

    def lookup(self, wanted: Sequence[tuple[ComponentName, bytes]]) -> tuple[Presence, ...]:
        names = [object_name(page_hash, component) for component, page_hash in wanted]
        if self.answer:
            return tuple(self.answer(name) for name in names)
        return tuple(Presence.HIT if name in self.objects else Presence.MISS for name in names)

    def submit_load(self, transfer: Transfer) -> None:
        self._submit(transfer)

    def submit_store(self, transfer: Transfer) -> None:
        self._submit(transfer)

    def cancel(self, number: int) -> None:
        self.cancelled.append(number)
        for at, transfer in enumerate(self.waiting):
            if transfer.job.number == number:
                self.land(at, nothing)
                return

    def poll(self) -> tuple[JobResult, ...]:
        if self.prompt:
            self.land_all()
        ended = tuple(self._ended)
        self._ended.clear()
        return ended

    def drain(self) -> None:
        self.land_all()

    def close(self) -> None:
        self.closed = True
        while self.waiting:
            self.land(0, nothing)

    def retain(self, names: Sequence[str], keep: Keep) -> None:
        self.classes.update({name: keep for name in names if name in self.objects})

    def status(self) -> ExternalStatus:
        return ExternalStatus("scripted", "up")

    # the script

    def land_all(self, lands: Lands = everything) -> None:
        while self.waiting:
            self.land(0, lands)

    def land(self, at: int = 0, lands: Lands = everything) -> None:
        """End one waiting job with what arrives of it; answered by the next poll."""
        transfer = self.waiting.pop(at)
        landed: list[Piece] = []
        for piece in transfer.targets:
            landed.extend(self._arrived(transfer, piece, lands))
        self._ended.append(JobResult(transfer.job, tuple(landed)))

    def _submit(self, transfer: Transfer) -> None:
        if self.closed:
            self._ended.append(JobResult(transfer.job, ()))
        else:
            self.waiting.append(transfer)

    def _arrived(self, transfer: Transfer, piece: Piece, lands: Lands) -> Iterator[Piece]:
        """The runs of a target that arrive."""
        run: list[tuple[int, int]] = []
        for end, slot in zip(ends_of(piece, self.page), piece.slots.tolist(), strict=True):
            if lands(piece, end) and self._copy(transfer, piece.component, end, slot):
                run.append((end, slot))
                continue
            if run:
                yield self._piece(piece, run)
            run = []
        if run:
            yield self._piece(piece, run)

    def _piece(self, piece: Piece, run: list[tuple[int, int]]) -> Piece:
        slots = np.array([slot for _, slot in run], dtype=np.int32)
        start = piece.start if piece.start == piece.end else run[0][0] - self.page
        return replace(piece, start=start, end=run[-1][0], slots=slots)

    def _copy(self, transfer: Transfer, component: ComponentName, end: int, slot: int) -> bool:
        job = transfer.job
        if TierName.EXTERNAL not in (job.source, job.target):
            source = _source_slot(job, component, end, self.page)
            self.marks[job.target][component, slot] = self.marks[job.source][component, source]
            return True
        name = object_name(transfer.hashes[end // self.page - 1], component)
        if job.target is TierName.EXTERNAL:
            self.objects.setdefault(name, self.marks[job.source][component, slot])
            self.classes[name] = transfer.keep
            return True
        if name in self.objects:
            self.marks[job.target][component, slot] = self.objects[name]
        return name in self.objects


def _source_slot(job: Job, component: ComponentName, end: int, page: int) -> int:
    for piece in job.pieces:
        if piece.component == component and end in ends_of(piece, page):
            return int(piece.slots[ends_of(piece, page).index(end)])
    raise AssertionError(f"{component} at {end} is no part of job {job.number}")

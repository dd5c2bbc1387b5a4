"""An external tier for accounting engines: it keeps the stamps of slots by name, answers late, and forgets."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from agentcache.clock import ManualClock
from agentcache.engine.accounting import Stamps
from agentcache.engine.engine import Engine
from agentcache.keys import object_name
from agentcache.tiers.api import ExternalStatus, JobResult, Keep, Presence, Transfer
from agentcache.types import ComponentName, Piece, PoolName, TierName
from tests.engines import PAGE
from tests.moving import ends_of

SECOND = 10**9
BELIEVED_NS = 30 * SECOND


@dataclass
class StampStore:
    """Questions and copies take up to `delay_s`; beyond `most` objects some are forgotten, whichever they are."""

    engine: Engine
    clock: ManualClock
    rng: random.Random
    delay_s: float
    most: int = 900
    name: TierName = TierName.EXTERNAL
    objects: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    _asked: dict[str, int] = field(default_factory=dict)
    _out: list[tuple[int, Transfer]] = field(default_factory=list)

    def lookup(self, wanted: Sequence[tuple[ComponentName, bytes]]) -> tuple[Presence, ...]:
        """What is asked together is answered together, and believed for much longer than that takes."""
        names = [object_name(page_hash, component) for component, page_hash in wanted]
        now, answered_ns = self.clock.now_ns(), self._later()
        for name in names:
            if now > self._asked.get(name, -BELIEVED_NS) + BELIEVED_NS:
                self._asked[name] = answered_ns
        return tuple(self._presence(name, now) for name in names)

    def submit_load(self, transfer: Transfer) -> None:
        self._out.append((self._later(), transfer))

    def submit_store(self, transfer: Transfer) -> None:
        self._out.append((self._later(), transfer))

    def cancel(self, number: int) -> None:
        """It ends at once, with all that it would have brought."""
        self._out = [(0 if sent.job.number == number else at, sent) for at, sent in self._out]

    def poll(self) -> tuple[JobResult, ...]:
        now = self.clock.now_ns()
        ended = [transfer for at, transfer in self._out if at <= now]
        self._out = [(at, transfer) for at, transfer in self._out if at > now]
        return tuple(JobResult(transfer.job, self._landed(transfer)) for transfer in ended)

    def drain(self) -> None:
        self._out = [(0, transfer) for _, transfer in self._out]

    def close(self) -> None:
        self.drain()

    def retain(self, names: Sequence[str], keep: Keep) -> None:
        """All classes are alike here."""

    def status(self) -> ExternalStatus:
        return ExternalStatus("stamps", "up")

    def _later(self) -> int:
        return self.clock.now_ns() + int(self.rng.random() * self.delay_s * SECOND)

    def _presence(self, name: str, now: int) -> Presence:
        if now < self._asked[name]:
            return Presence.PENDING
        return Presence.HIT if name in self.objects else Presence.MISS

    def _landed(self, transfer: Transfer) -> tuple[Piece, ...]:
        loads = transfer.job.source is TierName.EXTERNAL
        landed = tuple(piece for piece in transfer.targets if self._copy(transfer, piece, loads))
        while len(self.objects) > self.most:
            del self.objects[self.rng.choice(sorted(self.objects))]
        return landed

    def _copy(self, transfer: Transfer, piece: Piece, loads: bool) -> bool:
        names = [
            object_name(transfer.hashes[end // PAGE - 1], piece.component) for end in ends_of(piece, PAGE)
        ]
        tier = transfer.job.target if loads else transfer.job.source
        values = self._stamps(PoolName(piece.component, tier)).values
        if loads and not all(name in self.objects for name in names):
            return False
        for name, slot in zip(names, piece.slots.tolist(), strict=True):
            if loads:
                values[slot] = self.objects[name]
            else:
                self.objects.setdefault(name, values[slot].copy())
        return True

    def _stamps(self, pool: PoolName) -> Stamps:
        if pool.tier is TierName.HOST:
            return self.engine.cache._controller._host._pools[pool]  # type: ignore[attr-defined,no-any-return]
        return self.engine.runner._pools[pool.component]  # type: ignore[attr-defined,no-any-return]

"""What is kept for requests that wait, so that what they will read does not leave before they begin."""

from dataclasses import dataclass, replace

from agentcache.executor import MovingParts
from agentcache.types import Lease, MatchResult, Piece, TierName


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease of pieces on the device, and a load from the host that is planned and never started."""

    lease: Lease | None = None
    pieces: tuple[Piece, ...] = ()
    job: int = 0


NOTHING = Claim()


class Claims:
    """One claim a ticket; tickets count up as requests arrive. Numbers below 0 are of sessions that are still away."""

    def __init__(self, parts: MovingParts) -> None:
        self._core = parts.core
        self._executor = parts.executor
        self._controller = parts.controller
        self._clock = parts.clock
        self._ledger = parts.ledger
        self._claims: dict[int, Claim] = {}

    def __len__(self) -> int:
        return len(self._claims)

    def keep(self, ticket: int, match: MatchResult, target: TierName) -> None:
        """Keep what a match has found for the ticket, instead of what was kept before.

        On the host all of it; on the device only where that is where prefetches land.
        """
        self._replace(ticket, self._claim(match, target))

    def release(self, ticket: int) -> None:
        """Keep nothing any longer."""
        self._replace(ticket, NOTHING)

    def release_last(self) -> bool:
        """Keep nothing for who is still away, or for the ticket that came last. False: nothing is kept for anybody."""
        if self._claims:
            self.release(max(self._claims, key=lambda number: (number < 0, number)))
            self._executor.settle()
            return True
        return False

    def _claim(self, match: MatchResult, target: TierName) -> Claim:
        now, claim = self._clock.now_ns(), NOTHING
        if target is TierName.DEVICE and match.device.length:
            locked = self._core.lock(match.device, now)
            claim = Claim(locked.lease, locked.pieces)
        if match.any_tier.length > match.device.length:
            planned = self._core.plan_load(match.any_tier, TierName.HOST, TierName.DEVICE, now)
            self._executor.apply(planned.effects)
            assert planned.lease, "a load comes with the lease of what is on the device"
            self._core.unlock(planned.lease, None, now)
            claim = replace(claim, job=planned.job.number) if planned.job else claim
        return claim

    def _replace(self, ticket: int, claim: Claim) -> None:
        """Let go of what was kept before. The new claim stands already, so nothing leaves in between."""
        before = self._claims.pop(ticket, NOTHING)
        if claim is not NOTHING:
            self._claims[ticket] = claim
        self._ledger.keep(ticket, claim.pieces)
        if before.job:
            self._controller.cancel(before.job)
        if before.lease:
            self._core.unlock(before.lease, None, self._clock.now_ns())

"""Which handle of a second core stands for one of the first."""

import dataclasses
from collections import deque

from agentcache.types import (
    Boundary,
    Effects,
    Insert,
    Inserted,
    Job,
    Lease,
    Locked,
    MatchResult,
    Move,
    NodeRef,
    Planned,
    Turn,
)

REMEMBERED = 4096


class SameHandles:
    """The first core's own handles."""

    def boundary(self, boundary: Boundary) -> Boundary:
        return boundary

    def lease(self, lease: Lease) -> Lease:
        return lease

    def job(self, job: Job) -> Job:
        return job

    def offer(self, offer: Insert) -> Insert:
        return dataclasses.replace(offer, after=self.lease(offer.after)) if offer.after else offer

    def turn(self, turn: Turn) -> Turn:
        frontier = self.boundary(turn.frontier) if turn.frontier else None
        alternate = self.boundary(turn.alternate) if turn.alternate else None
        return dataclasses.replace(turn, frontier=frontier, alternate=alternate)


class Handles(SameHandles):
    """The second core's, learned from pairs of answers. What was never issued is passed on as it is.

    One position may have been issued several times, as different handles: the first and the last are asked in turn.
    """

    def __init__(self, epochs: tuple[int, int]) -> None:
        self._shift = epochs[1] - epochs[0]
        self._boundaries: dict[Boundary, list[Boundary]] = {}
        self._nodes: dict[NodeRef, Boundary] = {}
        self._order: deque[Boundary] = deque()
        self._leases: dict[int, Lease] = {}
        self._jobs: dict[int, Job] = {}
        self._asked = 0

    def boundary(self, boundary: Boundary) -> Boundary:
        self._asked += 1
        known = self._boundaries.get(boundary)
        if known:
            return known[-1] if self._asked % 2 else known[0]
        near = self._nodes.get(boundary.node)
        node = near.node if near else boundary.node
        return Boundary(node, boundary.length, boundary.epoch + self._shift)

    def lease(self, lease: Lease) -> Lease:
        return self._leases.get(lease.number, lease)

    def job(self, job: Job) -> Job:
        return self._jobs.get(job.number, job)

    def learn(self, mine: object, theirs: object) -> None:
        """Take in what both cores answered to one call. Their texts are equal."""
        match mine, theirs:
            case MatchResult(), MatchResult():
                self._boundary_is(mine.device, theirs.device)
                self._boundary_is(mine.any_tier, theirs.any_tier)
            case Inserted(), Inserted():
                self._boundary_is(mine.frontier, theirs.frontier)
            case Locked(), Locked():
                self._leases[mine.lease.number] = theirs.lease
            case Planned(), Planned():
                if mine.lease and theirs.lease:
                    self._leases[mine.lease.number] = theirs.lease
                if mine.job and theirs.job:
                    self._jobs[mine.job.number] = theirs.job
        if hasattr(mine, "effects") and hasattr(theirs, "effects"):
            self._moves(mine.effects, theirs.effects)

    def _moves(self, mine: Effects, theirs: Effects) -> None:
        jobs = [[effect.job for effect in side if isinstance(effect, Move)] for side in (mine, theirs)]
        self._jobs.update({first.number: second for first, second in zip(*jobs, strict=True)})

    def _boundary_is(self, mine: Boundary, theirs: Boundary) -> None:
        if mine in self._boundaries:
            self._boundaries[mine][1:] = [theirs]
            return
        self._boundaries[mine] = [theirs]
        self._nodes[mine.node] = theirs
        self._order.append(mine)
        if len(self._order) > REMEMBERED:
            old = self._order.popleft()
            del self._boundaries[old]
            self._nodes.pop(old.node, None)

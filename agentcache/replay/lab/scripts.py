"""When what happens in a replay, drawn from a seed: starts of sessions, gaps that a trace does not tell, hints."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.cached import Tells
from agentcache.replay.lab.cells import Cell, Hints
from agentcache.replay.lab.serving import NANOSECONDS, Machine
from agentcache.replay.lab.world import Script
from agentcache.replay.paged import PagedCall, PagedSession, Workload
from agentcache.waits import SHORTEST_S, Told, WaitKind, kind_of


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Units: seconds; `spread` of the natural logarithm."""

    median_s: float
    spread: float

    def draw(self, random: random.Random) -> float:
        return self.median_s * math.exp(random.gauss(0.0, self.spread))


DRAWN: Mapping[WaitKind, Lognormal] = {
    WaitKind.TOOL: Lognormal(0.5, 1.5),
    WaitKind.HUMAN: Lognormal(20.0, 1.5),
    WaitKind.UNKNOWN: Lognormal(2.0, 1.5),
}
"""Gaps that a trace does not tell: a tool's and a person's, as tau-bench is replayed elsewhere."""

LIVE, LIVE_QUEUED = 40.0, 20.0
"""How many sessions live on the average where nobody says how many."""


def usual_live(workload: Workload, machine: Machine, asked: float | None = None) -> float:
    """`Cell.live` for a workload: as asked; or as recorded (0) where it is a stream of single requests."""
    if asked is not None:
        return asked
    usual = LIVE_QUEUED if machine.queue else LIVE
    return 0.0 if workload.requests else usual


def seeds_for(workload: Workload, cell: Cell, seeds: Sequence[int]) -> Sequence[int]:
    """Those of the seeds that make a difference: the first alone where nothing is drawn in this cell."""
    noisy = cell.policy.order and cell.hints is Hints.NOISY
    drawn = cell.live > 0 or noisy or None in (call.gap_s for call in _with_gaps(workload))
    return seeds if drawn else seeds[:1]


def _with_gaps(workload: Workload) -> Iterator[PagedCall]:
    """The calls that something comes before."""
    for session in workload.sessions:
        yield from session.calls if session.parent >= 0 else session.calls[1:]


def draw_script(workload: Workload, cell: Cell, seed: int) -> Script:
    """Starts, uniform over as long as keeps `cell.live` sessions live on the average, and gaps.

    Equal for every policy: only `live`, the machine's decoding and `closes` of the cell count.
    """
    chance = random.Random(seed)
    gaps_ns = [
        [_gap_ns(call, chance) if call.turn or session.parent >= 0 else 0 for call in session.calls]
        for session in workload.sessions
    ]
    roots = [session for session in workload.sessions if session.parent < 0]
    if not cell.live:
        return Script(workload, _recorded_ns(roots), gaps_ns, cell.closes)
    busy_s = sum(_busy_s(session, gaps_ns[session.index], cell.machine) for session in workload.sessions)
    starts_ns = {root.index: int(chance.uniform(0, busy_s / cell.live) * NANOSECONDS) for root in roots}
    return Script(workload, starts_ns, gaps_ns, cell.closes)


def _recorded_ns(roots: Sequence[PagedSession]) -> dict[int, int]:
    """Starts as the trace tells them, from its first on. Errors: BAD_REQUEST where it does not."""
    known = {root.index: root.start_s for root in roots if root.start_s is not None}
    if len(known) < len(roots):
        said = "this trace does not tell when its sessions began; say how many are live on the average"
        raise CacheError(Kind.BAD_REQUEST, said, sessions=len(roots), told=len(known))
    first = min(known.values())
    return {index: int((start_s - first) * NANOSECONDS) for index, start_s in known.items()}


def draw_tells(script: Script, cell: Cell, seed: int) -> Tells:
    """What is told at the end of each call: whom the session waits for, and how long by the cell's hints.

    A client that says how long its tool takes says that it is one, however the answer ended.
    """
    chance = random.Random(f"hints {seed}")  # other numbers than those that made the gaps
    noise = [[chance.gauss(0.0, cell.sigma) for _ in gaps] for gaps in script.gaps_ns]
    sessions = script.workload.sessions

    def tells(call: PagedCall) -> Told:
        calls = sessions[call.session].calls
        tool = call.turn + 1 < len(calls) and calls[call.turn + 1].kind is WaitKind.TOOL
        if cell.hints is Hints.NONE or not tool:
            return Told(_kind_after(calls, call.turn))
        gap_s = max(SHORTEST_S, script.gaps_ns[call.session][call.turn + 1] / NANOSECONDS)
        off = noise[call.session][call.turn + 1] if cell.hints is Hints.NOISY else 0.0
        return Told(WaitKind.TOOL, gap_s * math.exp(off))

    return tells


def _kind_after(calls: Sequence[PagedCall], turn: int) -> WaitKind:
    """Whom a session waits for, as a worker knows: by how the answer ended.

    Where a trace does not say that it is the wait that follows, and after the last call the one before it.
    """
    if finish := calls[turn].facts.finish:
        return kind_of(finish)
    wait = min(turn + 1, len(calls) - 1)
    return calls[wait].kind if wait else WaitKind.UNKNOWN


def _gap_ns(call: PagedCall, chance: random.Random) -> int:
    seconds = DRAWN[call.kind].draw(chance) if call.gap_s is None else call.gap_s
    return int(max(0.0, seconds) * NANOSECONDS)


def _busy_s(session: PagedSession, gaps_ns: list[int], machine: Machine) -> float:
    """How long a session lives where nothing has to be computed again."""
    return sum(gaps_ns) / NANOSECONDS + sum(call.output_tokens for call in session.calls) / machine.decode

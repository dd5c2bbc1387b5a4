"""When what happens in a replay, drawn from a seed: starts of sessions, gaps that a trace does not tell, hints."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.cached import Tells
from agentcache.replay.lab.cells import Cell, Hints
from agentcache.replay.lab.serving import NANOSECONDS, Machine
from agentcache.replay.lab.world import Script
from agentcache.replay.paged import PagedCall, PagedSession, Workload
from agentcache.waits import SHORTEST_S, Told, WaitKind


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


KINDS: Mapping[str, WaitKind] = {"tool_calls": WaitKind.TOOL, "stop": WaitKind.HUMAN}
"""Whom a session waits for, by how its answer finished."""


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
    """What is told at the end of each call: whom the session waits for, and how long by the cell's hints."""
    chance = random.Random(seed)
    noise = [[chance.gauss(0.0, cell.sigma) for _ in gaps] for gaps in script.gaps_ns]
    sessions = script.workload.sessions

    def tells(call: PagedCall) -> Told:
        calls = sessions[call.session].calls
        if call.turn + 1 == len(calls):
            return Told(_kind_at_the_end(calls))
        kind = calls[call.turn + 1].kind
        if cell.hints is Hints.NONE or kind is WaitKind.HUMAN:
            return Told(kind)
        gap_s = max(SHORTEST_S, script.gaps_ns[call.session][call.turn + 1] / NANOSECONDS)
        off = noise[call.session][call.turn + 1] if cell.hints is Hints.NOISY else 0.0
        return Told(kind, gap_s * math.exp(off))

    return tells


def _kind_at_the_end(calls: Sequence[PagedCall]) -> WaitKind:
    """Whom a session seems to wait for after its last call: as after the others that finished like it."""
    last = calls[-1].facts.finish
    alike = [after.kind for before, after in pairwise(calls) if before.facts.finish == last]
    return alike[-1] if alike else KINDS.get(last, WaitKind.UNKNOWN)


def _gap_ns(call: PagedCall, chance: random.Random) -> int:
    seconds = DRAWN[call.kind].draw(chance) if call.gap_s is None else call.gap_s
    return int(max(0.0, seconds) * NANOSECONDS)


def _busy_s(session: PagedSession, gaps_ns: list[int], machine: Machine) -> float:
    """How long a session lives where nothing has to be computed again."""
    return sum(gaps_ns) / NANOSECONDS + sum(call.output_tokens for call in session.calls) / machine.decode

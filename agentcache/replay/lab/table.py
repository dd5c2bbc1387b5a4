"""A table of replays: arms (orders, with and without what clients say) in conditions (room, queue), over seeds.

Every condition has LRU as its floor and the clairvoyant order as its ceiling, asked for or not; of hybrid models there
is no such order, and no share of a gap.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from agentcache.replay.lab.cells import Cell, Hints, Policy, Score
from agentcache.replay.lab.gaps import Closed, gap_closed
from agentcache.replay.lab.processes import OnReplay, Submit, cores, elsewhere, here
from agentcache.replay.lab.scripts import seeds_for
from agentcache.replay.lab.serving import Why
from agentcache.replay.paged import Workload


@dataclass(frozen=True, slots=True)
class Arm:
    """One line of a table: an order, and what clients tell it."""

    policy: Policy
    closes: bool = True
    hints: Hints = Hints.NONE
    supersedes: bool = False

    @property
    def heard(self) -> "Arm":
        """The same without what its order does not listen to, so that equal replays are one line."""
        if self.policy is Policy.ERT:
            return self
        if self.policy is Policy.SESSION:
            return replace(self, hints=Hints.NONE)
        return Arm(self.policy)

    @property
    def name(self) -> str:
        marks = {Hints.NONE: "", Hints.EXACT: "+hint", Hints.NOISY: "+hint~"}
        said = "" if self.closes else "-noclose"
        return f"{self.policy.value}{marks[self.hints]}{said}{'+superseded' if self.supersedes else ''}"

    def cell(self, condition: Cell) -> Cell:
        return replace(
            condition,
            policy=self.policy,
            closes=self.closes,
            hints=self.hints,
            supersedes=self.supersedes,
        )


LRU, BOUND, ENDLESS = Arm(Policy.LRU), Arm(Policy.CLAIRVOYANT), Arm(Policy.UNBOUNDED)
ARMS = (
    LRU,
    Arm(Policy.SESSION),
    Arm(Policy.SESSION, closes=False),
    Arm(Policy.ERT),
    Arm(Policy.ERT, closes=False),
    Arm(Policy.ERT, hints=Hints.NOISY),
    Arm(Policy.ERT, hints=Hints.EXACT),
    BOUND,
    ENDLESS,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One arm in one condition of one trace, over its seeds."""

    trace: str
    arm: Arm
    cell: Cell
    scores: tuple[Score, ...]
    closed: Closed

    @property
    def hit_rate(self) -> float:
        return fmean(score.hit_rate for score in self.scores)

    @property
    def device_rate(self) -> float:
        return fmean(score.device_rate for score in self.scores)

    @property
    def ttft_ms(self) -> float:
        return 1000 * fmean(score.ttft_s for score in self.scores)

    @property
    def ttft_p95_ms(self) -> float:
        return 1000 * fmean(score.ttft_p95_s for score in self.scores)

    def as_json(self) -> dict[str, Any]:
        """Rates are shares, times milliseconds, rooms mean session peaks; all but `by_seed` are means over seeds."""
        cell, closed = self.cell, self.closed
        return {
            "trace": self.trace,
            "capacity": cell.device,
            "host_capacity": cell.host,
            "external_capacity": cell.external,
            "tiers": 1 + (cell.host > 0) + (cell.external > 0),
            **cell.parts.as_json(),
            "live": cell.live,
            "scheduler": cell.machine.turns.value,
            "queue": cell.machine.queue,
            "close": cell.closes,
            "hints": cell.hints.value,
            "superseded": cell.supersedes,
            "policy": cell.policy.value,
            "arm": self.arm.name,
            "seeds": len(self.scores),
            "hit_rate": self.hit_rate,
            "device_hit_rate": self.device_rate,
            "external_hit_rate": fmean(score.external_rate for score in self.scores),
            "gained": closed.gained,
            "gained_stderr": closed.gained_error,
            "gap_closed": closed.share,
            "stderr": closed.share_error,
            "ttft_ms": self.ttft_ms,
            "ttft_p95_ms": self.ttft_p95_ms,
            "full_hits": fmean(score.why.get(Why.NOTHING, 0) for score in self.scores),
            "misses": _misses(self.scores),
            "by_seed": [asdict(score) for score in self.scores],
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """What a table is made of. `conditions` are cells whose policy does not count, by the name of a trace."""

    conditions: Mapping[str, Sequence[Cell]]
    arms: Sequence[Arm] = ARMS
    seeds: Sequence[int] = (1, 2, 3)

    @property
    def all_arms(self) -> list[Arm]:
        """The arms with the floor and the ceiling, as far as an order listens to what is said; none twice.

        The order that knows the future knows full attention only: for hybrid models `unbounded` is in its place.
        """
        hybrid = any(cell.parts.hybrid for cells in self.conditions.values() for cell in cells)
        arms = dict.fromkeys(arm.heard for arm in (LRU, *self.arms, ENDLESS if hybrid else BOUND))
        return [arm for arm in arms if not (hybrid and arm == BOUND)]

    def cells(self) -> list[tuple[str, Arm, Cell]]:
        return [
            (trace, arm, arm.cell(condition))
            for trace, conditions in self.conditions.items()
            for condition in conditions
            for arm in self.all_arms
        ]

    def replays(self, workloads: Mapping[str, Workload]) -> int:
        """How many there are: one for all seeds of a cell in which nothing is drawn."""
        return sum(len(seeds_for(workloads[trace], cell, self.seeds)) for trace, _, cell in self.cells())


def run_table(
    plan: Plan, workloads: Mapping[str, Workload], on_replay: OnReplay, processes: int = 0
) -> Iterator[Row]:
    """The rows, condition by condition, as they are done. `processes` 0: one a core; 1: in this one.

    Equal plans give equal rows, whatever the processes. Those of others end with an exception here, or with this one.

    Errors  those of a replay; no other is begun then
    """
    count = min(processes or cores(), plan.replays(workloads))
    if count <= 1:
        yield from _gathered(plan, workloads, here(workloads, on_replay))
        return
    with elsewhere(workloads, on_replay, count) as submit:
        yield from _gathered(plan, workloads, submit)


def _gathered(plan: Plan, workloads: Mapping[str, Workload], submit: Submit) -> Iterator[Row]:
    scores = [
        (
            trace,
            arm,
            cell,
            [submit(trace, cell, seed) for seed in seeds_for(workloads[trace], cell, plan.seeds)],
        )
        for trace, arm, cell in plan.cells()
    ]
    for at in range(0, len(scores), len(plan.all_arms)):
        condition = scores[at : at + len(plan.all_arms)]
        done = {arm: tuple(later() for later in pending) for _, arm, _, pending in condition}
        rates = {arm: [score.hit_rate for score in found] for arm, found in done.items()}
        for trace, arm, cell, _ in condition:
            closed = gap_closed(rates[arm], rates[LRU], rates.get(BOUND, rates[LRU]))
            if arm.policy is Policy.UNBOUNDED:
                closed = replace(closed, share=None, share_error=None)  # it has no room to use better
            yield Row(trace, arm, cell, done[arm], closed)


def _misses(scores: Sequence[Score]) -> dict[str, float]:
    """The mean number of calls by what ended their hit, but for those of which all was there."""
    reasons = sorted({why for score in scores for why in score.why if why != Why.NOTHING})
    return {why: fmean(score.why.get(why, 0) for score in scores) for why in reasons}

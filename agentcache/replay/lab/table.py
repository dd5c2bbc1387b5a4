"""A table of replays: arms (orders, with and without what clients say) in conditions (room, queue), over seeds.

Every condition has LRU as its floor and the clairvoyant order as its ceiling; both are run for every table.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product
from multiprocessing import get_context
from statistics import fmean
from typing import Any

from agentcache.replay.lab.cells import Cell, Hints, Policy, Score
from agentcache.replay.lab.gaps import Closed, gap_closed
from agentcache.replay.lab.replaying import replay_cell
from agentcache.replay.paged import Workload

FLOOR, CEILING = "lru", "clairvoyant"


@dataclass(frozen=True, slots=True)
class Arm:
    """One line of a table: an order, and what clients tell it."""

    policy: Policy
    closes: bool = True
    hints: Hints = Hints.NONE
    supersedes: bool = False

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


LRU, BOUND = Arm(Policy.LRU), Arm(Policy.CLAIRVOYANT)
ARMS = (
    LRU,
    Arm(Policy.SESSION),
    Arm(Policy.SESSION, closes=False),
    Arm(Policy.ERT),
    Arm(Policy.ERT, closes=False),
    Arm(Policy.ERT, hints=Hints.NOISY),
    Arm(Policy.ERT, hints=Hints.EXACT),
    BOUND,
    Arm(Policy.UNBOUNDED),
)

KNOWN_ARMS = {
    arm.name: arm
    for policy in Policy
    for closes, hints, supersedes in product((True, False), Hints, (False, True))
    for arm in (Arm(policy, closes, hints, supersedes),)
}
"""Every arm by its name."""


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
        """Rates are shares, times milliseconds, capacities mean session peaks."""
        cell, closed = self.cell, self.closed
        return {
            "trace": self.trace,
            "capacity": cell.device,
            "host_capacity": cell.host,
            "tiers": 1 + (cell.host > 0),
            "scheduler": cell.machine.turns.value,
            "queue": cell.machine.queue,
            "close": cell.closes,
            "hints": cell.hints.value,
            "policy": cell.policy.value,
            "superseded": cell.supersedes,
            "arm": self.arm.name,
            "seeds": len(self.scores),
            "hit_rate": self.hit_rate,
            "device_hit_rate": self.device_rate,
            "gained": closed.gained,
            "gained_stderr": closed.gained_error,
            "gap_closed": closed.share,
            "stderr": closed.share_error,
            "ttft_ms": self.ttft_ms,
            "ttft_p95_ms": self.ttft_p95_ms,
            "misses": _summed(self.scores),
            "by_seed": [asdict(score) for score in self.scores],
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """What a table is made of. `conditions` are cells whose policy does not count; equal for all traces named."""

    conditions: Mapping[str, Sequence[Cell]]
    arms: Sequence[Arm] = ARMS
    seeds: Sequence[int] = (1, 2, 3)

    @property
    def all_arms(self) -> list[Arm]:
        """The arms with the floor and the ceiling."""
        return list(dict.fromkeys((LRU, *self.arms, BOUND)))

    def cells(self) -> list[tuple[str, Arm, Cell]]:
        return [
            (trace, arm, arm.cell(condition))
            for trace, conditions in self.conditions.items()
            for condition in conditions
            for arm in self.all_arms
        ]

    @property
    def replays(self) -> int:
        return len(self.cells()) * len(self.seeds)


OnReplay = Callable[[], None]


def run_table(
    plan: Plan, workloads: Mapping[str, Workload], on_replay: OnReplay, processes: int = 0
) -> Iterator[Row]:
    """The rows, condition by condition, as they are done. `processes` 0: one a core; 1: in this one.

    Equal plans give equal rows, whatever the processes.
    """
    count = processes or os.cpu_count() or 1
    if count == 1:
        yield from _gathered(
            plan, lambda trace, cell, seed: _now(replay_cell(workloads[trace], cell, seed), on_replay)
        )
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(count, context, initializer=_hold, initargs=(dict(workloads),)) as pool:

        def submit(trace: str, cell: Cell, seed: int) -> "Future[Score]":
            future = pool.submit(_replay, trace, cell, seed)
            future.add_done_callback(lambda _: on_replay())
            return future

        try:
            yield from _gathered(plan, submit)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # what has not begun will not
            raise


def _gathered(plan: Plan, submit: Callable[[str, Cell, int], "Future[Score]"]) -> Iterator[Row]:
    scores = [
        (trace, arm, cell, [submit(trace, cell, seed) for seed in plan.seeds])
        for trace, arm, cell in plan.cells()
    ]
    for at in range(0, len(scores), len(plan.all_arms)):
        condition = scores[at : at + len(plan.all_arms)]
        done = {arm.name: tuple(score.result() for score in pending) for _, arm, _, pending in condition}
        rates = {name: [score.hit_rate for score in found] for name, found in done.items()}
        for trace, arm, cell, _ in condition:
            closed = gap_closed(rates[arm.name], rates[FLOOR], rates[CEILING])
            yield Row(trace, arm, cell, done[arm.name], closed)


def _now(score: Score, on_replay: OnReplay) -> "Future[Score]":
    done: Future[Score] = Future()
    done.set_result(score)
    on_replay()
    return done


_held: dict[str, Workload] = {}
"""What a process of the pool replays."""


def _hold(workloads: dict[str, Workload]) -> None:
    _held.update(workloads)


def _replay(trace: str, cell: Cell, seed: int) -> Score:
    return replay_cell(_held[trace], cell, seed)


def _summed(scores: Sequence[Score]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in scores:
        for why, calls in one.why.items():
            total[why] = total.get(why, 0) + calls
    return total

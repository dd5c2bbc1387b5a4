"""`bench swebench` at accounting level: the real cache over slots without bytes, in the replay lab's own time.

The room is so many pages for every batch, so a larger batch presses harder.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.bench.swebench_report import against_lru
from agentcache.replay.lab.cells import Cell, Policy
from agentcache.replay.lab.table import LRU, Arm, Plan, Row, run_table
from agentcache.replay.paged import Workload

ORDERS = (LRU, Arm(Policy.SESSION), Arm(Policy.ERT))


@dataclass(frozen=True, slots=True)
class LabSize:
    """Units: sessions live at once, sessions replayed at most, pages of 64 tokens."""

    batches: Sequence[int] = (16, 32, 64)
    sessions: int = 150
    seeds: int = 2
    device_pages: int = 3072
    host_pages: int = 6144


LAB, FULL_LAB = LabSize(), LabSize((8, 16, 32, 64, 128), 300, 5)


def lab_plan(name: str, workload: Workload, size: LabSize) -> Plan:
    """The three orders, with the clairvoyant one as their ceiling, in one room under every batch."""
    peak = workload.mean_peak_pages
    cells = [
        Cell(Policy.LRU, size.device_pages / peak, size.host_pages / peak, live=batch)
        for batch in size.batches
    ]
    return Plan({name: cells}, ORDERS, range(1, size.seeds + 1))


def replay_batches(
    plan: Plan, workload: Workload, on_replay: Callable[[], None], processes: int = 0
) -> list[dict[str, Any]]:
    """One row for each batch and order. Cost: seconds a replay; `processes` as `run_table` takes it."""
    (name,) = plan.conditions
    return against_lru(_shown(run_table(plan, {name: workload}, on_replay, processes)))


def _shown(rows: Iterable[Row]) -> list[dict[str, Any]]:
    return [
        {
            **row.as_json(),
            "batch": round(row.cell.live),
            "order": row.arm.name,
            "host_hit_rate": row.hit_rate - row.device_rate,
        }
        for row in rows
    ]

"""What `agentcache replay PATH` does without a worker: the trace against the real cache, in the lab's own time."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from agentcache.clock import SystemClock
from agentcache.engine.scheduler import PrefillOrder
from agentcache.engine.tokenizer import load_tokenizer
from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.cells import Cell, Hints, Policy
from agentcache.replay.lab.missed import SessionMisses, missed_table, worst
from agentcache.replay.lab.replaying import replay_calls
from agentcache.replay.lab.selecting import Selection
from agentcache.replay.lab.serving import NANOSECONDS, Machine
from agentcache.replay.lab.shown import show
from agentcache.replay.lab.table import Arm, Plan, Row, run_table
from agentcache.replay.paged import Workload
from agentcache.replay.progress import steps
from agentcache.replay.readers import open_trace

LIVE = 40.0


@dataclass(frozen=True, slots=True)
class LabOptions:
    """What is replayed how. `live` sessions live on the average; None: 40 (20 with a queue), or as recorded where the
    trace is a stream of single requests; 0: as recorded.
    """

    policies: Sequence[str] = ("lru", "session", "ert")
    capacities: Sequence[float] = (4.0, 12.0)
    host: float = 0.0
    live: float | None = None
    queue: bool = False
    scheduler: str = PrefillOrder.FCFS.value
    close: bool = True
    hints: str = Hints.NONE.value
    seeds: int = 3
    sessions: int | None = None
    longest_tokens: int = 400_000
    longest_h: float = 6.0
    processes: int = 0
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class LabReport:
    """What a replay found. `tokens_per_s`: prompt tokens that one core replayed a second, in one more run of a cell."""

    workload: Workload
    rows: Sequence[Row]
    missed: Sequence[SessionMisses]
    tokens_per_s: float

    def as_json(self) -> dict[str, Any]:
        trace = {
            "sessions": len(self.workload.sessions),
            "calls": self.workload.calls,
            "prompt_tokens": self.workload.prompt_tokens,
            "peak_tokens": peak_tokens(self.workload),
        }
        return {
            "trace": trace,
            "rows": [row.as_json() for row in self.rows],
            "missed": [one.as_json() for one in self.missed],
            "replayed_tokens_per_s": self.tokens_per_s,
        }

    def show(self, console: Console) -> None:
        show(self.rows, console)
        console.print(missed_table(self.missed))
        console.print(
            f"replayed at {self.tokens_per_s / 1e6:,.0f} M prompt tokens a second and core", highlight=False
        )


def replay_in_lab(path: Path, options: LabOptions) -> int:
    """Replay the trace at `path` and print the table. Errors: BAD_TRACE."""
    console, clock = Console(stderr=True), SystemClock()
    workload = load_workload(path, options)
    tell(path.name, workload, console)
    plan = _plan(path.name, workload, options)
    with steps("replays", plan.replays, console, clock, "replays") as shown:
        rows = list(run_table(plan, {path.name: workload}, shown.advance, options.processes))
    began_ns = clock.now_ns()
    replayed = replay_calls(workload, _last_order(rows), seed=1)
    seconds = (clock.now_ns() - began_ns) / NANOSECONDS
    report = LabReport(workload, rows, worst(workload, replayed), workload.prompt_tokens / seconds)
    if options.as_json:
        print(json.dumps(report.as_json()))
    else:
        report.show(Console())
    return 0


def load_workload(path: Path, options: LabOptions) -> Workload:
    """The sessions of a trace that the options choose. Errors: BAD_TRACE, also where none is left."""
    selection = Selection(options.longest_tokens, options.longest_h, options.sessions)
    workload = selection.page(open_trace(path).sessions(), load_tokenizer().encode)
    if not workload.sessions:
        raise CacheError(
            Kind.BAD_TRACE,
            f"no session of {path} is left; raise --longest-tokens or --longest-h",
        )
    return workload


def tell(name: str, workload: Workload, console: Console) -> None:
    """Say what will be replayed."""
    console.print(
        f"{name}: {len(workload.sessions):,} sessions, {workload.calls:,} calls, "
        f"{workload.prompt_tokens / 1e6:,.1f} M prompt tokens, mean peak {peak_tokens(workload):,} tokens",
        highlight=False,
        soft_wrap=True,
    )


def _plan(name: str, workload: Workload, options: LabOptions) -> Plan:
    machine = Machine(queue=options.queue, turns=PrefillOrder(options.scheduler))
    usual = 0.0 if workload.requests else LIVE / 2 if options.queue else LIVE
    live = usual if options.live is None else options.live
    conditions = [
        Cell(Policy.LRU, room, options.host, live=live, machine=machine) for room in options.capacities
    ]
    arms = [Arm(Policy(name), options.close, Hints(options.hints)) for name in options.policies]
    return Plan({name: conditions}, arms, range(1, options.seeds + 1))


def _last_order(rows: Sequence[Row]) -> Cell:
    """The last order asked for, in its smallest room."""
    cells = [row.cell for row in rows if row.cell.policy.order]
    return min((cell for cell in cells if cell.policy is cells[-1].policy), key=lambda cell: cell.device)


def peak_tokens(workload: Workload) -> int:
    return round(workload.mean_peak_pages * workload.page_tokens)

"""What `agentcache replay PATH` does without a worker: the trace against the real cache, in the lab's own time."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from agentcache.clock import SystemClock
from agentcache.engine.scheduler import PrefillOrder
from agentcache.engine.tokenizer import load_tokenizer
from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.cells import Cell, Hints, Policy
from agentcache.replay.lab.missed import SessionMisses, missed_table, worst
from agentcache.replay.lab.replaying import replay_calls
from agentcache.replay.lab.selecting import Selection
from agentcache.replay.lab.serving import Machine
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


def replay_in_lab(path: Path, options: LabOptions) -> int:
    """Replay the trace at `path` and print the table. Errors: BAD_TRACE."""
    console = Console(stderr=True)
    workload = load_workload(path, options)
    told(path.name, workload, console)
    plan = _plan(path.name, workload, options)
    with steps("replays", plan.replays, console, SystemClock(), "replays") as shown:
        rows = list(run_table(plan, {path.name: workload}, shown.advance, options.processes))
    missed = _worst(workload, rows)
    if options.as_json:
        described = {"sessions": len(workload.sessions), "calls": workload.calls}
        described |= {"prompt_tokens": workload.prompt_tokens, "peak_tokens": _peak_tokens(workload)}
        print(
            json.dumps(
                {
                    "trace": described,
                    "rows": [row.as_json() for row in rows],
                    "missed": [one.as_json() for one in missed],
                }
            )
        )
    else:
        show(rows, Console())
        Console().print(missed_table(missed))
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


def told(name: str, workload: Workload, console: Console) -> None:
    """Say what will be replayed."""
    console.print(
        f"{name}: {len(workload.sessions):,} sessions, {workload.calls:,} calls, "
        f"{workload.prompt_tokens / 1e6:,.1f} M prompt tokens, mean peak {_peak_tokens(workload):,} tokens",
        highlight=False,
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


def _worst(workload: Workload, rows: Sequence[Row]) -> list[SessionMisses]:
    """Under the last order asked for, in its smallest room, with the first seed."""
    cells = [row.cell for row in rows if row.cell.policy.order]
    last = [cell for cell in cells if cell.policy is cells[-1].policy]
    return worst(workload, replay_calls(workload, min(last, key=lambda cell: cell.device), seed=1))


def _peak_tokens(workload: Workload) -> int:
    return round(workload.mean_peak_pages * workload.page_tokens)

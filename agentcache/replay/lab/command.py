"""What `agentcache replay PATH` does without a worker: the trace against the real cache, in the lab's own time."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from agentcache.clock import SystemClock
from agentcache.engine.tokenizer import load_tokenizer
from agentcache.errors import CacheError, Kind
from agentcache.replay.ending import terminated_as_interrupted
from agentcache.replay.lab.missed import SessionMisses, missed, missed_table
from agentcache.replay.lab.options import LabOptions, arms, conditions
from agentcache.replay.lab.replaying import replay_calls
from agentcache.replay.lab.serving import NANOSECONDS
from agentcache.replay.lab.shown import on_stdout, room, show
from agentcache.replay.lab.table import Plan, Row, run_table
from agentcache.replay.paged import Workload
from agentcache.replay.progress import counted, in_millions, said_while, steps
from agentcache.replay.readers import open_trace
from agentcache.replay.trace import Session

WORST = 10
"""Of so many sessions the table tells what they missed; JSON has all."""

ROOM = ("arm", "capacity", "host_capacity", "external_capacity")
SEED = 1
"""Of the replay whose misses are told session by session."""


@dataclass(frozen=True, slots=True)
class LabReport:
    """What a replay found. `missed`: each session of the replay of `told` with seed 1, those that lost most first.

    `tokens_per_s`: prompt tokens that one core replayed a second, in that replay.
    """

    name: str
    options: LabOptions
    workload: Workload
    rows: Sequence[Row]
    told: Row
    missed: Sequence[SessionMisses]
    tokens_per_s: float

    def as_json(self) -> dict[str, Any]:
        told = self.told.as_json()
        return {
            "options": self.options.told(),
            "trace": trace_as_json(self.name, self.workload),
            "rows": [row.as_json() for row in self.rows],
            "missed_in": {key: told[key] for key in ROOM} | {"seed": SEED},
            "missed": [one.as_json() for one in self.missed],
            "replayed_tokens_per_s": self.tokens_per_s,
        }

    def show(self, console: Console) -> None:
        told = self.told.as_json()
        show([row.as_json() for row in self.rows], console)
        where = f"{told['arm']} in a room of {room(told)}, seed {SEED}"
        console.print(missed_table(self.missed[:WORST], where))
        rate = f"replayed at {self.tokens_per_s / 1e6:,.1f} M prompt tokens a second and core"
        console.print(rate, highlight=False)


def replay_in_lab(path: Path, options: LabOptions) -> int:
    """Replay the trace at `path` and print the table. Errors: BAD_TRACE; BAD_REQUEST for a room that is none."""
    console, clock, name = Console(stderr=True), SystemClock(), path.resolve().name
    with terminated_as_interrupted():
        workload = load_workload(name, open_trace(path).sessions(), options, console)
        plan = Plan({name: conditions(workload, options)}, arms(options), range(1, options.seeds + 1))
        with steps("replays", plan.replays({name: workload}), console, clock, "replays") as shown:
            rows = list(run_table(plan, {name: workload}, shown.advance, options.processes))
        told = _told(rows)
        began_ns = clock.now_ns()
        replayed = replay_calls(workload, told.cell, SEED)
        seconds = (clock.now_ns() - began_ns) / NANOSECONDS
        speed = workload.prompt_tokens / seconds
        report = LabReport(name, options, workload, rows, told, missed(workload, replayed), speed)
    if options.as_json:
        print(json.dumps(report.as_json()))
    else:
        report.show(on_stdout())
    return 0


def load_workload(name: str, sessions: Iterable[Session], options: LabOptions, console: Console) -> Workload:
    """The sessions of a trace that the options choose; says what is read and what is left out.

    Errors  BAD_TRACE, also where nothing is left
    """
    encode, told = load_tokenizer().encode, said_while(f"{name}: reading", sessions, console, SystemClock())
    selection = options.selection
    workload = selection.page(told, encode, name)
    if not workload.mean_peak_pages:
        least = f"no session of {name} has a prompt of {workload.page_tokens} tokens"
        raise CacheError(Kind.BAD_TRACE, f"{least}, which a cache needs at least: there is nothing to replay")
    tell(name, workload, console)
    if left_out := selection.left_out(workload):
        _say(f"{name}: {left_out}", console)
    return workload


def tell(name: str, workload: Workload, console: Console) -> None:
    """Say what will be replayed."""
    sizes = (
        f"{in_millions(workload.prompt_tokens)} prompt tokens, mean peak {_peak_tokens(workload):,} tokens"
    )
    sessions = counted(len(workload.sessions), "session")
    _say(f"{name}: {sessions}, {counted(workload.calls, 'call')}, {sizes}", console)


def trace_as_json(name: str, workload: Workload) -> dict[str, Any]:
    """What is replayed of a trace, and what is not."""
    return {
        "name": name,
        "sessions": len(workload.sessions),
        "calls": workload.calls,
        "prompt_tokens": workload.prompt_tokens,
        "peak_tokens": _peak_tokens(workload),
        "left_out": {why.value: asdict(left) for why, left in workload.left_out.items()},
    }


def _say(text: str, console: Console) -> None:
    console.print(Text(text), soft_wrap=True)


def _told(rows: Sequence[Row]) -> Row:
    """The row of the last order asked for, in its smallest room."""
    orders = [row for row in rows if row.cell.policy.order]
    return min((row for row in orders if row.arm == orders[-1].arm), key=lambda row: row.cell.device)


def _peak_tokens(workload: Workload) -> int:
    return round(workload.mean_peak_pages * workload.page_tokens)

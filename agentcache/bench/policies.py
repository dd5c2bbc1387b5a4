"""Eviction orders against LRU and against a bound, on traces: `agentcache bench policies [--json]`.

Without options two synthetic traces are replayed (`agentcache trace synth` writes the same), each in two rooms, with
three seeds: lru, session, ert, the last two also where nobody closes (-noclose), ert where clients say how long their
tools take (+hint; +hint~ is off by a factor of two), an order that knows the future (clairvoyant; where calls take time
a good order, no proof), and one that keeps everything (unbounded). A few minutes on two cores.

A trace of your own is --trace NAME=PATH. --full adds rooms, a host tier and queues, and has five seeds; a table of the
mean shares by trace comes last.

The real cache decides, over slots without bytes: hit rates are those that a worker would have. Times are modelled:
prefill 10,000, host 200,000 and decoding 50 tokens a second. docs/replay.md names every key of the JSON.
"""

import json
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from agentcache.bench.options import need_folder, need_matplotlib
from agentcache.bench.starting import start
from agentcache.clock import SystemClock
from agentcache.command_line import HELP
from agentcache.engine.scheduler import PrefillOrder
from agentcache.errors import CacheError, Kind
from agentcache.replay.ending import terminated_as_interrupted
from agentcache.replay.flags import COUNT, lab_flags
from agentcache.replay.lab.cells import Cell
from agentcache.replay.lab.command import load_workload, trace_as_json
from agentcache.replay.lab.options import LabOptions, arms, conditions
from agentcache.replay.lab.shown import on_stdout, show, summary
from agentcache.replay.lab.table import ARMS, Arm, Plan, run_table
from agentcache.replay.paged import Workload
from agentcache.replay.progress import steps
from agentcache.replay.readers import open_trace
from agentcache.replay.synth import synthesize
from agentcache.replay.trace import Session

SYNTHETIC = {"claude-code": 80, "swe-agent": 150}
"""The traces that are replayed without options, and how many sessions of each."""

SYNTHETIC_SEED = 1
FULL_ROOMS = (4.0, 6.0, 8.0, 12.0, 16.0)
HOSTS = ((3.0, 6.0), (6.0, 12.0))
QUEUED_ROOMS = (8.0, 12.0)
SEEDS, FULL_SEEDS = 3, 5
TOLD = ("policies", "close", "hints", "superseded")
"""Options that make lines of their own."""

REPORT = "agentcache.bench.policies_report:write"
"""By name, because it needs the extra `plots`."""


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A trace that is replayed, and how a table calls it."""

    name: str
    path: Path


class NamedTrace(click.ParamType[TraceFile]):
    """NAME=PATH, or a PATH whose file gives the name."""

    name = "trace"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TraceFile:
        """The trace. Errors: click's BadParameter."""
        name, equals, path = str(value).partition("=")
        if not equals or "/" in name:
            name, path = Path(value).resolve().name.partition(".")[0], str(value)
        if not name or not path:
            self.fail(f"{value!r} is not NAME=PATH.", param, ctx)
        return TraceFile(name, Path(path))


@dataclass(frozen=True, slots=True)
class Bench:
    """What is asked for. `lines` None: those of `arms`."""

    lab: LabOptions
    traces: Sequence[TraceFile] = ()
    full: bool = False
    lines: Sequence[Arm] | None = ARMS
    out: Path | None = None

    def sessions(self) -> dict[str, Iterable[Session]]:
        """The traces, by name. Errors: BAD_TRACE."""
        if self.traces:
            return {trace.name: open_trace(trace.path).sessions() for trace in self.traces}
        return {name: synthesize(name, self._made(name), SYNTHETIC_SEED) for name in SYNTHETIC}

    def plan(self, workloads: Mapping[str, Workload]) -> Plan:
        """What is replayed. Errors: BAD_REQUEST for a room that is none."""
        cells = {name: self._conditions(workload) for name, workload in workloads.items()}
        lines = arms(self.lab) if self.lines is None else self.lines
        return Plan(cells, lines, range(1, self.lab.seeds + 1))

    def told(self) -> dict[str, Any]:
        """The options, for a result in JSON; `synthetic`: how often `trace synth` made a session, with which seed."""
        synthetic = {name: self._made(name) for name in SYNTHETIC} | {"seed": SYNTHETIC_SEED}
        return {**self.lab.told(), "full": self.full, "synthetic": None if self.traces else synthetic}

    def _made(self, kind: str) -> int:
        return self.lab.selection.sessions or SYNTHETIC[kind]

    def _conditions(self, workload: Workload) -> list[Cell]:
        lab = self.lab
        if not self.full:
            return conditions(workload, lab)
        capacities = lab.rooms.capacities or (() if workload.requests else FULL_ROOMS)
        asked = [replace(lab, rooms=replace(lab.rooms, capacities=capacities))]
        asked += [
            replace(lab, rooms=replace(lab.rooms, capacities=(device,), host=host)) for device, host in HOSTS
        ]
        queued = replace(lab, rooms=replace(lab.rooms, capacities=QUEUED_ROOMS), queue=True)
        asked += [replace(queued, scheduler=turns.value) for turns in PrefillOrder]
        return list(dict.fromkeys(cell for one in asked for cell in conditions(workload, one)))


@click.command(help=__doc__, context_settings=HELP)
@click.option(
    "--trace",
    "traces",
    type=NamedTrace(),
    metavar="NAME=PATH",
    multiple=True,
    help="a trace in place of the synthetic ones; may be repeated",
)
@click.option("--full", is_flag=True, help=f"more rooms, a host tier, queues, {FULL_SEEDS} seeds")
@click.option("--sessions", type=COUNT, help="the first N sessions of each trace  [default: all]")
@lab_flags(
    policy="nine lines",
    capacity="4 and 12; with --full 4, 6, 8, 12 and 16; of a stream of single requests a hundredth and a tenth of them",
    seeds=f"{SEEDS}; with --full {FULL_SEEDS}",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="write policies.json, plots and a page there",
)
@click.option("--json", "as_json", is_flag=True, help="one JSON object on stdout")
def policies(traces: Sequence[TraceFile], full: bool, out: Path | None, as_json: bool, **flags: Any) -> int:
    """Replay, and print. 0: every replay was made."""
    said = {name: value for name, value in flags.items() if value not in (None, ())}
    lab = LabOptions.of(**{"seeds": FULL_SEEDS if full else SEEDS, **said}, as_json=as_json)
    lines = None if any(name in said for name in TOLD) else ARMS
    names = [trace.name for trace in traces]
    if twice := {name for name in names if names.count(name) > 1}:
        called = ", ".join(sorted(twice))
        raise CacheError(
            Kind.BAD_REQUEST, f"two traces are called {called}; give each --trace a NAME= of its own"
        )
    with terminated_as_interrupted():
        return _run(Bench(lab, traces, full, lines, out))


def main(arguments: Sequence[str]) -> int:
    """The command. 0: every replay was made; 2: words that it does not know, which it names on stderr."""
    try:
        code: int = policies.main(
            list(arguments), prog_name="agentcache bench policies", standalone_mode=False
        )
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    return code


def _run(bench: Bench) -> int:
    if bench.out:
        need_matplotlib("--out")
        need_folder(bench.out)
    console = Console(stderr=True)
    workloads = {
        name: load_workload(name, sessions, bench.lab, console) for name, sessions in bench.sessions().items()
    }
    plan = bench.plan(workloads)
    with steps("replays", plan.replays(workloads), console, SystemClock(), "replays") as shown:
        rows = [row.as_json() for row in run_table(plan, workloads, shown.advance, bench.lab.processes)]
    traces = [trace_as_json(name, workload) for name, workload in workloads.items()]
    result = {"options": bench.told(), "traces": traces, "rows": rows}
    if bench.lab.as_json:
        print(json.dumps(result), flush=True)
    else:
        show(rows, on_stdout())
        if bench.full:
            on_stdout().print(summary(rows))
    if bench.out:
        pkgutil.resolve_name(REPORT)(result, bench.out)
    return 0


if __name__ == "__main__":
    start(main)

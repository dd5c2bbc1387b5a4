"""Eviction orders against LRU and against a bound, on traces: `agentcache bench policies [--json]`.

Without options two synthetic traces are replayed (`agentcache trace synth` writes the same), each in two rooms. A trace
of your own is `--trace NAME=PATH`; `--full` adds smaller and larger rooms, a host tier and queues.

The real cache decides, over slots without bytes: hit rates are those that a worker would have. Times are modelled:
prefill 10,000, host 200,000 and decoding 50 tokens a second.
"""

import argparse
import json
import pkgutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from agentcache.bench.starting import start
from agentcache.clock import SystemClock
from agentcache.engine.scheduler import PrefillOrder
from agentcache.engine.tokenizer import load_tokenizer
from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.cells import Cell, Policy
from agentcache.replay.lab.command import tell
from agentcache.replay.lab.selecting import Selection
from agentcache.replay.lab.serving import Machine
from agentcache.replay.lab.shown import show
from agentcache.replay.lab.table import ARMS, KNOWN_ARMS, Plan, Row, run_table
from agentcache.replay.paged import Workload
from agentcache.replay.progress import steps
from agentcache.replay.readers import open_trace
from agentcache.replay.synth import synthesize

SYNTHETIC = {"claude-code": 80, "swe-agent": 150}
"""The traces that are replayed without options, and how many sessions of each."""

SYNTHETIC_SEED = 1
ROOMS, FULL_ROOMS = (4.0, 12.0), (4.0, 6.0, 8.0, 12.0, 16.0)
HOSTS = ((3.0, 6.0), (6.0, 12.0))
QUEUED_ROOMS = (8.0, 12.0)
LIVE, LIVE_QUEUED = 40.0, 20.0
SEEDS, FULL_SEEDS = 3, 5
REPORT = "agentcache.bench.policies_report:write"
"""By name, because it needs the extra `plots`."""


def main(arguments: Sequence[str]) -> int:
    """The command. 0: every replay was made."""
    options = _parser().parse_args(arguments)
    console = Console(stderr=True)
    workloads = _workloads(options, console)
    plan = _plan(options, list(workloads))
    with steps("replays", plan.replays, console, SystemClock(), "replays") as shown:
        rows = list(run_table(plan, workloads, shown.advance, options.processes))
    if options.out:
        _write(rows, options.out)
    if options.json:
        print(json.dumps({"rows": [row.as_json() for row in rows]}))
    else:
        show(rows, Console())
    return 0


def _workloads(options: argparse.Namespace, console: Console) -> dict[str, Workload]:
    selection = Selection(options.longest_tokens, options.longest_h, options.sessions)
    encode = load_tokenizer().encode
    traces = {
        name: synthesize(name, options.sessions or count, SYNTHETIC_SEED) for name, count in SYNTHETIC.items()
    }
    if options.trace:
        traces = {name: open_trace(path).sessions() for name, path in options.trace}
    workloads = {}
    for name, sessions in traces.items():
        workloads[name] = workload = selection.page(sessions, encode)
        if not workload.sessions:
            raise CacheError(
                Kind.BAD_TRACE, f"no session of {name} is left; raise --longest-tokens or --longest-h"
            )
        tell(name, workload, console)
    return workloads


def _plan(options: argparse.Namespace, names: Sequence[str]) -> Plan:
    seeds = options.seeds or (FULL_SEEDS if options.full else SEEDS)
    rooms = options.capacity or (FULL_ROOMS if options.full else ROOMS)
    any_policy, live = Policy.LRU, LIVE if options.live is None else options.live
    cells = [Cell(any_policy, room, live=live) for room in rooms]
    if options.full:
        cells += [Cell(any_policy, device, host, live=live) for device, host in HOSTS]
        for turns in PrefillOrder:
            queued = Machine(queue=True, turns=turns)
            cells += [Cell(any_policy, room, live=LIVE_QUEUED, machine=queued) for room in QUEUED_ROOMS]
    arms = [KNOWN_ARMS[name] for name in options.arm] if options.arm else ARMS
    return Plan(dict.fromkeys(names, cells), arms, range(1, seeds + 1))


def _write(rows: Sequence[Row], folder: Path) -> None:
    """The table as JSON, plots and a page."""
    if not find_spec("matplotlib"):
        raise CacheError(Kind.BAD_CONFIG, 'plots need matplotlib: pip install "agentcache[plots]"')
    pkgutil.resolve_name(REPORT)([row.as_json() for row in rows], folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agentcache bench policies",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--trace", type=_named, metavar="NAME=PATH", action="append", help="a trace instead; may be repeated"
    )
    parser.add_argument("--full", action="store_true", help="more rooms, a host tier, queues, 5 seeds")
    parser.add_argument(
        "--capacity", type=float, nargs="+", help="rooms on the device, in mean session peaks"
    )
    parser.add_argument(
        "--live", type=float, help="sessions live on the average, without a queue; 0: as recorded"
    )
    parser.add_argument(
        "--arm",
        nargs="+",
        choices=KNOWN_ARMS,
        metavar="ARM",
        help="only these lines, such as ert ert-noclose",
    )
    parser.add_argument("--seeds", type=int, help="how often, with other starts of the sessions")
    parser.add_argument("--sessions", type=int, help="the first N sessions of each trace")
    parser.add_argument(
        "--longest-tokens", type=int, default=400_000, help="leave out longer prompts' sessions"
    )
    parser.add_argument(
        "--longest-h", type=float, default=6.0, help="leave out sessions that live longer, in hours"
    )
    parser.add_argument("--processes", type=int, default=0, help="replays at the same time; 0: one a core")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="write policies.json, plots and a page there"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser


def _named(text: str) -> tuple[str, Path]:
    name, _, path = text.rpartition("=")
    return name or Path(path).name.partition(".")[0], Path(path)


if __name__ == "__main__":
    start(main)

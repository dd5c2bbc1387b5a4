"""Agents at a router, against a bound, on a clock that jumps: `agentcache bench agents [--json]`.

The router's application, a session store in memory and a worker that keeps account run in this process and in the
trace's own time, over ASGI. Each page of the trace is one token of the worker. A few hours of forty agents take half
a minute of one core.

The arms: lru evicts the least recently used; ert is the worker's default order, and nobody says how long tools take;
learned: the router learns how long each takes, and tells the worker (--learn-waits); stated: agents say it themselves
(POST /v1/sessions/ID/pause), truly, and nobody foretells people.

Without --trace two synthetic traces are replayed, two minutes in all. The share of the gap between lru and the order
that knows the future counts; that order, and what the lab makes of the same script without a router, are replayed
beside it. docs/replay.md tells how.
"""

import gc
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
from rich.console import Console

from agentcache import logs
from agentcache.bench.agents_table import FLOOR, Found, Played, rows_of, shown
from agentcache.bench.agents_world import Setting, played
from agentcache.bench.policies import NamedTrace, TraceFile
from agentcache.bench.starting import start
from agentcache.clock import SystemClock
from agentcache.command_line import HELP
from agentcache.errors import CacheError, Kind
from agentcache.replay.ending import terminated_as_interrupted
from agentcache.replay.flags import COUNT, FRACTION, Live
from agentcache.replay.lab.cells import Cell, Hints, Policy
from agentcache.replay.lab.command import load_workload, trace_as_json
from agentcache.replay.lab.options import LabOptions
from agentcache.replay.lab.replaying import replay_cell, room_pages
from agentcache.replay.lab.scripts import LIVE, draw_script
from agentcache.replay.lab.selecting import Selection
from agentcache.replay.lab.serving import Machine
from agentcache.replay.lab.shown import on_stdout
from agentcache.replay.paged import Workload
from agentcache.replay.progress import steps
from agentcache.replay.readers import open_trace
from agentcache.replay.routed.pages import in_whole_pages
from agentcache.replay.synth import synthesize
from agentcache.replay.trace import Session

SYNTHETIC = {"swe-agent": 30, "claude-code": 16}
"""The traces that are replayed without options, and how many sessions of each."""
SYNTHETIC_SEED, SYNTHETIC_LIVE = 1, 12.0
SPEED = 1000.0
"""How much faster the worker is than the lab's usual. It computes one prompt after the other, who finds no room waits,
and a page of an answer takes a step; so fast, that seldom counts, and hits depend on what was evicted."""

YOUNG_OBJECTS = 10_000
"""Objects between two small collections, as a router has it."""


@dataclass(frozen=True, slots=True)
class RoutedArm:
    """What the worker orders by, and who says how long tools take."""

    name: str
    policy: Policy
    learns: bool = False
    states: bool = False


ARMS = (
    RoutedArm(FLOOR, Policy.LRU),
    RoutedArm("ert", Policy.ERT),
    RoutedArm("learned", Policy.ERT, learns=True),
    RoutedArm("stated", Policy.ERT, states=True),
)
LAB = {
    "lru in the lab": (Policy.LRU, Hints.NONE),
    "ert in the lab": (Policy.ERT, Hints.NONE),
    "ert in the lab, exact hints": (Policy.ERT, Hints.EXACT),
    "clairvoyant": (Policy.CLAIRVOYANT, Hints.NONE),
}


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked for. Units: `rooms` in mean session peaks; `live` sessions on the average, None: the usual."""

    traces: Sequence[TraceFile] = ()
    sessions: int | None = None
    seeds: int = 2
    rooms: Sequence[float] = (8.0,)
    arms: Sequence[str] = ()
    live: float | None = None
    speed: float = SPEED

    def told(self) -> list[tuple[str, Iterable[Session]]]:
        """The traces, by name. Errors: BAD_TRACE."""
        if self.traces:
            return [(trace.name, open_trace(trace.path).sessions()) for trace in self.traces]
        return [
            (kind, synthesize(kind, self.sessions or count, SYNTHETIC_SEED))
            for kind, count in SYNTHETIC.items()
        ]

    def chosen(self) -> list[RoutedArm]:
        """The arms; lru is always among them."""
        return [arm for arm in ARMS if not self.arms or arm.name in (FLOOR, *self.arms)]

    def condition(self, room: float, requests: bool = False) -> Cell:
        """What all arms of a table have in common. `requests`: the trace is a stream of single ones."""
        usual = Machine()
        machine = replace(
            usual, prefill=self.speed * usual.prefill, decode=self.speed * usual.decode, queue=True
        )
        usual_live = 0.0 if requests else LIVE if self.traces else SYNTHETIC_LIVE
        live = usual_live if self.live is None else self.live
        return Cell(Policy.LRU, room, live=live, machine=machine)


def replay_routed(workload: Workload, condition: Cell, arm: RoutedArm, seed: int) -> Played:
    """One arm with one seed. Caller: a workload `in_whole_pages`. Cost: about 2 ms a call."""
    slots = room_pages(workload, condition.device)
    setting = Setting(arm.policy.value, slots, condition.machine, workload.page_tokens, arm.learns)
    taken, told = played(draw_script(workload, condition, seed), setting, arm.states)
    return Played.of(taken, told)


def replay_in_lab(workload: Workload, condition: Cell, seed: int, policy: Policy, hints: Hints) -> Played:
    """The same script without a router."""
    score = replay_cell(workload, replace(condition, policy=policy, hints=hints), seed)
    return Played(score.prompt_tokens // workload.page_tokens, score.device_tokens // workload.page_tokens)


def run(options: Options, console: Console) -> dict[str, Any]:
    """All of it, as one JSON object."""
    lab = LabOptions(selection=Selection(sessions=options.sessions))
    rows: list[Found] = []
    traces = []
    for name, sessions in options.told():
        workload = load_workload(name, sessions, lab, console)
        traces.append(trace_as_json(name, workload))
        workload = in_whole_pages(workload)
        gc.collect()
        gc.freeze()  # what is read stays: no collection need walk it
        for room in options.rooms:
            rows += _table(name, workload, options.condition(room, workload.requests), options, console)
    return {
        "options": {
            "seeds": options.seeds,
            "rooms": list(options.rooms),
            "live": options.condition(1).live,
            "speed": options.speed,
            "arms": [arm.name for arm in options.chosen()],
        },
        "traces": traces,
        "rows": rows_of(rows),
    }


def _table(name: str, workload: Workload, condition: Cell, options: Options, console: Console) -> list[Found]:
    """One room of one trace."""
    seeds, arms = range(1, options.seeds + 1), options.chosen()
    total = len(seeds) * (len(arms) + len(LAB))
    found = []
    with steps(f"{name}, room {condition.device:g}", total, console, SystemClock(), "replays") as progress:
        for arm in arms:
            one = Found(name, condition.device, arm.name, routed=True)
            for seed in seeds:
                one.played.append(replay_routed(workload, condition, arm, seed))
                progress.advance()
            found.append(one)
        for label, (policy, hints) in LAB.items():
            one = Found(name, condition.device, label, routed=False)
            for seed in seeds:
                one.played.append(replay_in_lab(workload, condition, seed, policy, hints))
                progress.advance()
            found.append(one)
    return found


@click.command(help=__doc__, context_settings=HELP)
@click.option(
    "--trace",
    "traces",
    type=NamedTrace(),
    metavar="NAME=PATH",
    multiple=True,
    help="a trace in place of the synthetic ones; may be repeated",
)
@click.option("--sessions", type=COUNT, help="the first N sessions of each trace  [default: all]")
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=2, show_default=True, help="how often, other starts"
)
@click.option(
    "--room",
    "rooms",
    type=FRACTION,
    multiple=True,
    default=(8.0,),
    show_default=True,
    help="room on the device, in mean session peaks; may be repeated",
)
@click.option(
    "--arm",
    "arms",
    type=click.Choice([arm.name for arm in ARMS]),
    multiple=True,
    help="one of the arms, beside lru; may be repeated  [default: all]",
)
@click.option(
    "--live", type=Live(0, 1e6), help="sessions live on the average; 0: as recorded  [default: 40, or 12]"
)
@click.option(
    "--speed",
    type=FRACTION,
    default=SPEED,
    show_default=True,
    help="times the lab's usual machine (replay.md)",
)
@click.option("--json", "as_json", is_flag=True, help="one JSON object on stdout")
def agents(as_json: bool, **said: Any) -> int:
    """Replay, and print. 0: every replay was made."""
    options = Options(**said)
    names = [trace.name for trace in options.traces]
    if len(set(names)) < len(names):
        raise CacheError(Kind.BAD_REQUEST, "two traces have one name; give each --trace a NAME= of its own")
    logs.configure("text", "warning", sys.stderr)
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    with terminated_as_interrupted():
        result = run(options, Console(stderr=True))
    if as_json:
        print(json.dumps(result), flush=True)
    else:
        shown(result["rows"], on_stdout())
    return 0


def main(arguments: Sequence[str]) -> int:
    """The command. 0: every replay was made; 2: words that it does not know, which it names on stderr."""
    try:
        code: int = agents.main(list(arguments), prog_name="agentcache bench agents", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    return code


if __name__ == "__main__":
    start(main)

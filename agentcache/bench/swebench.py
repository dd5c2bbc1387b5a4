"""Orders of eviction on SWE-bench agents: `agentcache bench swebench [TRACE] [--json] [--plot FILE] [--full]`.

Sessions are agents that repair a repository: a tool loop with nobody in it, closed at its end. The orders lru, session
and ert are compared by device and host hit rate and by the time to the first token, for several batches (sessions live
at once) in a device and a host tier of one size. What leaves the device is copied to the host (write_back).

    lab      the real cache over slots without bytes, times modelled; TRACE, or a synthetic one of 150 sessions
    engine   a built-in model with small pools, real prefills and logits; the first calls of TRACE, or of our sample

--json prints {"lab": …, "engine": …}, each with `trace`, `shape` (what is held constant) and `rows`; the engine also
with `different_answers`: calls by batch whose first logits an order changed (0, or the exit code is 1). In every row:

    batch, order                                 sessions live at once; lab: `clairvoyant`, too, the bound
    device_hit_rate, host_hit_rate, hit_rate     shares of the prompt tokens
    ttft_ms, ttft_p95_ms, ttft_change            mean time to the first token, its 95th percentile, mean against lru's
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from agentcache import logs
from agentcache.bench.options import (
    add_answers,
    add_core,
    answer,
    chosen_by,
    natural,
    parser_of,
    plotter,
    positive,
)
from agentcache.bench.starting import start
from agentcache.bench.swebench_engine import ENGINE as ENGINE_SIZE
from agentcache.bench.swebench_engine import FULL_ENGINE, EngineBench, EngineSize
from agentcache.bench.swebench_lab import FULL_LAB, LAB, LabSize, lab_plan, replay_batches
from agentcache.bench.swebench_report import ENGINE, Report, show, wrong_answers
from agentcache.bench.swebench_report import LAB as LAB_LEVEL
from agentcache.bench.swebench_script import choose, write_script
from agentcache.clock import SystemClock
from agentcache.config import EngineSettings
from agentcache.engine.tokenizer import ChatTokenizer, load_tokenizer
from agentcache.replay.ending import terminated_as_interrupted
from agentcache.replay.lab.command import load_workload
from agentcache.replay.lab.options import LabOptions
from agentcache.replay.lab.selecting import Selection
from agentcache.replay.progress import steps
from agentcache.replay.readers import open_trace
from agentcache.replay.sample import SAMPLE
from agentcache.replay.synth import synthesize
from agentcache.replay.trace import Session

SYNTHETIC, SYNTHETIC_SEED = "swe-agent", 1
SCRIPT_SEED = 1
LEVELS = (LAB_LEVEL, ENGINE)
PLOT = "agentcache.bench.swebench_plot:plot"


def main(arguments: Sequence[str]) -> int:
    """Measure, and print tables or one JSON object; 0 when all was measured and every order answered the same."""
    options = _parser().parse_args(arguments)
    logs.configure("text", "warning", sys.stderr)
    plot = plotter(options.plot, PLOT) if options.plot else None
    with terminated_as_interrupted():
        result = _measured(options, Console(stderr=True))
    answer(result, options.json, partial(show, result))
    if plot:
        plot([result], options.plot)
    return 1 if wrong_answers(result) else 0


def _measured(options: argparse.Namespace, console: Console) -> Report:
    sessions = _told(options) if ENGINE in options.only else []  # asked first: it may have no text
    result: Report = {}
    if LAB_LEVEL in options.only:
        result[LAB_LEVEL] = _in_lab(options, console)
    if ENGINE in options.only:
        result[ENGINE] = _on_engine(options, sessions, load_tokenizer(), console)
    return result


def _in_lab(options: argparse.Namespace, console: Console) -> Report:
    size = _lab_size(options)
    name = options.trace.name if options.trace else f"synthetic {SYNTHETIC}"
    asked = LabOptions(selection=Selection(sessions=size.sessions))
    workload = load_workload(name, _recorded(options, size), asked, console)
    plan = lab_plan(name, workload, size)
    with steps(
        "replays in the lab", plan.replays({name: workload}), console, SystemClock(), "replays"
    ) as shown:
        rows = replay_batches(plan, workload, shown.advance, options.processes)
    shape = {
        "sessions": len(workload.sessions),
        "calls": workload.calls,
        "prompt_tokens": workload.prompt_tokens,
        "seeds": size.seeds,
        "device_pages": size.device_pages,
        "host_pages": size.host_pages,
    }
    return {"trace": name, "shape": shape, "rows": rows}


def _recorded(options: argparse.Namespace, size: LabSize) -> Iterable[Session]:
    if options.trace:
        return open_trace(options.trace).sessions()
    return synthesize(SYNTHETIC, size.sessions, SYNTHETIC_SEED)


def _told(options: argparse.Namespace) -> list[Session]:
    """What the engine is asked. Errors: BAD_TRACE, also for a trace without text."""
    size = _engine_size(options)
    return choose(open_trace(options.trace or SAMPLE).sessions(), size.sessions, size.turns)


def _on_engine(
    options: argparse.Namespace, sessions: Sequence[Session], tokenizer: ChatTokenizer, console: Console
) -> Report:
    size = _engine_size(options)
    settings = EngineSettings(
        model=options.model, core=options.core, threads=options.threads, write_policy="write_back"
    )
    scripts = {batch: write_script(sessions, batch, SCRIPT_SEED, tokenizer) for batch in size.batches}
    calls = sum(len(session.calls) for session in sessions) * len(size.batches)
    with steps("calls of every order's engine", calls, console, SystemClock(), "calls") as shown:
        found = EngineBench(settings, size, SystemClock(), shown.advance).run(scripts)
    return {"trace": options.trace.name if options.trace else "the sample that agentcache ships", **found}


def _lab_size(options: argparse.Namespace) -> LabSize:
    return chosen_by(options, FULL_LAB if options.full else LAB)


def _engine_size(options: argparse.Namespace) -> EngineSize:
    return chosen_by(options, FULL_ENGINE if options.full else ENGINE_SIZE, prefix="engine_")


SIZES = (
    ("--batches", "batches", LAB.batches, "lab: sessions live at once, one or more"),
    ("--sessions", "sessions", LAB.sessions, "lab: the first N sessions"),
    ("--seeds", "seeds", LAB.seeds, "lab: how often, with other starts of the sessions"),
    ("--device-pages", "device_pages", LAB.device_pages, "lab: room on the device, in pages of 64 tokens"),
    ("--host-pages", "host_pages", LAB.host_pages, "lab: room on the host"),
    ("--engine-batches", "engine_batches", ENGINE_SIZE.batches, "engine: sessions live at once, one or more"),
    (
        "--engine-sessions",
        "engine_sessions",
        ENGINE_SIZE.sessions,
        "engine: sessions; those of a short trace are told again",
    ),
    ("--turns", "engine_turns", ENGINE_SIZE.turns, "engine: the first N calls of each session"),
)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("swebench", __doc__)
    parser.add_argument(
        "trace", type=Path, nargs="?", metavar="TRACE", help="recorded sessions in any format we read"
    )
    parser.add_argument("--full", action="store_true", help="more batches, sessions, calls and seeds")
    parser.add_argument("--only", nargs=1, choices=LEVELS, default=LEVELS, help="one level")
    for flag, name, usual, what in SIZES:
        many, shown = ("+", " ".join(map(str, usual))) if isinstance(usual, tuple) else (None, usual)
        text = f"{what}  [default: {shown}]"
        parser.add_argument(flag, dest=name, type=positive, nargs=many, metavar="N", help=text)
    parser.add_argument(
        "--processes", type=natural, default=0, help="lab: replays at the same time; 0: one a core"
    )
    parser.add_argument("--model", default="tiny-all", help="engine: built-in name, directory, or smollm2")
    add_core(parser, "engine: ")
    parser.add_argument(
        "--threads",
        type=natural,
        default=1,
        help="engine: torch threads; one is steadiest, 0 lets torch choose",
    )
    add_answers(parser)
    return parser


if __name__ == "__main__":
    start(main)

"""Orders of eviction on SWE-bench agents: `agentcache bench swebench [TRACE] [--json] [--plot FILE] [--full]`.

Sessions are agents that repair a repository: a tool loop with nobody in it, closed at its end. The orders lru, session
and ert are compared by device and host hit rate and by the time to the first token, for several batches (sessions live
at once) in a device and a host tier of one size. What leaves the device is copied to the host (write_back).

    lab      the real cache over slots without bytes, times modelled; TRACE, or a synthetic one of 150 sessions
    engine   a built-in model with small pools, real prefills and logits; the first calls of TRACE, or of our sample
"""

import argparse
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from agentcache import logs
from agentcache.bench.starting import start
from agentcache.bench.swebench_engine import ENGINE as ENGINE_SIZE
from agentcache.bench.swebench_engine import FULL_ENGINE, EngineBench, EngineSize
from agentcache.bench.swebench_lab import FULL_LAB, LAB, LabSize, lab_plan, replay_batches
from agentcache.bench.swebench_report import ENGINE, Report, show, wrong_answers
from agentcache.bench.swebench_report import LAB as LAB_LEVEL
from agentcache.bench.swebench_script import choose, write_script
from agentcache.build import CORES
from agentcache.clock import SystemClock
from agentcache.config import EngineSettings, resolve
from agentcache.engine.tokenizer import ChatTokenizer, load_tokenizer
from agentcache.errors import CacheError, Kind
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
Plotter = Callable[[Report, Path], None]


def main(arguments: Sequence[str]) -> int:
    """Measure, and print tables or one JSON object; 0 when all was measured and every order answered the same."""
    options = _parser().parse_args(arguments)
    logs.configure("text", "warning", sys.stderr)
    plot = _plotter(options.plot) if options.plot else None
    tokenizer, console = load_tokenizer(), Console(stderr=True)
    sessions = _told(options) if ENGINE in options.only else []
    result: Report = {}
    if LAB_LEVEL in options.only:
        result[LAB_LEVEL] = _in_lab(options, tokenizer, console)
    if ENGINE in options.only:
        result[ENGINE] = _on_engine(options, sessions, tokenizer, console)
    if options.json:
        print(json.dumps(result))
    else:
        show(result, Console(width=None if sys.stdout.isatty() else 150))
    if plot:
        plot(result, options.plot)
    return 1 if wrong_answers(result) else 0


def _in_lab(options: argparse.Namespace, tokenizer: ChatTokenizer, console: Console) -> Report:
    size = _lab_size(options)
    name = options.trace.name if options.trace else f"synthetic {SYNTHETIC}"
    workload = Selection(sessions=size.sessions).page(_recorded(options, size), tokenizer.encode)
    if not workload.sessions:
        raise CacheError(
            Kind.BAD_TRACE, f"{name} has no session of at most 400,000 tokens and 6 hours to replay"
        )
    plan = lab_plan(name, workload, size)
    with steps("replays in the lab", plan.replays, console, SystemClock(), "replays") as shown:
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
    """What the engine is asked; looked at before anything is measured. Errors: BAD_TRACE, for one without text too."""
    size = _engine_size(options)
    try:
        return choose(open_trace(options.trace or SAMPLE).conversations(), size.sessions, size.turns)
    except CacheError as refused:
        if refused.kind is not Kind.BAD_TRACE or LAB_LEVEL not in options.only:
            raise
        raise CacheError(
            Kind.BAD_TRACE, f"{refused}; --only lab replays a trace without an engine"
        ) from refused


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
    chosen = FULL_LAB if options.full else LAB
    return replace(
        chosen,
        batches=options.batches or chosen.batches,
        sessions=options.sessions or chosen.sessions,
        seeds=options.seeds or chosen.seeds,
        device_pages=options.device_pages or chosen.device_pages,
        host_pages=options.host_pages or chosen.host_pages,
    )


def _engine_size(options: argparse.Namespace) -> EngineSize:
    chosen = FULL_ENGINE if options.full else ENGINE_SIZE
    return replace(
        chosen,
        batches=options.engine_batches or chosen.batches,
        sessions=options.engine_sessions or chosen.sessions,
        turns=options.turns or chosen.turns,
    )


def _plotter(path: Path) -> Plotter:
    """What draws the file, asked before the run. Errors: BAD_CONFIG for a file that could not be drawn."""
    if not find_spec("matplotlib"):
        raise CacheError(Kind.BAD_CONFIG, "--plot needs matplotlib: pip install 'agentcache[plots]'")
    if path.suffix not in (".svg", ".png") or not path.parent.is_dir():
        raise CacheError(
            Kind.BAD_CONFIG, f"--plot draws an .svg or a .png in a folder that is there, not {path}"
        )
    plotter: Plotter = pkgutil.resolve_name(PLOT)
    return plotter


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agentcache bench swebench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "trace", type=Path, nargs="?", metavar="TRACE", help="recorded sessions in any format we read"
    )
    parser.add_argument("--full", action="store_true", help="more batches, sessions, calls and seeds")
    parser.add_argument("--only", nargs=1, choices=LEVELS, default=LEVELS, help="one level")
    lab = (
        ("batches", "lab: sessions live at once, one or more", "+"),
        ("sessions", "lab: the first N sessions", None),
        ("seeds", "lab: how often, with other starts of the sessions", None),
        ("device_pages", "lab: room on the device, in pages of 64 tokens", None),
        ("host_pages", "lab: room on the host", None),
        ("engine_batches", "engine: sessions live at once, one or more", "+"),
        ("engine_sessions", "engine: sessions; those of a short trace are told again", None),
        ("turns", "engine: the first N calls of each session", None),
    )
    for name, what, many in lab:
        flag = f"--{name.replace('_', '-')}"
        default = getattr(LAB, name, None) or getattr(ENGINE_SIZE, name.removeprefix("engine_"))
        shown = " ".join(map(str, default)) if many else default
        parser.add_argument(flag, type=_positive, nargs=many, metavar="N", help=f"{what}  [default: {shown}]")
    parser.add_argument(
        "--processes", type=int, default=0, help="lab: replays at the same time; 0: one a core"
    )
    parser.add_argument("--model", default="tiny-all", help="engine: built-in name, directory, or smollm2")
    parser.add_argument(
        "--core",
        choices=sorted(CORES),
        default=resolve({}, os.environ).settings.core,
        help="engine: tree core; the default is that of the settings",
    )
    parser.add_argument("--threads", type=int, default=1, help="engine: torch threads; one is steadiest")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it, as .svg or .png")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("not positive")
    return number


if __name__ == "__main__":
    start(main)

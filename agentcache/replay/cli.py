"""What the commands `agentcache replay` and `agentcache demo` do; each answers an exit code.

Tables and JSON go to stdout, progress to stderr. 0: complete; 1: a turn was skipped or failed, answers differ, or a
reference was left. Faults leave as CacheError, an interruption as KeyboardInterrupt; sessions are closed before.
"""

import asyncio
import json
import secrets
import signal
from collections.abc import Coroutine
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

from rich.console import Console

from agentcache.clock import Clock, SystemClock
from agentcache.errors import CacheError, Kind
from agentcache.replay.client import WorkerClient, worker_client
from agentcache.replay.compare import Comparison, compare
from agentcache.replay.demo import DemoPlan, run_demo
from agentcache.replay.lab.command import LabOptions, replay_in_lab
from agentcache.replay.progress import steps
from agentcache.replay.readers import Trace, open_trace
from agentcache.replay.report import NO_COMPARISON, Report
from agentcache.replay.run import NO_LIMIT, Limits, Mode, Played, play
from agentcache.replay.sample import SAMPLE

T = TypeVar("T")


class ReplayOptions(TypedDict):
    """`sessions` and `turns` None: all. `concurrency`: sessions at once. `compare_cold`: how many run again cold."""

    sessions: int | None
    turns: int | None
    max_tokens: int
    concurrency: int
    compare_cold: int
    as_json: bool


class DemoOptions(TypedDict):
    """`out` is the JSON file; the worker's log goes beside it."""

    sessions: int
    turns: int
    max_tokens: int
    out: Path
    model: str
    as_json: bool


AT_A_WORKER: ReplayOptions = {
    "sessions": None,
    "turns": None,
    "max_tokens": 16,
    "concurrency": 4,
    "compare_cold": 0,
    "as_json": False,
}


def replay_trace(path: Path, said: dict[str, Any]) -> int:
    """Replay in the lab, or against the worker at `url`. Errors: BAD_REQUEST for options that are the other's."""
    url = said.pop("url", "")
    known = set(AT_A_WORKER) if url else {field.name for field in fields(LabOptions)}
    if other := sorted(set(said) - known):
        where = (
            "a replay in the lab: leave --url out" if url else "a replay against a worker: name it with --url"
        )
        flags = ", ".join(FLAGS.get(name, f"--{name.replace('_', '-')}") for name in other)
        raise CacheError(Kind.BAD_REQUEST, f"{flags} is for {where}")
    if url:
        return replay(path, url, **{**AT_A_WORKER, **said})
    return replay_in_lab(path, LabOptions(**said))


FLAGS = {"policies": "--policy", "capacities": "--capacity"}


def replay(path: Path, url: str, **options: Unpack[ReplayOptions]) -> int:
    """Replay the trace at `path` against the worker at `url`."""
    trace = open_trace(path)
    limits = Limits(
        options["sessions"] or NO_LIMIT,
        options["turns"] or NO_LIMIT,
        options["max_tokens"],
        options["concurrency"],
    )
    work = _replay(trace, url, limits, options["compare_cold"])
    report = _run(work)
    _print(report, options["as_json"])
    return 0 if report.complete else 1


def demo(trace: Path | None, **options: Unpack[DemoOptions]) -> int:
    """Start a worker and show on `trace` (None: the sample that we ship) what the cache does."""
    limits = Limits(
        options["sessions"], options["turns"], options["max_tokens"], at_once=max(1, options["sessions"])
    )
    run = f"demo-{secrets.token_hex(3)}"
    plan = DemoPlan(open_trace(trace or SAMPLE), limits, options["model"], options["out"], run)
    result = _run(run_demo(plan, Console(stderr=True), SystemClock()))
    _print(result, options["as_json"])
    return 1 if result.faults() else 0


async def _replay(trace: Trace, url: str, limits: Limits, compare_cold: int) -> Report:
    console, clock = Console(stderr=True), SystemClock()
    run = f"replay-{secrets.token_hex(4)}"
    async with worker_client(url, clock) as client:
        model = await client.connect()
        in_file = trace.count()
        turns = _turns(trace, limits)
        with steps(f"replaying on {model}", turns, console, clock) as shown:
            mode = Mode(run, digest=compare_cold > 0)
            played = await play(client, trace.conversations(), limits, mode, shown.advance)
        comparison = NO_COMPARISON
        if compare_cold:
            comparison = await _compare_cold(client, trace, played[:compare_cold], limits, (console, clock))
    return Report(model, played, in_file, comparison, strict_tokens=limits.at_once == 1)


async def _compare_cold(
    client: WorkerClient, trace: Trace, warm: list[Played], limits: Limits, shown_by: tuple[Console, Clock]
) -> Comparison:
    """The same sessions again with the cache off, as many at once as before."""
    again = Limits(len(warm), limits.turns, limits.max_tokens, limits.at_once)
    with steps("again with the cache off", sum(len(one.turns) for one in warm), *shown_by) as shown:
        mode = Mode("", reuse=False, digest=True)
        cold = await play(client, trace.conversations(), again, mode, shown.advance)
    return compare(warm, cold)


def _turns(trace: Trace, limits: Limits) -> int:
    """How many turns the replay will send. Reads what will be replayed, so a broken trace fails before the start."""
    return sum(min(len(one.calls), limits.turns) for one in islice(trace.conversations(), limits.sessions))


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; SIGTERM ends it like Ctrl-C, so that sessions are closed and no worker is left."""
    return asyncio.run(_until_terminated(work))


async def _until_terminated(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(work)
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await task
    except asyncio.CancelledError:
        if terminated:
            raise KeyboardInterrupt from None
        raise


def _print(result: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result.as_json()))
    else:
        result.show(Console())

"""What the commands `agentcache replay` and `agentcache demo` do; each answers an exit code.

Tables and JSON go to stdout, progress to stderr. 0: complete; 1: a turn was skipped or failed, answers differ, or a
reference was left. Faults leave as CacheError, an interruption as KeyboardInterrupt; sessions are closed before.
"""

import asyncio
import json
import secrets
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

from rich.console import Console

from agentcache.clock import SystemClock
from agentcache.errors import CacheError, Kind
from agentcache.replay.client import WorkerClient, worker_client
from agentcache.replay.compare import Comparison, compare
from agentcache.replay.demo import DemoPlan, run_demo
from agentcache.replay.ending import terminated_as_interrupted
from agentcache.replay.families import Kinship
from agentcache.replay.flags import LAB
from agentcache.replay.lab.command import replay_in_lab
from agentcache.replay.lab.options import LabOptions, flag_names
from agentcache.replay.pacing import Pace
from agentcache.replay.progress import steps
from agentcache.replay.readers import Trace, open_trace
from agentcache.replay.report import NO_COMPARISON, Asked, Report
from agentcache.replay.run import NO_LIMIT, Limits, Mode, Played, play
from agentcache.replay.sample import SAMPLE
from agentcache.replay.spelling import TEXT_ONLY, Spelling, sendable, vocabulary
from agentcache.replay.trace import Session

T = TypeVar("T")


class ReplayOptions(TypedDict):
    """`sessions` and `turns` None: all. `concurrency`: sessions at once. `compare_cold`: how many run again cold.

    `scale`: tokens that a block of the trace is sent as; 0: as many as it has. `speed`: how many times faster than
    recorded a session comes back; 0: at once.
    """

    sessions: int | None
    turns: int | None
    max_tokens: int
    concurrency: int
    compare_cold: int
    scale: int
    speed: float
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
    "scale": 0,
    "speed": 0.0,
    "as_json": False,
}


def replay_trace(path: Path, said: dict[str, Any]) -> int:
    """Replay in the lab, or against the worker at `url`. Errors: BAD_REQUEST for options that are the other's."""
    url = said.pop("url", "")
    known = set(AT_A_WORKER) if url else flag_names()
    if other := sorted(set(said) - known):
        where = (
            "a replay in the lab: leave --url out" if url else "a replay against a worker: name it with --url"
        )
        flags = ", ".join(FLAGS.get(name, f"--{name.replace('_', '-')}") for name in other)
        raise CacheError(Kind.BAD_REQUEST, f"{flags} is for {where}")
    if url:
        return replay(path, url, **{**AT_A_WORKER, **said})
    return replay_in_lab(path, LabOptions.of(**said))


FLAGS = {names[1]: names[0] for names, _ in LAB if len(names) > 1}
"""Options whose flag is not called as they are."""


def replay(path: Path, url: str, **options: Unpack[ReplayOptions]) -> int:
    """Replay the trace at `path` against the worker at `url`."""
    trace = open_trace(path)
    limits = Limits(
        options["sessions"] or NO_LIMIT,
        options["turns"] or NO_LIMIT,
        options["max_tokens"],
        options["concurrency"],
    )
    pace = Pace(options["speed"], SystemClock(), asyncio.sleep)
    plan = _Plan(trace, limits, options["compare_cold"], options["scale"], pace)
    report = _run(_replay(plan, url))
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


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is replayed and how; see `ReplayOptions`. `kin` is known once it was `asked`."""

    trace: Trace
    limits: Limits
    compare_cold: int
    scale: int
    pace: Pace
    kin: Kinship = field(default_factory=Kinship)

    def sessions(self) -> Iterator[Session]:
        """Those that are sent, sub-agents behind their parents."""
        return self.kin.together(self._chosen())

    def _chosen(self) -> Iterator[Session]:
        return islice(sendable(self.trace.sessions()), self.limits.sessions)

    def asked(self) -> Asked:
        """What the replay will send. Reads all of it, so a broken trace fails before the start."""
        asked = Asked(scale=self.scale, speed=self.pace.speed)
        for session in self._chosen():
            asked.add(session, min(len(session.calls), self.limits.turns))
            self.kin.add(session)
        if self.scale and not asked.block_tokens:
            message = f"--scale is for traces that are told in blocks; {self.trace.path} tells its text"
            raise CacheError(Kind.BAD_REQUEST, message)
        return asked


async def _replay(plan: _Plan, url: str) -> Report:
    console, clock = Console(stderr=True), plan.pace.clock
    async with worker_client(url, clock, plan.pace.sleep) as client:
        model = await client.connect()
        in_file = plan.trace.count()
        asked = plan.asked()
        spelling = Spelling(vocabulary(client.about), plan.scale) if asked.block_tokens else TEXT_ONLY
        mode = Mode(
            f"replay-{secrets.token_hex(4)}", digest=plan.compare_cold > 0, spelling=spelling, pace=plan.pace
        )
        with steps(f"replaying on {model}", asked.turns, console, clock) as shown:
            played = await play(client, plan.sessions(), plan.limits, mode, shown.advance)
        comparison = NO_COMPARISON
        if plan.compare_cold:
            comparison = await _compare_cold(client, plan, played[: plan.compare_cold], mode, console)
    one_by_one = asked.one_by_one(plan.limits.at_once)
    return Report(model, played, in_file, comparison, strict_tokens=one_by_one, asked=asked)


async def _compare_cold(
    client: WorkerClient, plan: _Plan, warm: list[Played], mode: Mode, console: Console
) -> Comparison:
    """The same sessions again with the cache off, as many at once as before; no gap is waited for."""
    again = replace(plan.limits, sessions=len(warm))
    turns = sum(len(one.turns) for one in warm)
    with steps("again with the cache off", turns, console, plan.pace.clock) as shown:
        cold_mode = Mode("", reuse=False, digest=True, spelling=mode.spelling)
        cold = await play(client, plan.sessions(), again, cold_mode, shown.advance)
    return compare(warm, cold)


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; SIGTERM ends it like Ctrl-C, so that sessions are closed and no worker is left."""
    with terminated_as_interrupted():
        return asyncio.run(work)


def _print(result: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result.as_json()))
    else:
        result.show(Console())

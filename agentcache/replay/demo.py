"""The demo: a router and two workers of our own, a trace replayed with the cache off and on, and what came of it."""

import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rich.console import Console

from agentcache.clock import Clock
from agentcache.errors import CacheError, Kind
from agentcache.replay.demo_result import DemoResult, Size
from agentcache.replay.launch import WORKERS, launched_house, site_of
from agentcache.replay.passes import Identity, Together, concurrent_pass, identity_pass, require_reuse
from agentcache.replay.progress import steps
from agentcache.replay.readers import Trace
from agentcache.replay.references import Site
from agentcache.replay.run import Limits, Mode
from agentcache.replay.sample import SAMPLE
from agentcache.replay.trace import Session


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What to replay and on which built-in model; `out` is the JSON file, the logs go beside it.

    `run` begins every session id.
    """

    trace: Trace
    limits: Limits
    model: str
    out: Path
    run: str


async def run_demo(plan: DemoPlan, console: Console, clock: Clock) -> DemoResult:
    """Start router and workers, run both passes, end them, write `plan.out`.

    Errors  CacheError(BAD_TRACE): nothing to replay; UNREACHABLE: one of them did not start, or died
    """
    begun_ns = clock.now_ns()
    sessions = list(islice(plan.trace.conversations(), plan.limits.sessions))
    size = _size(plan, sessions)
    console.print(f"Demo: {size.sentence()}", highlight=False, soft_wrap=True)
    console.print(
        f"Starting a router, its Valkey and {WORKERS} workers with {plan.model} in float32 "
        f"(logs: {plan.out.parent}/demo-*.log)",
        soft_wrap=True,
    )
    async with launched_house(plan.model, plan.out.parent) as house, site_of(house, clock) as site:
        console.print(f"Ready at {house.router.url} after {(clock.now_ns() - begun_ns) / 1e9:.0f} s")
        identity, together = await _passes(plan, sessions, site, console, clock)
    seconds = (clock.now_ns() - begun_ns) / 1e9
    result = DemoResult(site.front.model, size, identity, together, seconds)
    plan.out.parent.mkdir(parents=True, exist_ok=True)
    plan.out.write_text(json.dumps(result.as_json(), indent=2) + "\n", encoding="utf-8")
    return result


async def _passes(
    plan: DemoPlan, sessions: list[Session], site: Site, console: Console, clock: Clock
) -> tuple[Identity, Together]:
    await site.front.connect()
    require_reuse(site.front)
    turns = sum(min(len(session.calls), plan.limits.turns) for session in sessions)
    with steps("cache off and on, one request at a time", turns, console, clock) as shown:
        one_by_one = Mode(f"{plan.run}-a", digest=True)
        identity = await identity_pass(site, sessions, plan.limits, one_by_one, shown.advance)
    with steps("cache on, all sessions at once", turns, console, clock) as shown:
        at_once = Mode(f"{plan.run}-b", digest=True, keep_open=True)
        together = await concurrent_pass(site, sessions, plan.limits, at_once, shown.advance)
    return identity, together


def _size(plan: DemoPlan, sessions: list[Session]) -> Size:
    """How much of the file this is."""
    turns = sum(min(len(session.calls), plan.limits.turns) for session in sessions)
    if not turns:
        raise CacheError(Kind.BAD_TRACE, f"{plan.trace.path} holds no turn to replay")
    path = "the sample that agentcache ships" if plan.trace.path == SAMPLE else str(plan.trace.path)
    in_sessions = sum(len(session.calls) for session in sessions)
    return Size(path, len(sessions), plan.trace.count(), turns, in_sessions, plan.limits.max_tokens)

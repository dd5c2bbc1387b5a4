"""A look as people read it: tables for a terminal, or one JSON object."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentcache.top.looking import ROUTER, TIERS, WORKER, WORKERS, Counts, Look, Pool, WorkerSeen

_FRAME_LINES: Final = 8
"""Of a screen that are none of sessions, workers or pools."""
_THOUSAND: Final = 1000
_STARTS: Final = {WORKER: "the worker's start", WORKERS: "the workers' start", ROUTER: "the router's start"}


def screen(now: Look, came: Counts | None, lines: int) -> RenderableType:
    """A look that fits so many lines; hit rates also of what came since the look before."""
    workers = now.workers or ()
    at_router = now.kind != WORKER
    parts: list[RenderableType] = [_head(now, came)]
    parts += [Text(note, style="yellow") for note in now.notes]
    if at_router and workers:
        parts.append(_workers(workers))
    pools = [(worker, pool) for worker in workers for pool in worker.pools]
    room = max(3, lines - _FRAME_LINES - len(now.notes))
    if pools:
        parts.append(_pools(pools[: max(3, room // 2)], at_router))
    used = min(len(pools), max(3, room // 2)) + (len(workers) if at_router else 0)
    if now.sessions is not None:
        parts.append(_sessions(now, max(3, room - used)))
    return Group(*parts)


def look_json(now: Look, came: Counts | None) -> dict[str, Any]:
    """The same, whole. Shares from 0 to 1, `null` where nothing was asked; `null`, too, for what is not shown.

    `counted_by` (`router`, `workers` or `worker`) counted hit rates and tokens.
    """
    return {
        "url": now.url,
        "kind": now.kind,
        "at_s": now.at_s,
        "counted_by": now.counted_by,
        "hit_rate": _rates(now.counts),
        "hit_rate_lately": _rates(came) if came else None,
        "prompt_tokens": int(now.counts.prompt),
        "cached_tokens": {tier or "all": int(count) for tier, count in now.counts.cached.items()},
        "open_sessions": now.open_sessions,
        "sessions": now.sessions,
        "workers": now.workers and [_worker_json(worker) for worker in now.workers],
        "notes": list(now.notes),
    }


def _worker_json(worker: WorkerSeen) -> dict[str, Any]:
    return {
        "id": worker.id,
        "state": worker.state,
        "role": worker.role or None,
        "reached": worker.reached,
        "running": worker.running,
        "waiting": worker.waiting,
        "open_sessions": worker.open_sessions,
        "hit_rate": _rates(worker.counts),
        "pools": [{"component": pool.component, "tier": pool.tier, **pool.slots} for pool in worker.pools],
    }


def _rates(counts: Counts) -> dict[str, float | None]:
    tiers = {tier: counts.rate(tier) for tier in TIERS if tier in counts.cached}
    return {"all": counts.rate(), **tiers}


def _head(now: Look, came: Counts | None) -> Text:
    said = Text.assemble((f"{now.kind} ", "bold"), now.url)
    where = " at workers" if now.sessions is None and now.counted_by == WORKERS else ""
    said.append(f"   {_known(now.open_sessions)} open sessions{where}")
    said.append(f", {_known(now.running)} running, {_known(now.waiting)} waiting\n")
    said.append(f"hit rate since {_STARTS[now.counted_by]} {_spelled(now.counts)}")
    if came:
        said.append(f"   lately {_spelled(came)}")
    return said


def _known(number: int | None) -> str:
    return "–" if number is None else str(number)


def _spelled(counts: Counts) -> str:
    """`71.3% (device 60.1%, host 11.2%)`."""
    rate = counts.rate()
    if rate is None:
        return "–"
    tiers = [f"{tier} {counts.rate(tier):.1%}" for tier in TIERS if counts.cached.get(tier)]
    return f"{rate:.1%} of {_count(counts.prompt)} tokens" + (f" ({', '.join(tiers)})" if tiers else "")


def _workers(workers: Iterable[WorkerSeen]) -> Table:
    table = _table("worker", "state", "sessions>", "running>", "waiting>", "hit rate>")
    for worker in workers:
        rate = worker.counts.rate()
        hits = ("–" if rate is None else f"{rate:.1%}") if worker.reached else "not reached"
        counted = map(_known, (worker.open_sessions, worker.running, worker.waiting))
        state = f"{worker.state}, {worker.role}" if worker.role not in ("", "both") else worker.state
        _row(table, worker.id, state, *counted, hits)
    return table


def _pools(pools: Iterable[tuple[WorkerSeen, Pool]], named: bool) -> Table:
    table = _table(*(["worker"] if named else []), "tier", "component", "slots>", "used>", "referenced>", "")
    for worker, pool in pools:
        used = pool.share("used")
        bar = "█" * round(20 * used) + "░" * (20 - round(20 * used))
        cells = (pool.tier, pool.component, _count(pool.slots.get("size", 0)), f"{used:.0%}")
        _row(table, *([worker.id] if named else []), *cells, f"{pool.share('referenced'):.0%}", bar)
    return table


def _sessions(now: Look, lines: int) -> Table:
    at_worker = now.kind == WORKER
    holds = ["device>", "host>"] if at_worker else ["worker"]
    table = _table("session", "state", "idle>", "lease>", "parent", *holds)
    ordered = sorted(now.sessions or (), key=_business)
    for session in ordered[:lines]:
        idle_s, ttl_s = _number(session, "idle_s"), _number(session, "ttl_s")
        where = _held(session) if at_worker else [str(session.get("worker") or "–")]
        name = "/".join(
            filter(None, [str(session.get("tenant") or ""), str(session.get("session_id") or "")])
        )
        lease = _duration(max(0.0, ttl_s - idle_s))
        _row(table, name, _doing(session), _duration(idle_s), lease, str(session.get("parent") or ""), *where)
    left = max(now.open_sessions or 0, len(ordered)) - min(lines, len(ordered))
    if left > 0:
        _row(table, f"… and {left} more")
    return table


def _doing(session: Mapping[str, Any]) -> str:
    paused = session.get("paused")
    if _number(session, "running"):
        return "running"
    if _number(session, "queued"):
        return "queued"
    if _number(session, "in_flight"):
        return "in flight"
    if isinstance(paused, dict):
        expected_s = _number(paused, "expected_s")
        return f"waits for {paused.get('tool', '')}" + (f", {_duration(expected_s)}" if expected_s else "")
    return "idle"


def _business(session: Mapping[str, Any]) -> tuple[bool, float]:
    """Those that do something first, then those that did it last."""
    busy = any(_number(session, name) for name in ("running", "queued", "in_flight"))
    return not busy, _number(session, "idle_s")


def _held(session: Mapping[str, Any]) -> list[str]:
    """Tokens on device and host, of the component that has most of them there."""
    tokens = dict.fromkeys(TIERS, 0.0)
    parts = session.get("held")
    for part in parts if isinstance(parts, list) else ():
        tier = str(part.get("tier", "")) if isinstance(part, dict) else ""
        if tier in tokens:
            tokens[tier] = max(tokens[tier], _number(part, "tokens"))
    return [_count(tokens["device"]), _count(tokens["host"])]


def _number(fields: Mapping[str, Any], name: str) -> float:
    value = fields.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _count(number: float) -> str:
    """`812`, `12.3k`, `4.0M`."""
    for unit in ("", "k", "M", "G"):
        if number < _THOUSAND or unit == "G":
            break
        number /= _THOUSAND
    return f"{number:.1f}{unit}" if unit else f"{number:.0f}"


def _duration(seconds: float) -> str:
    """`4.2s`, `90s`, `3m`, `2.0h`."""
    if seconds < 120:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 3600 else f"{seconds / 3600:.1f}h"


def _table(*columns: str) -> Table:
    """Columns by name; one that ends in `>` is aligned to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold dim", show_header=True)
    for column in columns:
        table.add_column(
            column.removesuffix(">"), justify="right" if column.endswith(">") else "left", no_wrap=True
        )
    return table


def _row(table: Table, *cells: str) -> None:
    """Text as it is: what clients named is no markup, and moves no cursor."""
    table.add_row(*(Text("".join(char if char.isprintable() else "·" for char in cell)) for cell in cells))

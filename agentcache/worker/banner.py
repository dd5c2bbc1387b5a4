"""What a worker says when it starts."""

import shlex

from agentcache.config import TierSettings, without_password
from agentcache.engine.api import ACCOUNTING, EngineInfo, PoolInfo
from agentcache.engine.capability import ReuseClass
from agentcache.stats import CacheStats, PoolUse
from agentcache.types import TierName
from agentcache.views import ABSENT, ExternalStatus
from agentcache.web.reply import encode


def banner(info: EngineInfo, url: str, tiers: str, guarded: bool = False) -> str:
    """Model, components, reuse class, pools, tiers (`tiers_row`), core, and a line to try.

    `guarded`: it takes requests from routers only. Ends with the parsable `listening on URL`.
    """
    rows = {
        "model": _model(info),
        "components": " + ".join(info.components),
        "reuse": _reuse(info),
        "pools": "; ".join(_pool(pool) for pool in info.pools),
        "tiers": tiers,
        "core": info.core,
        "grid": f"pages of {info.page_tokens} tokens, prefill chunks of {info.grid_tokens}",
    }
    if info.engine == ACCOUNTING:
        rows["note"] = "accounting engine: answers are made up or taken from the request, the cache is real"
    if info.random_weights:
        rows["note"] = "the weights are random: answers are noise, caching and timing are real"
    if guarded:
        rows["clients"] = "send requests to the router: this worker takes them from routers only"
    else:
        rows["try"] = _curl(info, url)
    lines = [f"  {name:<11} {text}" for name, text in rows.items() if text]
    return "\n".join(["agentcache worker", *lines, f"listening on {url}"])


def _model(info: EngineInfo) -> str:
    what = "an account of it" if info.engine == ACCOUNTING else f"{info.parameters / 1e6:.1f}M parameters"
    where = "" if info.engine == ACCOUNTING else f" on {info.device}"
    return f"{info.model}, {what}, {info.dtype}{where}, context {info.context_tokens:,} tokens"


def _reuse(info: EngineInfo) -> str:
    if info.reuse == ReuseClass.NOT_REUSABLE:
        return f"{info.reason}; every prompt is computed in full"
    publishing = "; only prompts are published, not generated tokens" if info.prompt_only else ""
    return (info.reason or info.reuse) + publishing


def _pool(pool: PoolInfo) -> str:
    unit = f"pages = {pool.tokens:,} tokens" if pool.tokens else "states"
    return f"{pool.component} {pool.slots:,} {unit}, {pool.bytes / 2**20:,.0f} MiB"


def tiers_row(settings: TierSettings, stats: CacheStats) -> str:
    """What lies below the device: "device only" where nothing does."""
    host = [use for use in stats.pools if use.pool.tier is TierName.HOST]
    below = [_host(settings, host)] if host else []
    if stats.external.state != ABSENT:
        below.append(_external(settings, stats.external, direct=not host))
    return "; ".join(below) or "device only"


def _host(settings: TierSettings, pools: list[PoolUse]) -> str:
    slots = " + ".join(f"{use.pool.component} {use.size:,}" for use in pools)
    return f"host {settings.host_mib or 0:,g} MiB: {slots} slots, {settings.write_policy}"


def _external(settings: TierSettings, status: ExternalStatus, direct: bool) -> str:
    place = f" at {without_password(status.address)}" if status.address else ""
    wait = f"{settings.prefetch_timeout_s:g} s" if settings.prefetch == "timeout" else settings.prefetch
    straight = f", straight to the device, {settings.write_policy}" if direct else ""
    return f"external {status.backend}{place}{straight}, prefetch {wait}"


def _curl(info: EngineInfo, url: str) -> str:
    body = {"model": info.model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16}
    data = shlex.quote(encode(body).decode())
    return f"curl -s {url}/v1/chat/completions -H 'x-agentcache-session: demo' -d {data}"

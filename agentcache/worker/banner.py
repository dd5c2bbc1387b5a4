"""What a worker says when it starts."""

import shlex

from agentcache.engine.api import EngineInfo, PoolInfo
from agentcache.engine.runner import ReuseClass
from agentcache.worker.reply import encode


def banner(info: EngineInfo, url: str) -> str:
    """Model, components, reuse class, pools, core, and a line to try; ends with the parsable `listening on URL`."""
    rows = {
        "model": f"{info.model}, {info.parameters / 1e6:.1f}M parameters, {info.dtype} on {info.device}, "
        f"context {info.context_tokens:,} tokens",
        "components": " + ".join(info.components),
        "reuse": _reuse(info),
        "pools": "; ".join(_pool(pool) for pool in info.pools),
        "core": info.core,
        "grid": f"pages of {info.page_tokens} tokens, prefill chunks of {info.grid_tokens}",
    }
    if info.random_weights:
        rows["note"] = "the weights are random: answers are noise, caching and timing are real"
    lines = [f"  {name:<11} {text}" for name, text in rows.items() if text]
    return "\n".join(
        ["agentcache worker", *lines, f"  try         {_curl(info, url)}", f"listening on {url}"]
    )


def _reuse(info: EngineInfo) -> str:
    if info.reuse == ReuseClass.NOT_REUSABLE:
        return f"{info.reason}; every prompt is computed in full"
    publishing = "; only prompts are published, not generated tokens" if info.prompt_only else ""
    return (info.reason or info.reuse) + publishing


def _pool(pool: PoolInfo) -> str:
    unit = f"pages = {pool.tokens:,} tokens" if pool.tokens else "states"
    return f"{pool.component} {pool.slots:,} {unit}, {pool.bytes / 2**20:,.0f} MiB"


def _curl(info: EngineInfo, url: str) -> str:
    body = {"model": info.model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16}
    data = shlex.quote(encode(body).decode())
    return f"curl -s {url}/v1/chat/completions -H 'x-agentcache-session: demo' -d {data}"

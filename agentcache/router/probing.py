"""Asks a server itself how it is: plain upstreams always, our own workers while the store cannot say."""

import json
from typing import Final

from agentcache.errors import CacheError
from agentcache.router.fleet import Health, Probe
from agentcache.router.upstream import Upstreams

PROBE_S: Final = 1.0


def prober(upstream: Upstreams, wait_s: float = PROBE_S) -> Probe:
    """Alive is whoever answers, if only to refuse; a server that fails is not."""

    async def probe(url: str) -> Health:
        try:
            reply = await upstream.get(f"{url}/v1/models", {}, wait_s)
        except CacheError:
            return Health(alive=False)
        if reply.status >= 500:
            return Health(alive=False)
        return Health(alive=True, models=_models(reply.body) if reply.status == 200 else ())

    return probe


def _models(body: bytes) -> tuple[str, ...]:
    """The names in a list of models; () for anything else."""
    try:
        return tuple(model["id"] for model in json.loads(body)["data"] if isinstance(model["id"], str))
    except (ValueError, KeyError, TypeError):
        return ()

"""Asks a server itself how it is: plain upstreams always, our own workers while the store cannot say."""

import json
from typing import Final

from agentcache.errors import CacheError
from agentcache.router.unheard import Health, Probe
from agentcache.router.upstream import Upstreams

PROBE_S: Final = 1.0


def prober(upstream: Upstreams, wait_s: float = PROBE_S) -> Probe:
    """Alive is whoever answers, if only to refuse; a server that fails, or talks nonsense, is not."""

    async def probe(url: str) -> Health:
        try:
            reply = await upstream.get(f"{url}/v1/models", {}, wait_s)
        except CacheError:
            return Health(alive=False)
        if reply.status >= 500:
            return Health(alive=False)
        return _listing(reply.body) if reply.status == 200 else Health(alive=True)

    return probe


def _listing(body: bytes) -> Health:
    """The health of who answers with this list of models; an answer that is none comes from nobody who is well."""
    try:
        return Health(alive=True, models=tuple(_name(model) for model in json.loads(body)["data"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return Health(alive=False)


def _name(model: object) -> str:
    """Errors: ValueError."""
    name = model.get("id") if isinstance(model, dict) else None
    if not isinstance(name, str):
        raise ValueError("no model")
    return name

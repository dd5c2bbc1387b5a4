"""How requests that a benchmark asks must end."""

from agentcache.engine.api import Finished, FinishReason
from agentcache.errors import CacheError, Kind

BY_LENGTH = frozenset({FinishReason.LENGTH})
OF_ITSELF = BY_LENGTH | {FinishReason.STOP}


def complete(end: Finished, reasons: frozenset[FinishReason] = BY_LENGTH) -> Finished:
    """The same. Errors: the request's own; ENGINE_FAILED when it was cut short."""
    if end.error:
        raise end.error
    if end.reason not in reasons:
        raise CacheError(Kind.ENGINE_FAILED, f"request {end.request_id} ended with {end.reason}")
    return end

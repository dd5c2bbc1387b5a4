"""A prompt that is computed for another worker: what the engine is asked, and what the router is answered."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from agentcache.engine.api import GREEDY, Admitted, GenerateRequest
from agentcache.web.reply import Json, StreamEvent
from agentcache.web.status import refuse
from agentcache.wire import STORED
from agentcache.worker.answers import Shape, tier_details
from agentcache.worker.reading import Outcome, Piece


def handed_over(request: GenerateRequest) -> GenerateRequest:
    """The same prompt, of which nothing is said: the one token that ends every prompt goes nowhere.

    Errors  CacheError(BAD_REQUEST) for one that leaves nothing behind
    """
    if not request.reuse:
        raise refuse(
            "a request without reuse leaves nothing that another worker could load", "agentcache.reuse"
        )
    return replace(
        request,
        max_tokens=1,
        sampling=GREEDY,
        stop_tokens=(),
        digest_logits=False,
        output=None,
        hand_over=True,
    )


class PrefillShape:
    """The answer in one piece: how many tokens of the prompt the other worker can load."""

    tail = b""

    def opening(self, admitted: Admitted, prompt_tokens: int) -> list[StreamEvent]:
        return []

    def chunks(self, piece: Piece) -> list[StreamEvent]:
        return []

    def endings(self, outcome: Outcome, extension: Json, include_usage: bool) -> list[StreamEvent]:
        return []

    def whole(self, pieces: Iterable[Piece], outcome: Outcome, extension: Json) -> Json:
        return {
            "object": "agentcache.prefill",
            "prompt_tokens": outcome.prompt_tokens,
            "cached_tokens": tier_details(outcome.cached),
            STORED: outcome.stored_tokens,
        }


PREFILL_SHAPE: Final[Shape] = PrefillShape()

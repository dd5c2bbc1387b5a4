"""What is noted of one generating request on its way: for its log line, the metrics and its spans."""

from dataclasses import dataclass
from typing import Final

from agentcache.engine.api import Admitted, GenerateRequest
from agentcache.stats import CachedTokens
from agentcache.types import SessionState
from agentcache.worker.metrics import Facts
from agentcache.worker.reading import NOTHING_CACHED, Outcome

NOT_ASKED: Final = GenerateRequest("", (), 0)
NOT_ADMITTED: Final = Admitted("", NOTHING_CACHED, 0, None, None, 0, SessionState.NONE)


@dataclass(slots=True)
class Tally:
    """One request, as far as it came. Times in nanoseconds of the clock; 0: never.

    `first_ns`: the first piece of its answer was sent; `first_token_ns`: since the engine took it in, 0 where it had
    not ended when the answer had.
    """

    arrived_ns: int
    request: GenerateRequest = NOT_ASKED
    admitted: Admitted = NOT_ADMITTED
    why: str = ""
    status: int = 500
    reason: str = ""
    completion_tokens: int = 0
    first_ns: int = 0
    first_token_ns: int = 0

    @property
    def session(self) -> str:
        return self.admitted.session or ""

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.tokens)

    @property
    def cached(self) -> CachedTokens:
        return self.admitted.cached

    def ended(self, outcome: Outcome) -> None:
        self.status = 200
        self.reason = outcome.reason
        self.completion_tokens = outcome.completion_tokens
        self.first_token_ns = outcome.first_token_ns

    def facts(self, route: str, request_id: str, now_ns: int) -> Facts:
        return Facts(
            route=route,
            status=self.status,
            generating=True,
            request_id=request_id,
            reason=self.reason,
            session=self.session,
            why=self.why,
            prompt_tokens=self.prompt_tokens,
            cached=self.cached,
            completion_tokens=self.completion_tokens,
            first_token_s=(self.first_ns - self.arrived_ns) / 1e9 if self.first_ns else 0.0,
            total_s=(now_ns - self.arrived_ns) / 1e9,
        )

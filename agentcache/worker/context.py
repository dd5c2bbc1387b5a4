"""What the handlers of one worker share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from agentcache.clock import Clock
from agentcache.config import TierSettings
from agentcache.engine.api import EngineInfo
from agentcache.engine.thread import EngineThread
from agentcache.engine.tokenizer import Rendered
from agentcache.errors import CacheError, Kind
from agentcache.web.retention import Leases
from agentcache.worker.kv_publisher import NoPublisher, Publisher
from agentcache.worker.metrics import WorkerMetrics
from agentcache.worker.options import UnknownFields, log_unknown
from agentcache.worker.reading import Decoder
from agentcache.worker.session_publisher import NO_SESSION_PUBLISHER, SessionPublisher
from agentcache.worker.tagged import OPEN_GATE, Gate

DEFAULT_MAX_TOKENS: Final = 256
"""Generated tokens when a request does not say; less where the context ends earlier."""


class Tokenizes(Protocol):
    """What a worker asks of its model's tokenizer, from several threads; `engine.tokenizer.ChatTokenizer` says how."""

    bytes_per_token: int
    stop_tokens: tuple[int, ...]
    special_tokens: tuple[int, ...]

    def encode(self, text: str, at_most: int = ...) -> tuple[int, ...]: ...

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = ...,
        add_generation_prompt: bool = ...,
        at_most: int = ...,
        heads: Sequence[int] = ...,
    ) -> Rendered: ...

    def spell(self, tokens: Sequence[int]) -> str: ...

    def detokenizer(self) -> Decoder: ...


@dataclass(slots=True)
class Worker:
    """One engine behind HTTP. `now_s` is Unix time for answers, `clock` the engine's; `new_id` makes ids.

    `leases`: those that requests can have for their sessions.
    """

    thread: EngineThread
    tokenizer: Tokenizes
    info: EngineInfo
    body_limit_bytes: int
    tiers: TierSettings
    clock: Clock
    now_s: Callable[[], float]
    new_id: Callable[[], str]
    events: Publisher = field(default_factory=NoPublisher)
    happenings: SessionPublisher = NO_SESSION_PUBLISHER
    metrics: WorkerMetrics = field(default_factory=WorkerMetrics)
    unknown: UnknownFields = field(default_factory=lambda: UnknownFields(log_unknown))
    gate: Gate = OPEN_GATE
    leases: Leases = field(default_factory=Leases)
    draining: bool = False

    def require_open(self) -> None:
        """Errors: CacheError(SHUTTING_DOWN) once the worker drains."""
        if self.draining:
            raise CacheError(Kind.SHUTTING_DOWN, "the worker is shutting down; send this to another one")

    @property
    def prompt_bytes_max(self) -> int:
        """No longer text, in UTF-8 bytes, fits the context; 0: nobody can say."""
        return self.info.context_tokens * self.tokenizer.bytes_per_token

    def max_tokens(self, asked: int, prompt_tokens: int) -> int:
        """What to generate at most; the engine refuses what does not fit the context."""
        return asked or max(1, min(DEFAULT_MAX_TOKENS, self.info.context_tokens - prompt_tokens))

"""Plain values between the engine and whoever drives it (worker, replay, examples): requests in, events out."""

from dataclasses import dataclass, field
from enum import StrEnum

from agentcache.errors import CacheError
from agentcache.stats import CachedTokens as CachedTokens
from agentcache.types import ComponentName, Miss, SessionId, SessionState, SessionTag
from agentcache.why import ALL_THERE, Finding

TRANSFORMERS, ACCOUNTING = "transformers", "accounting"
"""The setting's names of the engine that computes with a model, and of the one that computes nothing."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. Temperature 0 is greedy; `seed` None lets the engine draw one."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None


GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One turn to compute.

    `tokens` is the whole prompt; `user_end_tokens` the length of its part up to and including the last user message
    (0: unknown), where an edited turn lands. A token of `stop_tokens` ends the turn and is not emitted. With
    `reuse` False the request runs on the same chunk grid without reading or writing the cache (cold comparison).
    `digest_logits` asks for `Finished.first_logits`. `output` is what the accounting engine will say, to its end or to
    `max_tokens` (None: it makes something up); one that computes refuses it. `marks` are lengths of parts that others
    may go on from, as the client says: a boundary is published below each, where it fits. `hand_over`: what it makes
    reusable goes to the external tier at once, and its end is told when that is there (`Finished.stored_tokens`).
    """

    request_id: str
    tokens: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = GREEDY
    stop_tokens: tuple[int, ...] = ()
    session: SessionTag | None = None
    tenant_salt: str = ""
    user_end_tokens: int = 0
    reuse: bool = True
    priority: int = 0
    digest_logits: bool = False
    output: tuple[int, ...] | None = None
    marks: tuple[int, ...] = ()
    hand_over: bool = False


class FinishReason(StrEnum):
    """Why a turn ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to a submit: queued, and what its session's state is."""

    request_id: str
    session: SessionId | None
    generation: int
    state: SessionState


@dataclass(frozen=True, slots=True)
class Course:
    """When a request came how far, in nanoseconds of the engine's clock; 0: never.

    Taken in; with a seat free, but its prefix still on its way from outside; out of the queue; matched; its prefix on
    the device and its slots there.
    """

    submitted_ns: int = 0
    awaited_ns: int = 0
    begun_ns: int = 0
    matched_ns: int = 0
    started_ns: int = 0


@dataclass(frozen=True, slots=True)
class Admitted:
    """The request's computation begins: `cached` is restored, by tier; `full_tokens` is what FULL alone had.

    `miss` says what stopped the vote before the last candidate (None: nothing did); `parent_ignored` that the session's
    named parent is unknown, closed, malformed or not the one on record. `boundaries` is where it will publish, or where
    what was cached can be gone on from at a mark of the client, and `found` why no more was cached; `course` is how it
    came here, and makes no two of them different.
    """

    request_id: str
    cached: CachedTokens
    full_tokens: int
    miss: Miss | None
    session: SessionId | None
    generation: int
    state: SessionState
    parent_ignored: bool = False
    boundaries: tuple[int, ...] = ()
    found: Finding = ALL_THERE
    course: Course = field(default=Course(), compare=False)

    @property
    def cached_tokens(self) -> int:
        """Restored tokens, of all tiers."""
        return self.cached.total

    @property
    def written_tokens(self) -> int:
        """Tokens of the prompt that it will publish, beyond the restored ones."""
        return max(0, max(self.boundaries, default=0) - self.cached.total)


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token; `top_margin` is the gap between the two largest logits it was chosen from."""

    request_id: str
    token: int
    top_margin: float


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a request, exactly once for each accepted one.

    `completion_tokens` counts the emitted tokens, `first_token_ns` runs from submit to the first one (0: none), and
    `prefill_ns` is the part of it in which the runner computed the prompt, up to its logits on the CPU.
    `first_logits` is the sha256 of the first token's logits as float32 bytes when the request asked for it, else "".
    `error` is set iff the reason is ERROR. `stored_tokens` of a path that was handed over can be loaded by others.
    """

    request_id: str
    reason: FinishReason
    prompt_tokens: int
    cached: CachedTokens
    completion_tokens: int
    first_token_ns: int
    error: CacheError | None = None
    first_logits: str = ""
    prefill_ns: int = 0
    stored_tokens: int = 0

    @property
    def cached_tokens(self) -> int:
        """Restored tokens, of all tiers."""
        return self.cached.total


Event = Admitted | Token | Finished


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """A device pool: `tokens` is how many tokens its slots cover (0 for states)."""

    component: ComponentName
    slots: int
    tokens: int
    bytes: int


class Answers(StrEnum):
    """What an engine's answers are worth."""

    MODEL = "model"
    NOISE = "noise"  # computed with random weights
    MADE_UP = "made up"  # not computed at all


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine serves and with what; for the start banner and /v1/models.

    `reuse` and `reason` are the load-time probe's verdict. `core` is the tree core that runs, by the setting's name.
    """

    model: str
    components: tuple[str, ...]
    reuse: str
    reason: str
    prompt_only: bool
    context_tokens: int
    vocab_size: int
    page_tokens: int
    grid_tokens: int
    dtype: str
    device: str
    core: str
    parameters: int
    answers: Answers
    pools: tuple[PoolInfo, ...]

    @property
    def engine(self) -> str:
        """What computes, by the setting's name."""
        return ACCOUNTING if self.answers is Answers.MADE_UP else TRANSFORMERS

    @property
    def random_weights(self) -> bool:
        return self.answers is Answers.NOISE


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """Counts since the start (`*_total`) and now; for /metrics and placement.

    `prefill_tokens_total` are computed prompt tokens, `cached_tokens_total` restored ones, each request counted
    once, when admitted. `generated_tokens_total` are all tokens said; `decode_tokens_total` leaves out each request's
    first, which its prefill gives.
    """

    waiting: int
    running: int
    admitted_total: int
    prefill_tokens_total: int
    cached_tokens_total: int
    decode_tokens_total: int
    generated_tokens_total: int
    finished_total: dict[str, int]

"""The one exception of agentcache: a broken promise, with a closed kind.

Misses, full pools, late or absent data are values, never errors.
"""

from enum import StrEnum


class Kind(StrEnum):
    """What was broken. Closed: tests compare this list with the kinds that tests provoke."""

    STALE_BOUNDARY = "stale_boundary"  # another core's, or data was dropped since it was issued: match again
    LEASE_REUSED = "lease_reused"  # released twice, or issued by another core
    UNKNOWN_JOB = "unknown_job"  # committed twice, or planned by another core
    UNKNOWN_COMPONENT = "unknown_component"
    UNALIGNED = "unaligned"  # a length is not a multiple of the page (or of the grid)
    BAD_INSERT = "bad_insert"  # offered or landed slots do not fit: the key, the job, the tier, or each other
    NOT_RESIDENT = "not_resident"  # lock of a boundary whose region is not on the device
    IN_USE = "in_use"  # clear while leases or jobs are outstanding; any call while another runs
    SLOT_MISUSE = "slot_misuse"  # freed twice, or never allocated
    BAD_CONFIG = "bad_config"
    BAD_SESSION_ID = "bad_session_id"  # empty, over 256 bytes, or not printable
    SESSION_UNKNOWN = "session_unknown"
    SESSION_CLOSED = "session_closed"  # fenced or strict request for a closed session
    SESSION_STALE = "session_stale"  # generation is not the current one
    EMPTY_PROMPT = "empty_prompt"
    PROMPT_TOO_LONG = "prompt_too_long"  # prompt + max_tokens over the model's context
    OVER_POOL = "over_pool"  # one request needs more slots than a pool has
    BAD_REQUEST = "bad_request"  # wrong type, a number too large, unsupported field, malformed body
    BODY_TOO_LARGE = "body_too_large"
    QUEUE_FULL = "queue_full"
    SHUTTING_DOWN = "shutting_down"
    ENGINE_FAILED = "engine_failed"  # a step of the engine failed for this request: see the log
    UNSUPPORTED_MODEL = "unsupported_model"
    BAD_CHECKPOINT = "bad_checkpoint"  # a model directory that is missing files
    BAD_TRACE = "bad_trace"  # a trajectory file that cannot be read
    STORE_FAILED = (
        "store_failed"  # an external store did not answer, or refused; costs a hit, never an answer
    )
    UNAUTHORIZED = "unauthorized"  # no API key, a wrong one, or a tag that is not genuine
    SESSION_LIMIT = "session_limit"  # the tenant has as many open sessions as it may
    NO_WORKER = "no_worker"  # no worker that is alive and fits takes this request now
    UPSTREAM_FAILED = "upstream_failed"  # a worker did not answer, or not with HTTP
    UNREACHABLE = "unreachable"  # no worker answers at the URL of a client


class CacheError(Exception):
    """A broken promise: `kind` says which, the message says what to do, `facts` are plain values."""

    def __init__(self, kind: Kind, message: str, **facts: object) -> None:
        super().__init__(message)
        self.kind = kind
        self.facts = facts

    def __reduce__(self) -> tuple[object, ...]:
        """It crosses processes whole."""
        return _again, (self.kind, self.message, self.facts)

    @property
    def message(self) -> str:
        return str(self.args[0])

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value!r}" for name, value in self.facts.items())
        return f"{self.kind.value}: {self.message}" + (f" ({facts})" if facts else "")


def _again(kind: Kind, message: str, facts: dict[str, object]) -> CacheError:
    return CacheError(kind, message, **facts)

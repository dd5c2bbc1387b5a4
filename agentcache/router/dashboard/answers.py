"""What workers say, as far as the page shows it. Whatever is not said is as if it were empty; nothing is negative."""

from http import HTTPStatus
from typing import Annotated, Final, TypeVar

import msgspec

from agentcache.errors import CacheError, Kind
from agentcache.router.upstream import Reply

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]
Text = Annotated[str, msgspec.Meta(max_length=1000)]
T = TypeVar("T")
LONGEST_BYTES: Final = 4 << 20


class Slots(msgspec.Struct, frozen=True):
    """Of one pool: free + cached + leased + in_flight = size; protected and referenced are parts of cached."""

    size: Count = 0
    free: Count = 0
    cached: Count = 0
    leased: Count = 0
    in_flight: Count = 0
    protected: Count = 0
    referenced: Count = 0


class Pool(msgspec.Struct, frozen=True):
    slots: Slots = Slots()
    slot_bytes: Count = 0


class External(msgspec.Struct, frozen=True):
    backend: Text = ""
    state: Text = ""
    objects: Count | None = None
    used_bytes: Count | None = None
    capacity_bytes: Count | None = None


class Cache(msgspec.Struct, frozen=True):
    """`GET /v1/cache`. Tokens are counted since the worker's start."""

    page_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**31)] = 1
    eviction_policy: Text = ""
    tiers: dict[str, dict[str, Pool]] = {}
    external: External = External()
    prompt_tokens: Count = 0
    cached_tokens: dict[str, Count] = {}


class Branch(msgspec.Struct, frozen=True):
    """A path without forks: tokens from `start` to `end`, those beyond `reusable` out of reach."""

    parent: Count | None = None
    start: Count = 0
    end: Count = 0
    reusable: Count = 0
    referenced_pages: Count = 0
    running_pages: Count = 0
    markers: Count = 0
    idle_s: float = 0.0
    resident: dict[str, dict[str, Count]] = {}


class Tree(msgspec.Struct, frozen=True):
    """`GET /v1/cache/tree`: each branch behind its parent."""

    branches: tuple[Branch, ...] = ()
    more: bool = False


class Turn(msgspec.Struct, frozen=True):
    """One turn. `at`: Unix seconds when it began; `diverged_at`: the first token that the turn before had not."""

    at: Seconds = 0.0
    prompt_tokens: Count = 0
    cached_tokens: dict[str, Count] = {}
    why: Text = ""
    diverged_at: Count | None = None


class Wait(msgspec.Struct, frozen=True):
    """What a session waits for; `expected_s` from when the wait began."""

    state: Text = ""
    kind: Text = ""
    since_s: Seconds | None = None
    expected_s: Seconds | None = None


class Part(msgspec.Struct, frozen=True):
    """What is held of one component on one tier."""

    component: Text = ""
    tier: Text = ""
    bytes: Count = 0


class Session(msgspec.Struct, frozen=True):
    """`GET /v1/sessions/ID` of a worker."""

    state: Text = ""
    markers: Count = 0
    held: tuple[Part, ...] = ()
    wait: Wait | None = None
    turns: tuple[Turn, ...] = ()


NO_CACHE: Final = Cache()
NO_TREE: Final = Tree()
NO_SESSION: Final = Session()


def read(reply: Reply, kind: type[T]) -> T:
    """Errors: CacheError(UPSTREAM_FAILED) for what cannot be shown."""
    if reply.status != HTTPStatus.OK:
        raise CacheError(Kind.UPSTREAM_FAILED, f"it answered {reply.status}")
    if len(reply.body) > LONGEST_BYTES:
        raise CacheError(Kind.UPSTREAM_FAILED, "its answer is too long")
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise CacheError(Kind.UPSTREAM_FAILED, "its answer makes no sense") from None

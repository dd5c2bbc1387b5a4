"""Session events as they are published, on a socket of their own: a strict reader of placement events refuses a whole
batch for one type that it does not know.

Framing and batches are those of `kv_events.py`: `[topic, sequence, payload]`, the payload msgpack `[ts, events, 0]`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from agentcache.errors import CacheError, Kind
from agentcache.ids import unscoped
from agentcache.session_events import Happening, SessionEvent

TOPIC: Final = b"agentcache-sessions@"


class _Said(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """What every event names. `tenant` is "" where there is no router."""

    session_id: str
    generation: int
    tenant: str = ""


class SessionOpened(_Said, frozen=True):
    """A generation is current from now on."""

    parent_session_id: str | None = None


class SessionPaused(_Said, frozen=True):
    """It waits for a tool; `expected_s` 0: for how long is not known."""

    tool: str = ""
    expected_s: float = 0.0


class SessionResumed(_Said, frozen=True):
    """It goes on, by its next request or because its client says so."""


class SessionExpired(_Said, frozen=True):
    """Its idle lease ran out."""


class SessionClosed(_Said, frozen=True):
    """It is closed through this generation."""


class SessionMoved(_Said, frozen=True):
    """Another worker has it."""


class SessionEvicted(_Said, frozen=True):
    """What it would go on from has left this medium, or a part of it. `lost`: the tiers that do not have all of it any
    more: `device`, and `host` where host memory has not either."""

    component: str
    medium: str = "GPU"
    lost: tuple[str, ...] = ("device",)


class SessionEventsLost(msgspec.Struct, tag=True, frozen=True):
    """So many events before this one were not published; ask for the sessions as they are."""

    count: int


SessionTold = (
    SessionOpened
    | SessionPaused
    | SessionResumed
    | SessionExpired
    | SessionClosed
    | SessionMoved
    | SessionEvicted
    | SessionEventsLost
)


class SessionBatch(msgspec.Struct, array_like=True, frozen=True):
    """What happened together; `ts` is Unix time in seconds."""

    ts: float
    events: list[SessionTold]
    data_parallel_rank: int | None = 0


def session_topic(incarnation: str) -> bytes:
    """The first frame of each message of a worker's incarnation."""
    return TOPIC + incarnation.encode()


def told(event: SessionEvent, routed: bool) -> SessionTold:
    """An event as others read it. `routed`: there is a router, and ids are those of `ids.scoped`."""
    tenant, own = unscoped(event.session) if routed else ("", event.session)
    said: dict[str, Any] = {"session_id": own, "generation": event.generation, "tenant": tenant}
    if event.what is Happening.OPENED:
        parent = unscoped(event.parent)[1] if event.parent and routed else event.parent
        return SessionOpened(**said, parent_session_id=parent)
    if event.what is Happening.PAUSED:
        return SessionPaused(**said, tool=event.tool, expected_s=event.expected_s)
    if event.what is Happening.EVICTED:
        lost = tuple(str(tier) for tier in event.lost)
        return SessionEvicted(**said, component=event.component or "", lost=lost)
    return _PLAIN[event.what](**said)


def encode_sessions(batch: SessionBatch) -> bytes:
    """The payload of one message."""
    return msgspec.msgpack.encode(batch)


def decode_sessions(payload: bytes) -> SessionBatch:
    """Read a payload. Errors: CacheError(BAD_REQUEST) for what is none, or has an event of another type."""
    try:
        return msgspec.msgpack.decode(payload, type=SessionBatch)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CacheError(Kind.BAD_REQUEST, f"this is no batch of session events: {error}") from None


_PLAIN: Final[Mapping[Happening, Callable[..., SessionTold]]] = {
    Happening.RESUMED: SessionResumed,
    Happening.EXPIRED: SessionExpired,
    Happening.CLOSED: SessionClosed,
    Happening.MOVED: SessionMoved,
}

"""Sessions as the worker's API shows them."""

from collections.abc import Iterable
from dataclasses import asdict

from agentcache.cache import Closed, Holding, SessionView
from agentcache.ids import unscoped
from agentcache.types import SessionId
from agentcache.web.reply import Json
from agentcache.worker.tagged import EVERYBODY, Grant


def view_json(view: SessionView, grant: Grant = EVERYBODY) -> Json:
    """A session as the API shows it; operators see whose it is. Times in seconds."""
    paused = {"tool": view.paused.tool, "expected_s": view.paused.expected_s} if view.paused else None
    return {
        "object": "session",
        **_named(view.session, grant),
        "state": str(view.state),
        "generation": view.generation,
        "closed_through": view.closed_through,
        "parent": own_name(view.parent, grant) if view.parent else None,
        "queued": view.queued,
        "running": view.running,
        "idle_s": view.idle_s,
        "ttl_s": view.ttl_s,
        "on_close": str(view.on_close),
        "paused": paused,
        "markers": view.markers,
        "held": held_json(view.held),
    }


def held_json(held: Iterable[Holding]) -> list[Json]:
    """Tokens, slots and bytes by component and tier."""
    return [{**asdict(part), "tier": str(part.tier)} for part in held]


def closed_json(closed: Closed, grant: Grant = EVERYBODY) -> Json:
    """The answer to a close, with those of its descendants (`more`: not all); `mode` is what was done."""
    return {
        "object": "session.closed",
        **_named(closed.session, grant),
        "state": str(closed.state),
        "generation": closed.generation,
        "mode": str(closed.mode),
        "markers": closed.markers,
        "released": held_json(closed.released),
        "children": [closed_json(child, grant) for child in closed.children],
        "more": closed.more,
    }


def _named(session: SessionId, grant: Grant) -> Json:
    whose: Json = {"tenant": unscoped(session)[0]} if grant.operator else {}
    return {**whose, "session_id": own_name(session, grant)}


def own_name(session: SessionId, grant: Grant) -> str:
    """What whoever asks calls a session."""
    return unscoped(session)[1] if grant.operator else grant.own(session)

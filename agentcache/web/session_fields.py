"""The fields of `/v1/sessions`, read alike by routers and workers: what one takes the other takes."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from starlette.requests import Request

from agentcache.types import ReleaseMode
from agentcache.web.fields import Fields
from agentcache.web.headers import RequestHeaders
from agentcache.web.naming import named_id, read_generation
from agentcache.web.status import refuse
from agentcache.wire import GENERATION

MIN_TTL_S: Final = 0.001
MAX_S: Final = 1e9
MAX_TOOL_BYTES: Final = 256
ON_CLOSE: Final = (ReleaseMode.RELEASE, ReleaseMode.DEMOTE, ReleaseMode.DROP)


class Pause(NamedTuple):
    """What a session waits for, and for how many seconds; 0: not said."""

    tool: str
    expected_s: float


def parent_of(fields: Fields) -> str:
    """The parent by either name, "" for none. Errors: CacheError(BAD_REQUEST) if they differ."""
    names = [name for name in ("parent", "parent_session_id") if fields.has(name)]
    named = {named_id(fields.text(name), name) for name in names}
    if len(named) > 1:
        raise refuse("parent and parent_session_id name different sessions; send one", "parent_session_id")
    return "".join(named)


def fork_of(fields: Fields) -> bool:
    """Whether a session inherits its parent's path. Errors: CacheError(BAD_REQUEST) without a parent."""
    if not fields.flag("fork"):
        return False
    if not parent_of(fields):
        raise refuse("a fork goes on from its parent's path: name the parent in parent_session_id", "fork")
    return True


def ttl_of(fields: Fields, name: str = "ttl_s") -> float:
    """The seconds that a session may idle, 0 where they are not sent. Errors: CacheError(BAD_REQUEST)."""
    return fields.number(name, 0.0, MIN_TTL_S, MAX_S) if fields.has(name) else 0.0


def on_close_of(fields: Fields) -> ReleaseMode:
    """How a session is closed unless it is said then. Errors: CacheError(BAD_REQUEST)."""
    named = fields.text("on_close", ReleaseMode.RELEASE)
    if named not in ON_CLOSE:
        raise refuse(f"on_close must be one of {', '.join(ON_CLOSE)}", "on_close")
    return ReleaseMode(named)


def pause_of(fields: Fields) -> Pause:
    """What a session waits for. Errors: CacheError(BAD_REQUEST)."""
    tool = fields.text("tool", "tool")
    if not tool.isprintable() or not 1 <= len(tool.encode()) <= MAX_TOOL_BYTES:
        raise refuse(f"tool must be 1 to {MAX_TOOL_BYTES} bytes of printable text", "tool")
    return Pause(tool, fields.number("expected_s", 0.0, 0.0, MAX_S))


def mode_of(query: Mapping[str, str]) -> ReleaseMode | None:
    """How to close; None: as each session says itself. Errors: CacheError(BAD_REQUEST)."""
    named = query.get("mode", "")
    if named and named not in list(ReleaseMode):
        raise refuse(f"mode must be one of {', '.join(ReleaseMode)}", "mode")
    return ReleaseMode(named) if named else None


def fence_of(request: Request, said: str) -> int | None:
    """The generation that is insisted on, as `said` or by header. Errors: CacheError(BAD_REQUEST) if they differ."""
    by_header = RequestHeaders(request.scope["headers"]).text(GENERATION)
    named = {read_generation(said, "generation"), read_generation(by_header, GENERATION)} - {None}
    if len(named) > 1:
        raise refuse(f"generation and the header {GENERATION} differ; send one", "generation")
    return next(iter(named), None)


def fence_in(request: Request, fields: Fields) -> int | None:
    """The same, by a field of the body or by header."""
    return fence_of(request, str(fields.whole("generation", 0, 0)) if fields.has("generation") else "")

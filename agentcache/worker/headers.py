"""Request headers in, answer headers out: which session a request belongs to, and what the cache did for it."""

from dataclasses import dataclass
from typing import Final

from agentcache.engine.api import Admitted
from agentcache.errors import CacheError
from agentcache.ids import checked_id
from agentcache.types import SessionId, SessionTag
from agentcache.web.fields import Fields
from agentcache.web.headers import RawHeaders, RequestHeaders
from agentcache.web.status import refuse
from agentcache.wire import GENERATION, PARENT, SESSION, STATE, STRICT, SUPERSEDED, WHY

MAX_GENERATION: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a request speaks for; `parent_ignored` is told to the client, a bad parent voids nothing."""

    tag: SessionTag | None
    parent_ignored: bool = False


def read_identity(headers: RequestHeaders, fields: Fields) -> Identity:
    """The session tag of a request, from its headers and the body's `session_id`.

    Errors   CacheError(BAD_REQUEST) when header and body differ, or a fence comes without a session;
             CacheError(BAD_SESSION_ID)
    """
    named, in_body = headers.text(SESSION), fields.text("session_id")
    if named and in_body and named != in_body:
        raise refuse(f"session_id and the header {SESSION} name different sessions", "session_id")
    session = named or in_body
    generation = read_generation(headers.text(GENERATION), GENERATION)
    if not (headers.has(SESSION) or fields.has("session_id")):
        return _anonymous(generation)
    parent = _parent(headers.text(PARENT))
    tag = SessionTag(
        session=session_id(session, SESSION if headers.has(SESSION) else "session_id"),
        generation=generation,
        parent=parent,
        strict=headers.flag(STRICT, default=False),
        superseded=headers.flag(SUPERSEDED, default=False),
    )
    return Identity(tag, parent_ignored=headers.has(PARENT) and not parent)


def read_generation(text: str, param: str) -> int | None:
    """A generation as sent, None when not sent. Errors: CacheError(BAD_REQUEST)."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MAX_GENERATION):
        raise refuse(f"{param} must be a generation: a whole number that the worker answered", param)
    return int(text)


def session_id(text: str, param: str) -> SessionId:
    """The id, if it is one. Errors: CacheError(BAD_SESSION_ID) that names `param`."""
    try:
        return checked_id(text)
    except CacheError as error:
        raise CacheError(error.kind, error.message, param=param) from None


def answer_headers(admitted: Admitted, identity: Identity, request_id: str, why: str) -> RawHeaders:
    """What every answer says about its session and its hit."""
    said = {
        "x-request-id": request_id,
        STATE: str(admitted.state),
        WHY: why,
    }
    if admitted.session:
        said |= {SESSION: admitted.session, GENERATION: str(admitted.generation)}
    if identity.parent_ignored or admitted.parent_ignored:
        said[PARENT] = "ignored"
    return [(name.encode(), value.encode("utf-8")) for name, value in said.items()]


def why_not_deeper(admitted: Admitted) -> str:
    """What stopped the vote, in a few words: `no_checkpoint MAMBA at 4096`."""
    miss = admitted.miss
    if miss:
        return f"{miss.reason} {miss.component} at {miss.position}"
    return "full hit" if admitted.cached.total else "prompt too short"


def _anonymous(generation: int | None) -> Identity:
    if generation is not None:
        raise refuse(f"{GENERATION} needs a session: name one in {SESSION}", GENERATION)
    return Identity(None)


def _parent(text: str) -> SessionId | None:
    """The parent named by header; a malformed one is as good as none."""
    try:
        return checked_id(text)
    except CacheError:
        return None

"""Request headers in, answer headers out: which session a request belongs to, and what the cache did for it."""

from dataclasses import dataclass

from agentcache.engine.api import Admitted
from agentcache.errors import CacheError
from agentcache.ids import checked_id, scoped
from agentcache.types import SessionId, SessionTag
from agentcache.web.fields import Fields
from agentcache.web.headers import RawHeaders, RequestHeaders
from agentcache.web.naming import named_id, read_expected, read_generation
from agentcache.web.reply import REQUEST_ID
from agentcache.web.status import refuse
from agentcache.why import Finding, Why
from agentcache.wire import (
    CACHED,
    EXPECTED,
    FORK,
    GENERATION,
    PARENT,
    PROMPT,
    SESSION,
    STATE,
    STRICT,
    SUPERSEDED,
    WHY,
    Tag,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a request speaks for; `parent_ignored` is told to the client, a bad parent voids nothing.

    `salt` parts tenants. `request_id` is the router's, "" without one.
    """

    tag: SessionTag | None
    parent_ignored: bool = False
    salt: str = ""
    request_id: str = ""


def routed_identity(tag: Tag) -> Identity:
    """Whom a router says that a request speaks for: its word is all that counts."""
    if not tag.session:
        return Identity(None, salt=tag.salt, request_id=tag.request_id)
    issued = SessionTag(
        session=scoped(tag.tenant, SessionId(tag.session)),
        generation=tag.generation,
        parent=scoped(tag.tenant, SessionId(tag.parent)) if tag.parent else None,
        strict=tag.hints.strict,
        superseded=tag.hints.superseded,
        issued=True,
        placement=tag.placement,
        epoch=tag.epoch,
        expected_s=tag.hints.expected_s,
        ttl_s=tag.hints.ttl_s,
        fork=tag.hints.fork,
    )
    return Identity(issued, salt=tag.salt, request_id=tag.request_id)


def read_identity(headers: RequestHeaders, fields: Fields) -> Identity:
    """The session tag of a request without a router, from its headers and the body's `session_id`.

    Errors   CacheError(BAD_REQUEST) when header and body differ, or a fence comes without a session;
             CacheError(BAD_SESSION_ID)
    """
    named, in_body = headers.text(SESSION), fields.text("session_id")
    if named and in_body and named != in_body:
        raise refuse(f"session_id and the header {SESSION} name different sessions", "session_id")
    session = named or in_body
    generation = read_generation(headers.text(GENERATION), GENERATION)
    if not (headers.has(SESSION) or fields.has("session_id")):
        return _anonymous(generation, fields)
    parent = _parent(headers.text(PARENT))
    tag = SessionTag(
        session=named_id(session, SESSION if headers.has(SESSION) else "session_id"),
        generation=generation,
        parent=parent,
        strict=headers.flag(STRICT, default=False),
        superseded=headers.flag(SUPERSEDED, default=False),
        fork=headers.flag(FORK, default=False),
        expected_s=read_expected(headers.text(EXPECTED), EXPECTED),
    )
    ignored = headers.has(PARENT) and not parent
    return Identity(tag, parent_ignored=ignored, salt=fields.text("cache_salt"))


def answer_headers(
    admitted: Admitted, identity: Identity, request_id: str, why: str, prompt_tokens: int
) -> RawHeaders:
    """What every answer says about its session and its hit."""
    said = {
        REQUEST_ID: identity.request_id or request_id,
        STATE: str(admitted.state),
        WHY: why,
        CACHED: str(admitted.cached_tokens),
        PROMPT: str(prompt_tokens),
    }
    if admitted.session:
        said |= {SESSION: admitted.session, GENERATION: str(admitted.generation)}
    if identity.parent_ignored or admitted.parent_ignored:
        said[PARENT] = "ignored"
    return [(name.encode(), value.encode("utf-8")) for name, value in said.items()]


def why_not_deeper(admitted: Admitted) -> str:
    """What ended the hit, in a few words: `no_checkpoint MAMBA at 4096`."""
    return why_text(admitted.found, admitted.cached.total)


def why_text(found: Finding, cached_tokens: int) -> str:
    """The same words in answers, logs and histories."""
    if found.why is Why.NOTHING:
        return "full hit" if cached_tokens else "prompt too short"
    if found.why is Why.REUSE_OFF:
        return "reuse off"
    return f"{found.why} {found.component} at {found.at}"


def _anonymous(generation: int | None, fields: Fields) -> Identity:
    if generation is not None:
        raise refuse(f"{GENERATION} needs a session: name one in {SESSION}", GENERATION)
    return Identity(None, salt=fields.text("cache_salt"))


def _parent(text: str) -> SessionId | None:
    """The parent named by header; a malformed one is as good as none."""
    try:
        return checked_id(text)
    except CacheError:
        return None

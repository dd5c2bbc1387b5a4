"""What a request and its answer look like on the other side of the router: headers and body, in and out."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from agentcache import wire
from agentcache.ids import scoped
from agentcache.router.upstream import end_to_end
from agentcache.router.withheld import BY_SESSION, SESSION_HEADERS, fields_told, header_told, is_key, reaches
from agentcache.types import SessionId
from agentcache.web.headers import RawHeaders
from agentcache.web.reply import REQUEST_ID, encode

OURS: Final = "agentcache"
"""The kind of our own workers, beside those of `settings.UPSTREAM_KINDS`."""

_OF_THIS_HOP: Final = frozenset({b"host", b"content-length", b"expect", b"cookie", REQUEST_ID.encode()})
_PREFIX: Final = wire.PREFIX.encode()
_IDENTITY: Final = frozenset(
    name.encode()
    for name in (
        wire.TAG,
        wire.WORKER,
        wire.SESSION,
        wire.PARENT,
        wire.GENERATION,
        wire.STRICT,
        wire.SUPERSEDED,
        wire.FORK,
        wire.PREFILL,
    )
)
_NOT_FOR_OURS: Final = _OF_THIS_HOP | _IDENTITY


def worker_headers(headers: RawHeaders, tag: str, request_id: str) -> RawHeaders:
    """For our worker: who asks and for which session stands in the tag alone."""
    kept = [
        (name, value) for name, value in end_to_end(headers) if name not in _NOT_FOR_OURS and not is_key(name)
    ]
    return [*kept, (wire.TAG.encode(), tag.encode()), (REQUEST_ID.encode(), request_id.encode())]


def plain_headers(
    kind: str, tenant: str, headers: RawHeaders, request_id: str, with_keys: bool
) -> RawHeaders:
    """For a server that is none of ours: nothing of our own, no session of a client in its own words, and its keys
    only if they are meant to go there."""
    kept = [
        (name, header_told(tenant, name, value))
        for name, value in end_to_end(headers)
        if name not in _OF_THIS_HOP and not name.startswith(_PREFIX) and reaches(kind, name)
        if with_keys or name in SESSION_HEADERS or not is_key(name)
    ]
    return [*kept, (REQUEST_ID.encode(), request_id.encode())]


def plain_body(
    kind: str, tenant: str, body: bytes, values: Mapping[str, Any], salt: str, session: str
) -> bytes:
    """The body for a server of `kind`: as it came, unless it says what the server is not to hear from a client.

    Shapes  `session` is what that server calls it (`plain_session`), "" for none
    """
    told = dict(fields_told(kind, tenant, values))
    if kind in BY_SESSION or "cache_salt" in told:
        told["cache_salt"] = salt
    if kind == "sglang" and session:
        told["session_id"] = session
    return body if told == values else encode(told)


def plain_session(tenant: str, session: str) -> str:
    """What a server that takes session ids (SGLang) calls a tenant's session."""
    return str(scoped(tenant, SessionId(session))) if session else ""


def session_path(tenant: str, session: str) -> str:
    """Where a worker of ours shows a tenant's session to operators, and takes notes of it."""
    return f"/v1/sessions/{quote(scoped(tenant, SessionId(session)), safe='')}"


def answer_headers(upstream: RawHeaders, said: Mapping[str, str], ours: bool) -> RawHeaders:
    """Headers of an answer: the upstream's, with what we say ourselves in place of the same names.

    `ours`: from our own worker; what others say in our names is dropped.
    """
    told = [(name.encode(), header_value(value)) for name, value in said.items()]
    named = {b"date", REQUEST_ID.encode(), *(name for name, _ in told)}
    lowered = [(name.lower(), value) for name, value in upstream]
    kept = [each for each in lowered if each[0] not in named and (ours or not each[0].startswith(_PREFIX))]
    return [*kept, *told]


def header_value(text: str) -> bytes:
    """Text as a header can carry it, whoever wrote it: one line of UTF-8."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    return text.encode("utf-8", "replace")

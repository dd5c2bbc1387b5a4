"""What a request and its answer look like on the other side of the router: headers and body, in and out."""

from collections.abc import Mapping
from typing import Any, Final

from agentcache import wire
from agentcache.ids import scoped
from agentcache.router.upstream import end_to_end
from agentcache.types import SessionId
from agentcache.web.headers import RawHeaders
from agentcache.web.reply import encode

OURS: Final = "agentcache"
"""The kind of our own workers, beside those of `settings.UPSTREAM_KINDS`."""
REQUEST_ID: Final = "x-request-id"

_KEYS: Final = frozenset({b"authorization", b"x-api-key", b"api-key"})
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
    )
)
_NOT_FOR_OURS: Final = _KEYS | _OF_THIS_HOP | _IDENTITY
_SALTED: Final = frozenset({"sglang", "vllm"})
_OWN_FIELDS: Final = ("session_id", "parent_session_id")


def worker_headers(headers: RawHeaders, tag: str, request_id: str) -> RawHeaders:
    """For our worker: who asks and for which session stands in the tag alone."""
    kept = [(name, value) for name, value in end_to_end(headers) if name not in _NOT_FOR_OURS]
    return [*kept, (wire.TAG.encode(), tag.encode()), (REQUEST_ID.encode(), request_id.encode())]


def plain_headers(headers: RawHeaders, request_id: str, with_keys: bool) -> RawHeaders:
    """For a server that is none of ours: nothing of our own, and the client's key only if it is meant to go there."""
    dropped = _OF_THIS_HOP if with_keys else _OF_THIS_HOP | _KEYS
    kept = [
        (name, value)
        for name, value in end_to_end(headers)
        if name not in dropped and not name.startswith(_PREFIX)
    ]
    return [*kept, (REQUEST_ID.encode(), request_id.encode())]


def plain_body(kind: str, body: bytes, values: Mapping[str, Any], salt: str, session: str) -> bytes:
    """The body for a server of `kind`: as it came, unless it names a salt or a session.

    Shapes  `session` is what that server calls it (`plain_session`), "" for none
    """
    told = {name: value for name, value in values.items() if name not in _OWN_FIELDS}
    if kind in _SALTED or "cache_salt" in told:
        told["cache_salt"] = salt
    if kind == "sglang" and session:
        told["session_id"] = session
    return body if told == values else encode(told)


def plain_session(tenant: str, session: str) -> str:
    """What a server that takes session ids (SGLang) calls a tenant's session."""
    return str(scoped(tenant, SessionId(session))) if session else ""


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

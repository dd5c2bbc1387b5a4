"""What a server that is no worker of ours does not get as the client wrote it.

Keys are the client's and ours. Names of sessions would let one tenant into another's session there. And some words are
for the machinery between servers only: who may say them chooses other requests' data, or where they run.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from agentcache.ids import scoped
from agentcache.router.sender_names import BODY_SESSION, TABLE, Place, Role, spellings
from agentcache.types import SessionId

BY_SESSION: Final = frozenset({"sglang", "vllm"})
"""Kinds of servers that would take a client's session for one of theirs: none of its names goes there."""

_NAMING: Final = frozenset({Role.SESSION, Role.PARENT, Role.AGENT, Role.PARENT_AGENT})
SESSION_HEADERS: Final = frozenset(
    name.encode()
    for row in TABLE
    if row.place is Place.HEADER and row.role in _NAMING
    for name in spellings(row)
)
SESSION_FIELDS: Final = tuple(
    tuple(row.name.split(".")) for row in TABLE if row.place is Place.BODY and row.role in _NAMING
)
MACHINERY_HEADERS: Final = frozenset({b"x-data-parallel-rank"})
MACHINERY_FIELDS: Final = frozenset(
    {
        "session_params",
        "kv_hints",
        "kv_transfer_params",
        "rid",
        "request_id",
        "data_parallel_rank",
        "routed_dp_rank",
        "disagg_prefill_dp_rank",
    }
)
_MACHINERY_PREFIX: Final = "bootstrap_"
_CONTEXTS: Final = (("nvext", "agent_context"), ("agent_context",))
_OURS: Final = frozenset({BODY_SESSION, "parent_session_id"})
_SECRET_PARTS: Final = frozenset({"authorization", "key", "apikey", "token", "secret", "password"})
_ACCOUNTS: Final = frozenset({"openai-organization", "openai-project", "x-goog-user-project"})


@lru_cache(maxsize=4096)
def is_key(name: bytes) -> bool:
    """Whether a header carries a key or names an account, at whatever vendor. `name` is in lower case."""
    text = name.decode("latin-1").replace("_", "-")
    return text in _ACCOUNTS or not _SECRET_PARTS.isdisjoint(text.split("-"))


def reaches(kind: str, name: bytes) -> bool:
    """Whether a header goes to a server of `kind`, if only in other words."""
    return name not in MACHINERY_HEADERS and not (kind in BY_SESSION and name in SESSION_HEADERS)


def header_told(tenant: str, name: bytes, value: bytes) -> bytes:
    """The value of a header that goes on; a name of a session is the tenant's there."""
    return tenant.encode() + b"/" + value if value and name in SESSION_HEADERS else value


def fields_told(kind: str, tenant: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a server of `kind` gets of a body; equal to `values` where there is nothing to keep back."""
    told: Mapping[str, Any] = {name: value for name, value in values.items() if not _is_kept_back(name)}
    for path in SESSION_FIELDS:
        if path[0] in told:
            told = _changed(told, path, "" if kind in BY_SESSION else tenant)
    for path in _CONTEXTS if kind in BY_SESSION else ():
        if path[0] in told:
            told = _changed(told, path, "")
    return told


def _is_kept_back(name: str) -> bool:
    return name in _OURS or name in MACHINERY_FIELDS or name.startswith(_MACHINERY_PREFIX)


def _changed(values: Mapping[str, Any], path: tuple[str, ...], tenant: str) -> Mapping[str, Any]:
    """A copy in which the id at `path` is the tenant's, or is not there where `tenant` is ""."""
    name, rest = path[0], path[1:]
    inner = values.get(name)
    if rest:
        return {**values, name: _changed(inner, rest, tenant)} if isinstance(inner, Mapping) else values
    if tenant and isinstance(inner, str) and inner:
        return {**values, name: str(scoped(tenant, SessionId(inner)))}
    return {other: value for other, value in values.items() if other != name}

"""What names sessions and tenants: checked at every edge, and joined so that no two pairs are one name."""

import re

from agentcache.errors import CacheError, Kind
from agentcache.types import SessionId

MAX_ID_BYTES = 256
DEFAULT_TENANT = "default"
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,64}")
MAX_SCOPED_BYTES = MAX_ID_BYTES + 65
MAX_DEPTH = 64
"""Sessions above one session: its parent, that one's parent and so on."""


def checked_id(session: object, limit_bytes: int = MAX_ID_BYTES) -> SessionId:
    """A session id as it is, or BAD_SESSION_ID. Ids are compared byte by byte and never trimmed.

    1 to `limit_bytes` bytes of UTF-8, all of it printable: an id stands in headers and logs as it is, and two ids that
    look alike are not told apart by what nobody sees. No white space at either end (a client that sometimes sends it
    would silently talk to two sessions).
    """
    if not isinstance(session, str):
        raise CacheError(Kind.BAD_SESSION_ID, "a session id is a string", type=type(session).__name__)
    if not session.isprintable():
        raise CacheError(Kind.BAD_SESSION_ID, "a session id has no control characters or invisible ones")
    if not 1 <= len(session.encode()) <= limit_bytes:
        raise CacheError(Kind.BAD_SESSION_ID, f"a session id has 1 to {limit_bytes} bytes of UTF-8")
    if session != session.strip():
        raise CacheError(Kind.BAD_SESSION_ID, "a session id does not begin or end with white space")
    return SessionId(session)


def checked_tenant(name: str) -> str:
    """A tenant's name as it is: 1 to 64 letters, digits, dots, dashes or underscores. Errors: BAD_CONFIG."""
    if not _TENANT.fullmatch(name):
        raise CacheError(
            Kind.BAD_CONFIG, "a tenant has 1 to 64 letters, digits, dots, dashes or underscores", tenant=name
        )
    return name


def scoped(tenant: str, session: SessionId) -> SessionId:
    """What a worker behind a router calls a tenant's session. No tenant has a slash, so no two pairs meet."""
    return SessionId(f"{tenant}/{session}")


def unscoped(session: SessionId) -> tuple[str, SessionId]:
    """Tenant and session of a scoped id."""
    tenant, _, own = session.partition("/")
    return tenant, SessionId(own)

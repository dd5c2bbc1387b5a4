"""What sessions are called in a store."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionRef:
    """A session of a tenant. Both are checked by the caller (`ids.py`)."""

    tenant: str
    session: str

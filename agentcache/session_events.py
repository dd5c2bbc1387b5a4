"""What happens to sessions, for whoever wants to hear of it; placement events are another matter (`events.py`)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from agentcache.types import ComponentName, SessionId, TierName


class Happening(StrEnum):
    """What happened to a session."""

    OPENED = "opened"  # a new generation is current
    PAUSED = "paused"
    RESUMED = "resumed"
    EXPIRED = "expired"  # its idle lease ran out
    CLOSED = "closed"
    MOVED = "moved"  # another worker has it
    EVICTED = "evicted"  # data at its frontier have left the device


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """One of them. `tool`, `expected_s`: what was said of a pause; `component`: of which data have left, and
    `lost`: the tiers that do not have all of what it would go on from any more."""

    what: Happening
    session: SessionId
    generation: int
    parent: SessionId | None = None
    tool: str = ""
    expected_s: float = 0.0
    component: ComponentName | None = None
    lost: tuple[TierName, ...] = ()


class SessionSink(Protocol):
    """Takes what happens in order. Never raises, never blocks. Nothing is made for one that does not listen."""

    @property
    def listening(self) -> bool: ...

    def happened(self, event: SessionEvent) -> None: ...


class NobodyListens:
    """The sink that there is until another is put in its place."""

    listening = False

    def happened(self, event: SessionEvent) -> None:
        """Dropped."""


NOBODY = NobodyListens()

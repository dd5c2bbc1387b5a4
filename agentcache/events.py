"""Where placement events go."""

from typing import Protocol

from agentcache.types import Event


class EventSink(Protocol):
    """Takes placement events in the order of their happening. Never raises, never blocks."""

    def publish(self, event: Event) -> None: ...


class NullEvents:
    """Nobody listens."""

    def publish(self, event: Event) -> None:
        """Dropped."""

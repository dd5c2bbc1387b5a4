"""Where placement events go."""

from typing import Protocol

from agentcache.types import Event


class EventSink(Protocol):
    """Takes placement events in the order of their happening. Never raises, never blocks.

    `listening` is fixed: a cache whose sink does not listen makes no events.
    """

    @property
    def listening(self) -> bool: ...

    def publish(self, event: Event) -> None: ...


class NullEvents:
    """Nobody listens."""

    listening = False

    def publish(self, event: Event) -> None:
        """Dropped."""

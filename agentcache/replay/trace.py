"""What a trace is, whatever file it came from: sessions of calls, each call a change of the history.

A reader (one for each format, `readers.py`) makes these values; everything after it knows no format.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Message = Mapping[str, Any]
"""One chat message as it is sent: `role` and `content`, and the tool fields where the trace has them."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the model, as a change of the history that the call before it was given.

    `keep` leading messages of that history stay and `added` follow them, so an append (keep = all), a truncation
    and a rewrite are the same value. `recorded` is what the model answered in the trace; it is history for later
    calls only where their `added` holds it.
    """

    keep: int
    added: tuple[Message, ...]
    recorded: Message


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation. `name` is unique in its run only; `place` says where it was read, for messages."""

    name: str
    calls: tuple[Call, ...]
    place: str

    def prompts(self) -> Iterator[list[Message]]:
        """The messages that each call sends, in order; built call by call, a list of its own for each.

        Cost  O(messages) references a call; no text is copied
        """
        history: list[Message] = []
        for call in self.calls:
            history = [*history[: call.keep], *call.added]
            yield list(history)

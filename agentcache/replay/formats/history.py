"""How one prompt of a session differs from the one before it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentcache.replay.trace import Message


def shared(before: Sequence[Any], after: Sequence[Any]) -> int:
    """How many leading items are equal. Cost: O(1) Python steps where `after` goes on from `before`."""
    if after[: len(before)] == before:
        return len(before)
    for length, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            return length
    return min(len(before), len(after))


_FINISHES = {"tool_use": "tool_calls", "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length"}


def finish_of(stop_reason: str) -> str:
    """Anthropic's reason to stop in OpenAI's words, which is how `Facts.finish` has them."""
    return _FINISHES.get(stop_reason, stop_reason)


def whole(text: str) -> str:
    """The text with half surrogate pairs, which no JSON over HTTP can carry, replaced by U+FFFD."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def said(role: str, text: str) -> Message:
    return {"role": role, "content": whole(text)}


def elapsed(start_s: float, end_s: float) -> float:
    """Seconds between, at least 0, in whole microseconds: what clocks of 1970 resolve in a float."""
    return max(0.0, round(end_s - start_s, 6))


@dataclass(slots=True)
class Names:
    """Makes the names of a file's sessions differ."""

    taken: set[str] = field(default_factory=set)

    def new(self, wanted: str) -> str:
        """The name, or with `+2`, `+3`… behind it if it is taken."""
        name, number = wanted, 1
        while name in self.taken:
            number += 1
            name = f"{wanted}+{number}"
        self.taken.add(name)
        return name

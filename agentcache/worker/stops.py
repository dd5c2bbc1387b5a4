"""Stop strings over streamed text: what may go out now, and when to end."""

from collections.abc import Sequence


def partial_suffix(text: str, marks: Sequence[str]) -> int:
    """Length of the longest end of `text` that could still become one of `marks` (0 if none)."""
    longest = max((len(mark) for mark in marks), default=0)
    for length in range(min(len(text), longest - 1), 0, -1):
        tail = text[-length:]
        if any(mark.startswith(tail) for mark in marks):
            return length
    return 0


class StopStrings:
    """Cuts streamed text before the stop string that is complete first.

    Text that may turn out to be the begin of a stop string is held back until it is known.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.stopped = False
        self.matched = ""  # the stop string that cut the text
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> str:
        """Take text in, answer what is safe to send; after the cut, nothing."""
        if self.stopped:
            return ""
        text = self._held + text
        found = [(text.find(stop) + len(stop), text.find(stop), stop) for stop in self._stops if stop in text]
        if found:
            self.stopped, self._held = True, ""
            _, cut, self.matched = min(found)
            return text[:cut]  # the one that is complete first, whatever the pieces were
        keep = len(text) - partial_suffix(text, self._stops)
        self._held = text[keep:]
        return text[:keep]

    def flush(self) -> str:
        """The held text, when no more is to come."""
        held, self._held = self._held, ""
        return held

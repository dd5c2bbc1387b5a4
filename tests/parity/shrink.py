"""Makes a failing history short: leaves out what the failure does not need."""

import time
from collections.abc import Callable
from dataclasses import replace

from tests.parity.oplog import History, Op

Fails = Callable[[History], str]
"""Why a history fails; empty if it does not."""


def shrink(history: History, fails: Fails, seconds: float) -> History:
    """A history that still fails, perhaps in another way, and from which no single operation can be left out.

    Gives up looking for shorter ones when the time is over.
    """
    until = time.monotonic() + seconds
    size = max(1, len(history.ops) // 2)
    while time.monotonic() < until:
        shorter = _without_chunks(history, size, fails, until)
        if size == 1 and len(shorter.ops) == len(history.ops):
            break
        history, size = shorter, max(1, size // 2)
    return _plainer(history, fails, until)


def _without_chunks(history: History, size: int, fails: Fails, until: float) -> History:
    """Without every run of `size` operations that is not needed, the last ones tried first."""
    end = len(history.ops)
    while end > 0 and time.monotonic() < until:
        start = max(0, end - size)
        tried = replace(history, ops=history.ops[:start] + history.ops[end:])
        if fails(tried):
            history = tried
        end = start
    return history


def _plainer(history: History, fails: Fails, until: float) -> History:
    """Without the words that are not needed."""
    for at in range(len(history.ops)):
        untried = _simpler(history.ops[at])
        while untried and time.monotonic() < until:
            tried = replace(history, ops=(*history.ops[:at], untried.pop(), *history.ops[at + 1 :]))
            if fails(tried):
                history = tried
                untried = _simpler(history.ops[at])
    return history


def _simpler(op: Op) -> list[Op]:
    """The operation with one thing less."""
    found = [_without(op, name) for name in ("prio", "alt", "cut", "bad") if name in op.words]
    parts = [part for part in op.words.get("aux", "").split(",") if part]
    for left_out in range(len(parts)):
        aux = ",".join(parts[:left_out] + parts[left_out + 1 :])
        found.append(replace(op, words={**op.words, "aux": aux}) if aux else _without(op, "aux"))
    return found


def _without(op: Op, name: str) -> Op:
    return replace(op, words={word: value for word, value in op.words.items() if word != name})

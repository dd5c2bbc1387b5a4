"""One session as `GET /v1/sessions/ID` shows it: how it is, what it waits for, and why its turns hit or did not."""

from collections.abc import Callable
from typing import Final

from agentcache.clock import Clock
from agentcache.shown import Waiting
from agentcache.turn_history import SeenTurn
from agentcache.web.reply import Json
from agentcache.witness import Explained
from agentcache.worker.answers import tier_details
from agentcache.worker.headers import why_text
from agentcache.worker.session_shapes import held_json, own_name, view_json
from agentcache.worker.tagged import EVERYBODY, Grant

SET_S: Final = 0.1
"""A wall clock that is so far from where it should be has been set; less is how late this process may look at it."""


class UnixTimes:
    """The Unix times of moments of the clock, by one pairing of both: a moment has the same time whenever it is asked.

    They are paired anew once the wall clock has been set.
    """

    def __init__(self, clock: Clock, now_s: Callable[[], float]) -> None:
        self._clock = clock
        self._now_s = now_s
        self._start_s = self._paired_s()

    def start_s(self) -> float:
        """When the clock was 0."""
        paired_s = self._paired_s()
        if abs(paired_s - self._start_s) > SET_S:
            self._start_s = paired_s
        return self._start_s

    def _paired_s(self) -> float:
        return self._now_s() - self._clock.now_ns() / 1e9


def explained_json(explained: Explained, start_s: float, grant: Grant = EVERYBODY) -> Json:
    """`start_s` is the Unix time at which the engine's clock was 0; turns say when they began by it."""
    view = explained.view
    return {
        **view_json(view, grant),
        "children": [own_name(child, grant) for child in explained.children],
        "child_count": explained.child_count,
        "closing": {
            "mode": str(view.on_close),
            "markers": view.markers,
            "released": held_json(view.held),
        },
        "wait": wait_json(explained.waiting),
        "turns": [turn_json(turn, start_s + turn.at_ns / 1e9) for turn in explained.turns],
    }


def wait_json(waiting: Waiting) -> Json:
    """What it is doing. Times in seconds; `hint_believed` is null where nobody said how long."""
    return {
        "state": str(waiting.state),
        "kind": str(waiting.kind),
        "since_s": waiting.since_s,
        "expected_s": waiting.expected_s,
        "hint_s": waiting.hint_s,
        "hint_believed": None if waiting.hint_s is None else waiting.believed,
    }


def turn_json(turn: SeenTurn, at_s: float) -> Json:
    """One turn; `why` is what its answer said, `token` from which on it was not there."""
    found = turn.finding
    return {
        "at": round(at_s, 3),
        "generation": turn.generation,
        "prompt_tokens": turn.prompt_tokens,
        "cached_tokens": tier_details(turn.cached),
        "why": why_text(found, turn.cached.total),
        "reason": str(found.why),
        "component": str(found.component),
        "token": found.at,
        "diverged_at": found.changed_at,
    }

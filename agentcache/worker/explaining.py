"""One session as `GET /v1/sessions/ID` shows it: how it is, what it waits for, and why its turns hit or did not."""

from agentcache.shown import Waiting
from agentcache.turn_history import SeenTurn
from agentcache.web.reply import Json
from agentcache.witness import Explained
from agentcache.worker.answers import tier_details
from agentcache.worker.headers import why_text
from agentcache.worker.session_shapes import held_json, own_name, view_json
from agentcache.worker.tagged import EVERYBODY, Grant


def explained_json(explained: Explained, now_s: float, grant: Grant = EVERYBODY) -> Json:
    """`now_s` is Unix time; turns say when they began by it."""
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
        "turns": [turn_json(turn, now_s - (explained.now_ns - turn.at_ns) / 1e9) for turn in explained.turns],
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

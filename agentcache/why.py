"""Why a turn's hit was not longer: one vocabulary for answers, histories of sessions, metrics and replays."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agentcache.types import FULL, ComponentName, MissReason


class Why(StrEnum):
    """What ended a turn's hit. What is said is known; `unknown` where it is not."""

    NOTHING = "nothing"  # all of it was there
    NEVER_STORED = "never_stored"
    EVICTED = "evicted"
    CLOSED = "closed"  # was there, and left because its session was closed
    NO_CHECKPOINT = "no_checkpoint"  # FULL goes on, and no state was ever kept at a boundary further on
    CHECKPOINT_EVICTED = "checkpoint_evicted"  # FULL goes on, the state at such a boundary is gone
    WINDOW_GAP = "window_gap"  # FULL goes on, and a window was never whole at a boundary further on
    WINDOW_EVICTED = "window_evicted"  # FULL goes on, pages of the window at such a boundary are gone
    NO_ROOM = "no_room"  # was computed, and did not fit beside what was running
    NAMESPACE = "namespace"  # it is there under another salt or model
    PREFIX_CHANGED = "prefix_changed"  # the prompt left the path of the one before it here
    ON_HOST = "on_host"  # lies on the host, and did not come up for this turn
    FLUSHED = "flushed"  # was there until the cache was emptied
    REUSE_OFF = "reuse_off"  # the turn did not ask
    UNKNOWN = "unknown"


CUTS: Final[Mapping[MissReason, tuple[Why, Why]]] = {
    MissReason.WINDOW_GAP: (Why.WINDOW_GAP, Why.WINDOW_EVICTED),
    MissReason.NO_CHECKPOINT: (Why.NO_CHECKPOINT, Why.CHECKPOINT_EVICTED),
}
"""By what the tree says: why, where no boundary further on ever had what it needs, and where one had."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What ended a turn's hit, the component that did, and the token from which on.

    `changed_at` is the first token that differs from the path of the session's turn before; None: it goes on from it,
    or nothing is known of it.
    """

    why: Why = Why.NOTHING
    component: ComponentName = FULL
    at: int = 0
    changed_at: int | None = None


ALL_THERE = Finding()

"""What sessions hold, as an answer: views of open sessions and the account of a close."""

from dataclasses import dataclass, fields
from typing import Final

from agentcache.sessions import SessionFacts
from agentcache.types import (
    ComponentName,
    ComponentSpec,
    Held,
    Released,
    ReleaseMode,
    SessionId,
    SessionState,
    TierName,
)

SHOWN: Final = 1000
"""Descendants that the answer to a close names."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What a session references of one component on one tier. `tokens` is 0 for states.

    `shared_slots` of its slots other sessions reference, too: its own close leaves them where they are.
    """

    component: ComponentName
    tier: TierName
    tokens: int
    slots: int
    bytes: int
    shared_slots: int


@dataclass(frozen=True, slots=True)
class SessionView(SessionFacts):
    """A session as it is now, with what its markers reference."""

    markers: int
    held: tuple[Holding, ...]


@dataclass(frozen=True, slots=True)
class Closed:
    """What a close let go of. `mode` is what was done: demote without a lower tier acts as release.

    `children` are the descendants closed with it, each with its own account, `SHOWN` at most: `more` were closed, too.
    """

    session: SessionId
    state: SessionState
    generation: int
    mode: ReleaseMode
    markers: int
    released: tuple[Holding, ...]
    children: tuple["Closed", ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class LetGo:
    """What a router's order let go of. `generation` is the one that the worker knows now.

    `known` False: it had nothing of the session. `busy`: the session is in use here, and the order was not followed.
    """

    session: SessionId
    generation: int
    known: bool
    busy: bool
    mode: ReleaseMode = ReleaseMode.RELEASE
    markers: int = 0
    released: tuple[Holding, ...] = ()


def holdings(released: Released, specs: tuple[ComponentSpec, ...]) -> tuple[Holding, ...]:
    """What a release let go of, in bytes too."""
    slot_bytes = {spec.name: spec.slot_bytes for spec in specs}
    return tuple(_holding(held, slot_bytes[held.component]) for held in released.held)


def _holding(held: Held, slot_bytes: int) -> Holding:
    return Holding(
        held.component, held.tier, held.tokens, held.slots, held.slots * slot_bytes, held.shared_slots
    )


def session_view(facts: SessionFacts, held: Released, specs: tuple[ComponentSpec, ...]) -> SessionView:
    """A record, with what a preview says that its close would let go of."""
    plain = {field.name: getattr(facts, field.name) for field in fields(facts)}
    return SessionView(**plain, markers=held.markers, held=holdings(held, specs))

"""A registry and its time, in seconds; the clock stands still unless told."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.records import SessionRules
from agentcache.sessions import Lapsed, Opening, SessionRegistry, Ticket
from agentcache.types import SessionId, SessionState, SessionTag

OPEN, CLOSED, EXPIRED, NONE = SessionState.OPEN, SessionState.CLOSED, SessionState.EXPIRED, SessionState.NONE


@dataclass
class World:
    """A registry and its time; sweeps before each call, as its callers do."""

    rules: SessionRules = field(default_factory=SessionRules)
    now_s: float = 1000.0
    lapsed: list[Lapsed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.registry = SessionRegistry(self.rules)

    @property
    def now(self) -> int:
        now_ns = int(self.now_s * 1e9)
        self.lapsed += self.registry.sweep(now_ns)
        return now_ns

    def request(self, session: str = "s", **tag: Any) -> Ticket:
        return self.registry.arrive(SessionTag(SessionId(session), **tag), self.now)

    def turn(self, session: str = "s", **tag: Any) -> bool:
        """A whole request; whether it registered."""
        return self.end(self.begin(self.request(session, **tag)))

    def begin(self, ticket: Ticket) -> Ticket:
        self.registry.begin(ticket, self.now)
        return ticket

    def end(self, ticket: Ticket) -> bool:
        return self.registry.complete(ticket, self.now).registers

    def open(
        self, session: str = "s", parent: str | None = None, ttl_s: float | None = None, fence: bool = False
    ) -> tuple[int, bool]:
        opened = self.registry.open(session, Opening(parent, ttl_s, fence), self.now)
        return opened.generation, opened.created

    def close(self, session: str = "s", generation: int | None = None) -> int:
        return self.registry.close(session, generation, self.now).generation

    def state(self, session: str = "s") -> tuple[SessionState, int]:
        facts = self.registry.look(session, None, self.now)
        return facts.state, facts.generation


def refused(kind: Kind) -> pytest.RaisesExc[CacheError]:
    return pytest.RaisesExc(CacheError, check=lambda error: error.kind is kind)


# histories


def blank(world: World) -> None:
    """The id was never seen."""


def opened(world: World) -> None:
    world.open()  # generation 1
    world.open(fence=True)  # generation 2


def closed_now(world: World) -> None:
    opened(world)
    world.close()


def closed_long_ago(world: World) -> None:
    closed_now(world)
    world.now_s += 60.001


def idled_out(world: World) -> None:
    opened(world)
    world.now_s += 1800.001
    assert world.state()[0] is EXPIRED

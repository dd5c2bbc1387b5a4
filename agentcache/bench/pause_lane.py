"""One arm of `bench pause`: its engine, the session that comes and goes there, and the agents who work meanwhile."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from agentcache.bench.endings import OF_ITSELF, complete
from agentcache.bench.pause_shape import AGENTS, Arm, Shape
from agentcache.clock import Clock
from agentcache.engine.api import CachedTokens, Finished, GenerateRequest
from agentcache.engine.engine import Engine
from agentcache.records import Paused
from agentcache.types import FULL, ReleaseMode, SessionId, SessionTag, TierName

OTHERS_SAY: Final = 4
"""Tokens that another agent is answered."""
NEAR: Final = (TierName.DEVICE, TierName.HOST)


@dataclass(frozen=True, slots=True)
class Time:
    """`clock` is that of the engines and of pauses, `timer` measures first tokens.

    `rest` lets so many seconds pass, or less; the first of the engines is the one whose tiers wake it.
    """

    clock: Clock
    timer: Clock
    rest: Callable[[Sequence[Engine], float], None]


@dataclass(frozen=True, slots=True)
class Return:
    """The first turn after a pause. `device_tokens`, `host_tokens`: the least of its prefix that was there meanwhile.

    `late_ms`: how much later than said it came. `logits` is the sha256 of its first token's.
    """

    first_token_ms: float
    cached: CachedTokens
    device_tokens: int
    host_tokens: int
    late_ms: float
    logits: str


@dataclass(slots=True)
class Lane:
    """`back_ns`: when its session returns, 0 while none is away; `work_ns`: when another agent takes a turn.

    `first_ns` and `turn_ns` are what a first turn and a turn of another agent took the last time.
    """

    arm: Arm
    engine: Engine
    shape: Shape
    time: Time
    back_ns: int = 0
    work_ns: int = 0
    first_ns: int = 0
    turn_ns: int = 0
    turns: int = 0
    least: tuple[int, int] = (0, 0)
    returns: list[Return] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        """Nobody is away, and there are trials left."""
        return not self.back_ns and len(self.returns) < self.shape.trials

    @property
    def leaves_ns(self) -> int:
        """How long a session takes to leave, and the others to take its place."""
        return self.first_ns + AGENTS * self.turn_ns * self.arm.pushed

    @property
    def is_to_be_pushed(self) -> bool:
        """The prefix of who is away is still where the arm says that it is not."""
        device, host = self.least
        return self.arm.pushed and (device > 0 or (self.arm.store and host > 0))

    @property
    def session(self) -> str:
        return f"session-{len(self.returns)}"

    def prime(self, agent: int) -> None:
        """The first turn of another agent."""
        began_ns = self.time.timer.now_ns()
        self._ask(f"agent-{agent}", (*self._prefix(f"agent-{agent}"), 0), 1)
        self.first_ns = self.time.timer.now_ns() - began_ns

    def work(self) -> None:
        """A turn of another agent: what it has always said, and new words."""
        name, self.turns = f"agent-{self.turns % AGENTS}", self.turns + 1
        began_ns = self.time.timer.now_ns()
        new = self._words(f"{name}/{self.turns}", self.shape.new_tokens)
        self._ask(name, (*self._prefix(name), *new), OTHERS_SAY)
        self.turn_ns = self.time.timer.now_ns() - began_ns
        self.work_ns = self.time.clock.now_ns() + int(self.shape.every_s * 1e9)
        if self.back_ns:
            device, host = self._there()
            self.least = (min(device, self.least[0]), min(host, self.least[1]))

    def leave(self) -> None:
        """A new session's first turn; then it is away, and the others take what room they need."""
        self._ask(self.session, self._prompt()[: self.shape.cached_tokens + 1], 1)
        self.least = self._there()
        self.back_ns = self.time.clock.now_ns() + int(self.shape.pause_s * 1e9)
        if self.arm.told:
            self.engine.cache.pause_session(self.session, Paused("bash", self.shape.pause_s))
        turns = self.turns + 2 * AGENTS
        while self.is_to_be_pushed and self.turns < turns:
            self.work()

    def come_back(self) -> None:
        """Its next turn, measured; then it ends, and what it left with it."""
        late_ms = (self.time.clock.now_ns() - self.back_ns) / 1e6
        began_ns = self.time.timer.now_ns()
        end = self._ask(self.session, self._prompt(), 1, digest=True)
        taken_ms = (self.time.timer.now_ns() - began_ns) / 1e6
        self.engine.cache.close_session(self.session, mode=ReleaseMode.DROP)
        self.returns.append(Return(taken_ms, end.cached, *self.least, late_ms, end.first_logits))
        self.back_ns = 0

    def _ask(self, session: str, tokens: tuple[int, ...], most: int, digest: bool = False) -> Finished:
        """One request alone, to its end. Errors: those of `Engine.submit`, the request's own; ENGINE_FAILED."""
        tag = SessionTag(SessionId(session))
        self.engine.submit(GenerateRequest(session, tokens, most, session=tag, digest_logits=digest))
        ends: list[Finished] = []
        while not ends:
            events = self.engine.step()
            ends = [event for event in events if isinstance(event, Finished)]
            if not events:
                self.engine.rest()
        return complete(ends[0], OF_ITSELF)

    def _there(self) -> tuple[int, int]:
        """Tokens of the session's prefix on device and host."""
        held = self.engine.cache.session(self.session).held
        device, host = (
            sum(one.tokens for one in held if one.component == FULL and one.tier is tier) for tier in NEAR
        )
        return device, host

    def _prompt(self) -> tuple[int, ...]:
        """Of the turn that returns; the same at every engine."""
        return (*self._prefix(self.session), *self._words(f"{self.session}/new", self.shape.new_tokens))

    def _prefix(self, name: str) -> tuple[int, ...]:
        return self._words(name, self.shape.cached_tokens)

    def _words(self, name: str, count: int) -> tuple[int, ...]:
        source = random.Random(f"{self.shape.seed}/{name}")
        return tuple(source.randrange(self.engine.info.vocab_size) for _ in range(count))

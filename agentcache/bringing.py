"""A path on its way to the device before anybody asks for it.

    asking            ──────► loading                     ──────► over
    external ─► host          host ─► device, a stretch at a time
    (or device)

What makes room is expected later than the session whose path it is: the core's order says so. Where that is too little
for all of it, it is loaded as far as the room goes. What has landed is kept by nobody, and ranks as all that its
session wants back.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from agentcache.executor import MovingParts
from agentcache.inheritance import BEFORE_EVERY_TURN, deepest
from agentcache.keys import Key, PathNames
from agentcache.prefetch import Prefetcher
from agentcache.types import FULL, Lease, MatchResult, ReleaseMode, SessionId, TierName, Turn, Wait
from agentcache.waits import Throughput

STRETCH_TOKENS: Final = 8192
"""What is loaded at a time where any page may end it: what is asked for meanwhile waits for no more than that."""
SHORTER: Final = 4
"""How often a stretch is made shorter that finds no room."""
NEAR_TOKENS_PER_S, FAR_TOKENS_PER_S = 200_000.0, 20_000.0
"""How fast the host and the external tier are taken to be until they were seen at work."""


class Stage(StrEnum):
    RESTING = "resting"  # not begun, or at its end
    ASKING = "asking"
    LOADING = "loading"


@dataclass(slots=True, eq=False)
class Bring:
    """The path of a session that waits so, and what is on its way of it.

    `there` tokens of it were on the device when last looked at; `brought` have been loaded. `number` is that of its
    prefetch, `job` of its load, for which `lease` keeps the beginning of the path; it began at `began_ns`, and is the
    `last`: there is no room for more.
    """

    path: Key
    wait: Wait
    stage: Stage = Stage.RESTING
    there: int = 0
    brought: int = 0
    number: int = 0
    job: int = 0
    lease: Lease | None = None
    began_ns: int = 0
    last: bool = False


@dataclass(slots=True)
class Rate:
    """How fast a tier gives. What is on its way together counts as if it were alone."""

    throughput: Throughput
    tokens: int = 0

    def learn(self, tokens: int, since_ns: int, now_ns: int) -> None:
        self.throughput.read(self.tokens, since_ns, others_wait=True)
        self.tokens += tokens
        self.throughput.read(self.tokens, now_ns, others_wait=False)


@dataclass(slots=True)
class Rates:
    near: Rate = field(default_factory=lambda: Rate(Throughput(NEAR_TOKENS_PER_S)))
    far: Rate = field(default_factory=lambda: Rate(Throughput(FAR_TOKENS_PER_S)))


class Bringer:
    """Moves paths up. The jobs are the controller's, what comes from outside the prefetcher's."""

    def __init__(self, parts: MovingParts, prefetcher: Prefetcher) -> None:
        self._core = parts.core
        self._executor = parts.executor
        self._controller = parts.controller
        self._clock = parts.clock
        self._ledger = parts.ledger
        self._prefetcher = prefetcher
        self._rates = Rates()
        self._last = 0

    @property
    def has_source(self) -> bool:
        """Whether there is anything below the device."""
        return self._core.config.host_tier or self._controller.has_external

    def takes_ns(self, tokens: int, far_tokens: int) -> int:
        """How long it takes to bring so many tokens, `far_tokens` of them from the external tier."""
        through_host = tokens if self._core.config.host_tier else 0
        near, far = self._rates.near.throughput, self._rates.far.throughput
        return near.takes_ns(through_host) + far.takes_ns(far_tokens)

    def missing(self, one: Bring) -> tuple[int, int]:
        """Tokens of the path that are on the host only, and those that may be in the external tier only."""
        match = self._match(one)
        one.there = match.device.length
        far = len(one.path) - match.any_tier.length if self._controller.has_external else 0
        return match.any_tier.length - match.device.length, far

    def on_device(self, one: Bring) -> int:
        """Tokens of the path that a turn would find on the device now."""
        return self._match(one).device.length

    def begin(self, one: Bring, far: bool) -> None:
        """Begin to bring what is `missing`, from the external tier, too, if that is worth it."""
        one.stage = Stage.ASKING if far else Stage.LOADING
        if far:
            self._last -= 1
            one.number, one.began_ns = self._last, self._clock.now_ns()
            names = PathNames(self._core.config.page_tokens)
            self._prefetcher.start(one.number, one.path, len(one.path), names, one.wait)

    def advance(self, one: Bring, pressed: bool) -> None:
        """Take it further; at its end it is RESTING. `pressed`: nothing more is begun just now."""
        if one.stage is Stage.ASKING and self._prefetcher.over(one.number):
            self._end_asking(one)
            one.stage = Stage.LOADING
        if one.stage is Stage.LOADING:
            self._load(one, pressed)

    def expect(self, session: SessionId, wait: Wait) -> None:
        """Tell the order how a session waits."""
        self._core.expect(session, wait, self._clock.now_ns())

    def reference(self, one: Bring, session: SessionId, generation: int) -> None:
        """The session references what it has again, where its marker moved up, or went, when that had left.

        With several markers it keeps those: this is no turn, and does not say on which branch the session goes on.
        """
        now = self._clock.now_ns()
        kept = self._core.release(session, generation, ReleaseMode.PREVIEW, now)
        at = sum(held.tokens for held in kept.held if (held.component, held.tier) == (FULL, TierName.DEVICE))
        frontier = deepest(self._core, one.path, len(one.path))
        if not frontier or kept.markers > 1 or at >= one.there:
            return
        ends = Turn(frontier, deepest(self._core, one.path, at), BEFORE_EVERY_TURN, BEFORE_EVERY_TURN)
        self._executor.apply(self._core.reference(session, generation, ends, now).effects)
        self.expect(session, one.wait)

    def end(self, one: Bring) -> None:
        """Let go of it, wherever it is. A copy that runs may land."""
        one.stage = Stage.RESTING
        if one.number:
            self._end_asking(one)
        if one.job:
            self._give_up(one)

    def _end_asking(self, one: Bring) -> None:
        number, one.number = one.number, 0
        start, end = self._prefetcher.leave(number)
        if end > start:
            self._rates.far.learn(end - start, one.began_ns, self._clock.now_ns())
            self._count(one)

    def _load(self, one: Bring, pressed: bool) -> None:
        if one.job and not self._controller.is_out(one.job):
            if not self._end_load(one) or one.last:
                self.end(one)
        elif one.job:
            self._start(one, pressed)
        if one.stage is Stage.LOADING and not one.job and not pressed:
            self._next(one)

    def _next(self, one: Bring) -> None:
        """Load the next stretch, or be at the end. Where there is too little room it is shorter, and the last: what
        makes room for more could be what it has brought."""
        match = self._stretch(one)
        for shorter in range(1 + SHORTER):
            if match.any_tier.length <= match.device.length:
                break
            one.last = shorter > 0
            self._plan(one, match)
            self._start(one, pressed=False)
            if one.job:
                return
            room = self._executor.device_pool(FULL).free_slots * self._core.config.page_tokens
            match = self._core.peek(one.path, _shorter(match, room))
        self.end(one)

    def _plan(self, one: Bring, match: MatchResult) -> None:
        now = self._clock.now_ns()
        planned = self._core.plan_load(match.any_tier, TierName.HOST, TierName.DEVICE, now)
        assert planned.job, "a boundary that votes with the host's help has something to load"
        one.lease, one.job, one.began_ns = planned.lease, planned.job.number, now
        self._executor.apply(planned.effects)

    def _start(self, one: Bring, pressed: bool) -> None:
        """Let a planned load go once there is room for it. Without any it is given up, and for who is pressed all."""
        needs = self._controller.held(one.job)
        if needs is None:
            return
        if not pressed and self._executor.make_room(needs, self._ledger, one.wait):
            self._controller.start(one.job)
        elif pressed:
            self.end(one)
        elif not any(self._controller.leaving(name) for name in needs):
            self._give_up(one)

    def _give_up(self, one: Bring) -> None:
        """End a load, wherever it is. A copy that runs may land."""
        self._controller.cancel(one.job)
        self._executor.settle()
        self._end_load(one)

    def _end_load(self, one: Bring) -> int:
        """A load has ended, or is not waited for any more: nothing is kept for it. Answers what it gave."""
        assert one.lease, "a load comes with the lease of what is on the device"
        lease, one.job, one.lease = one.lease, 0, None
        now = self._clock.now_ns()
        self._core.unlock(lease, None, now)
        gained = self._count(one)
        if gained:
            self._rates.near.learn(gained, one.began_ns, now)
        return gained

    def _count(self, one: Bring) -> int:
        """What has landed on the device since it was last looked at."""
        before, one.there = one.there, self.on_device(one)
        gained = max(0, one.there - before)
        one.brought += gained
        return gained

    def _stretch(self, one: Bring) -> MatchResult:
        """Where to load to next: some way on, or to the end where only some places will do."""
        match = self._match(one)
        if len(self._core.config.specs) > 1:
            return match
        part = self._core.peek(one.path, min(len(one.path), match.device.length + STRETCH_TOKENS))
        return part if part.any_tier.length > part.device.length else match

    def _match(self, one: Bring) -> MatchResult:
        return self._core.peek(one.path, len(one.path))


def _shorter(match: MatchResult, room_tokens: int) -> int:
    """As far as free pages go; half as far where those would do, and others are wanting."""
    there, end = match.device.length, match.any_tier.length
    return there + (room_tokens if there + room_tokens < end else (end - there) // 2)

"""The pauses of `bench pause`: an engine for each arm, all of them worked on by one hand.

arm 1   |first|──────────── others take turns ────────────|next|
arm 2           |first|──────────── others take turns ────────────|next|
                                               ◄─ last ─► only this arm's engine is worked on
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Final

from agentcache.bench.pause_lane import Lane, Time
from agentcache.bench.pause_shape import AGENTS, APART_S, ARMS, LAST_S, Arm, Shape, room
from agentcache.bench.tree_rows import settled
from agentcache.clock import Clock
from agentcache.config import EngineSettings
from agentcache.engine.build import build_engine
from agentcache.engine.engine import Engine
from agentcache.engine.publish import PublishPolicy

Build = Callable[[EngineSettings, Clock], Engine]
LAST_NS: Final = int(LAST_S * 1e9)
APART_NS: Final = int(APART_S * 1e9)
REST_NS: Final = 50_000_000
ENDLESS_NS: Final = 2**62
WITH_FILES: Final = ("file", "redis")
"""Stores that keep files, here in a folder that goes when the run ends."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is run, beside the shape."""

    model: str = "tiny-full"
    core: str = "native"
    threads: int = 1
    store: str = "file"


@dataclass(slots=True)
class Rota:
    """Who is next. Who returns goes before all else, and nothing is begun that would not end in time for that.

    `left_ns`: when a session last left; `tell` hears of every step that is shown.
    """

    lanes: Sequence[Lane]
    time: Time
    tell: Callable[[], None]
    left_ns: int = field(default=-APART_NS)

    def run(self) -> None:
        """All trials of all arms. Errors: those of a request."""
        for lane in self.lanes:
            for agent in range(AGENTS):
                lane.prime(agent)
                self.tell()
        while any(lane.back_ns or lane.waits for lane in self.lanes):
            self._go_on(self.time.clock.now_ns())

    def _go_on(self, now_ns: int) -> None:
        away = [lane for lane in self.lanes if lane.back_ns]
        first = min(away, key=lambda lane: lane.back_ns, default=None)
        if first and first.back_ns <= now_ns:
            first.come_back()
            self.tell()
        elif first and first.back_ns - now_ns <= LAST_NS:
            self._last(first, now_ns)
        else:
            self._any(now_ns, first.back_ns - LAST_NS - now_ns if first else ENDLESS_NS)

    def _last(self, first: Lane, now_ns: int) -> None:
        """Only the agents at its engine work, until it returns."""
        if first.work_ns <= now_ns and now_ns + 2 * first.turn_ns < first.back_ns:
            first.work()
        else:
            self._rest(first, first.back_ns - now_ns)

    def _any(self, now_ns: int, left_ns: int) -> None:
        """A session leaves, or another agent works, where it is time; what takes longer than `left_ns` is not begun."""
        leaving = [lane for lane in self.lanes if lane.waits and lane.leaves_ns < left_ns]
        working = [lane for lane in self.lanes if lane.work_ns <= now_ns and lane.turn_ns < left_ns]
        if leaving and now_ns - self.left_ns >= APART_NS:
            min(leaving, key=lambda lane: len(lane.returns)).leave()
            self.left_ns = self.time.clock.now_ns()
        elif working:
            min(working, key=lambda lane: lane.work_ns).work()
        else:
            next_ns = min(lane.work_ns for lane in self.lanes)
            if any(lane.waits for lane in self.lanes):
                next_ns = min(next_ns, self.left_ns + APART_NS)
            self._rest(self.lanes[0], min(max(REST_NS, next_ns - now_ns), left_ns))

    def _rest(self, first: Lane, most_ns: int) -> None:
        """Nobody asks for anything. What is on its way between tiers goes on, the first one's without delay."""
        engines = [first.engine, *(lane.engine for lane in self.lanes if lane is not first)]
        for engine in engines:
            engine.step()
        self.time.rest(engines, min(most_ns / 1e9, *(engine.pause_s() for engine in engines)))


@dataclass(frozen=True, slots=True)
class Bench:
    """All arms, each at an engine of its own. `tell` hears of every step that is shown."""

    shape: Shape
    options: Options
    time: Time
    tell: Callable[[], None]
    build: Build = build_engine

    def run(self) -> list[Lane]:
        """What became of every arm.

        Errors  BAD_CONFIG (see `Shape.check`); those of building an engine and of a request
        Cost    an engine and AGENTS prompts for each arm, and the pauses of all trials, in which the arms wait together
        """
        self.shape.check()
        with ExitStack() as stack:
            policy = self._policy()
            lanes = [self._lane(arm, policy, stack) for arm in ARMS]
            with settled():
                Rota(lanes, self.time, self.tell).run()
        return lanes

    def _policy(self) -> PublishPolicy:
        """Where an engine of these settings publishes."""
        settings = self._settings({})
        with closing(self.build(settings, self.time.clock)) as engine:
            specs = engine.cache.config.specs
            return PublishPolicy(
                engine.info.page_tokens, engine.info.grid_tokens, specs, settings.fork_chunks
            )

    def _lane(self, arm: Arm, policy: PublishPolicy, stack: ExitStack) -> Lane:
        changes: dict[str, object] = dict(room(arm, self.shape, policy))
        if arm.store:
            changes["l3"] = self.options.store
            if self.options.store in WITH_FILES:
                folder = tempfile.TemporaryDirectory(prefix="agentcache-pause-")
                changes["l3_path"] = stack.enter_context(folder)
        engine = self.build(self._settings(changes), self.time.clock)
        stack.callback(engine.close)
        return Lane(arm, engine, self.shape, self.time)

    def _settings(self, changes: Mapping[str, object]) -> EngineSettings:
        return EngineSettings.model_validate(
            {
                "model": self.options.model,
                "core": self.options.core,
                "threads": self.options.threads,
                "grid_tokens": self.shape.grid_tokens,
                "ttl_s": 2 * self.shape.pause_s + 1800,
                **changes,
            }
        )


def steps_of(shape: Shape) -> int:
    """How many steps a run tells of: first turns of other agents, and returns."""
    return len(ARMS) * (AGENTS + shape.trials)

"""Makes traces that are like real ones in their numbers, from a seed: for benchmarks that everybody can run again.

What is drawn is lognormal, by a median and a 90th percentile, and nothing of a trajectory is in here. The numbers of
calls, answers and waits are those of published trajectories; what prompts begin with and grow by is such that their
lengths, what is new in each, and how much of them an unlimited cache holds are as published, too.

`claude-code`: people and tools, long prompts, compactions, sub-agents (668 sessions of Claude Code,
callanjfox/kv-cache-tester at 94f6046d, Apache-2.0). `swe-agent`: a tool loop with nobody in it (500 runs of
mini-swe-agent on SWE-bench Verified, gruckion/mini-swe-agent at d12a71af, MIT).
"""

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from agentcache.errors import CacheError, Kind
from agentcache.replay.trace import ALONE, Call, Facts, Gap, Hidden, Link, Origin, Session
from agentcache.waits import WaitKind

BLOCK_TOKENS = 64
_P90 = 1.2816
"""How many standard deviations above the mean the 90th percentile of a normal distribution lies."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A lognormal by its median and its 90th percentile, cut off at `most`."""

    median: float
    p90: float
    most: float = math.inf

    def draw(self, chance: random.Random) -> float:
        spread = math.log(self.p90 / self.median) / _P90
        return min(self.most, self.median * math.exp(chance.gauss(0.0, spread)))


@dataclass(frozen=True, slots=True)
class Subagents:
    """`share` of the sessions have some; each has `calls`."""

    share: float
    count: Spread
    calls: Spread


@dataclass(frozen=True, slots=True)
class Cut:
    """How prompts become shorter, or another one.

    One that has `window` tokens is cut before the next call, and `share` of the others. Of its first tokens `kept`
    stay, as a share, and at least the tools; with what is new the next one is `length` as long.
    """

    window: Spread
    share: float
    kept: float
    length: Spread


NEVER = Cut(Spread(1e12, 1e13), 0.0, 1.0, Spread(1, 1.01))


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of agent. Units: tokens, seconds, calls.

    `kits` sets of tools share a first prefix of `kit_tokens`, the n-th in proportion to 1/n; `own` tokens of the first
    prompt follow it. A call answers `output`, and the next prompt has this and `added` tokens more. `people` of the
    gaps are a person's.
    """

    calls: Spread
    kits: int
    kit_tokens: int
    own: Spread
    added: Spread
    output: Spread
    tool_s: Spread
    human_s: Spread
    people: float
    cut: Cut = NEVER
    subagents: Subagents = Subagents(0.0, Spread(1, 1.01), Spread(1, 1.01))


SHAPES: Mapping[str, Shape] = {
    "claude-code": Shape(
        calls=Spread(43, 149, 514),
        kits=20,
        kit_tokens=15_000,
        own=Spread(27_000, 200_000, 270_000),
        added=Spread(244, 3_050, 90_000),
        output=Spread(218, 885, 16_000),
        tool_s=Spread(9, 78, 3_600),
        human_s=Spread(121, 1_375, 7_200),
        people=0.14,
        cut=Cut(Spread(223_000, 238_000, 290_000), 0.008, 0.12, Spread(0.47, 1.4, 0.95)),
        subagents=Subagents(0.025, Spread(3, 8, 12), Spread(11, 22, 24)),
    ),
    "swe-agent": Shape(
        calls=Spread(36, 66, 145),
        kits=1,
        kit_tokens=128,
        own=Spread(2_100, 3_300, 12_000),
        added=Spread(84, 530, 8_000),
        output=Spread(79, 589, 8_000),
        tool_s=Spread(0.64, 4.6, 600),
        human_s=Spread(60, 600, 3_600),
        people=0.0,
    ),
}


def synthesize(shape_name: str, sessions: int, seed: int) -> Iterator[Session]:
    """So many sessions, sub-agents after their parents and not counted; equal seeds give equal traces.

    Errors  BAD_REQUEST for a shape that there is not
    """
    if shape_name not in SHAPES:
        raise CacheError(
            Kind.BAD_REQUEST, f"no kind of trace is called {shape_name!r}; there are {', '.join(SHAPES)}"
        )
    shape = SHAPES[shape_name]
    for number in range(sessions):
        chance = random.Random(f"{shape_name} {seed} {number}")
        name = f"{shape_name}-{seed}-{number}"
        made = _Maker(shape, chance, name).session(round(shape.calls.draw(chance)))
        yield made
        yield from _children(shape, chance, made)


def _children(shape: Shape, chance: random.Random, parent: Session) -> Iterator[Session]:
    if chance.random() >= shape.subagents.share:
        return
    for number in range(max(1, round(shape.subagents.count.draw(chance)))):
        name = f"{parent.name}/{number}"
        made = _Maker(shape, chance, name).session(round(shape.subagents.calls.draw(chance)))
        after = chance.randint(1, len(parent.calls))
        yield replace(made, origin=Origin(parent.name, Link.SPAWN, after))


class _Maker:
    """One session, grown call by call."""

    def __init__(self, shape: Shape, chance: random.Random, name: str) -> None:
        self._shape = shape
        self._chance = chance
        self._name = name
        self._window = math.inf
        self._tokens = 0
        self._blocks = 0
        self._next = 0

    def session(self, calls: int) -> Session:
        shape, chance = self._shape, self._chance
        weights = [1 / (1 + kit) for kit in range(shape.kits)]
        (kit,) = chance.choices(range(shape.kits), weights)
        self._window = shape.cut.window.draw(chance)
        self._tokens = shape.kit_tokens + round(shape.own.draw(chance))
        made = [self._call(0, Gap(WaitKind.UNKNOWN, 0.0))]
        while len(made) < calls:
            made.append(self._turn(made[-1].facts))
        hidden = Hidden(f"{self._name.split('-')[0]} tools {kit}", shape.kit_tokens)
        return Session(self._name, tuple(made), self._name, BLOCK_TOKENS, self._name, ALONE, hidden)

    def _turn(self, before: Facts) -> Call:
        shape, chance = self._shape, self._chance
        keep = self._blocks
        left = max(shape.kit_tokens, round(shape.cut.kept * self._tokens))
        is_cut = self._tokens >= self._window or chance.random() < shape.cut.share
        if is_cut and left < self._tokens:
            keep = left // BLOCK_TOKENS
            self._tokens = max(left, round(shape.cut.length.draw(chance) * self._tokens))
        else:
            self._tokens += before.output_tokens + round(shape.added.draw(chance))
        human = before.finish == "stop"
        seconds = (shape.human_s if human else shape.tool_s).draw(chance)
        return self._call(keep, Gap(WaitKind.HUMAN if human else WaitKind.TOOL, seconds))

    def _call(self, keep: int, gap: Gap) -> Call:
        """The next call, whose prompt has `self._tokens`; `keep` blocks of it are those of the prompt before."""
        count = self._tokens // BLOCK_TOKENS - keep
        blocks = tuple(range(self._next, self._next + count))
        self._next += count
        self._blocks = keep + count
        finish = "stop" if self._chance.random() < self._shape.people else "tool_calls"
        output = max(1, round(self._shape.output.draw(self._chance)))
        facts = Facts(gap, None, self._tokens, output, finish=finish)
        return Call(keep, blocks=blocks, facts=facts)

"""Made-up traces: the same for a seed, and in their numbers what their shapes say."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from random import Random
from statistics import NormalDist

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.replay.synth import BLOCK_TOKENS, SHAPES, Shape, Spread, synthesize
from agentcache.replay.trace import Call, Link, Session
from agentcache.waits import WaitKind
from tests.traces import block_prompts

KINDS = list(SHAPES)


@cache
def made(kind: str) -> tuple[Session, ...]:
    """Enough sessions that a tenth of them is a number; children not counted."""
    return tuple(synthesize(kind, 400, seed=11))


def agents(kind: str) -> list[Session]:
    return [session for session in made(kind) if not session.among.parent]


def turns(kind: str) -> list[tuple[Call, Call]]:
    """Every call that is not a first one, behind the one before it."""
    return [pair for session in agents(kind) for pair in pairwise(session.calls)]


def share(values: Iterable[bool]) -> float:
    counted = list(values)
    return sum(counted) / len(counted)


def below(spread: Spread, value: float) -> float:
    """How many of what the spread draws do not exceed the value."""
    return NormalDist(0, math.log(spread.p90 / spread.median) / 1.2816).cdf(math.log(value / spread.median))


def test_a_spread_draws_its_median_and_its_ninetieth_percentile() -> None:
    chance = Random(1)
    spread = Spread(10, 80, 200)
    values = sorted(spread.draw(chance) for _ in range(20_000))
    assert values[10_000] == pytest.approx(10, rel=0.05)
    assert values[18_000] == pytest.approx(80, rel=0.05)
    assert values[-1] == 200
    assert share(value == 200 for value in values) == pytest.approx(1 - below(spread, 200), abs=0.005)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_seeds_give_equal_traces(kind: str) -> None:
    first = list(synthesize(kind, 5, seed=3))
    assert list(synthesize(kind, 5, seed=3)) == first
    assert (
        list(synthesize(kind, 4, seed=3))
        == first[: -len(first) + [s.name for s in first].index(f"{kind}-3-4")]
    )
    other = [replace(session, name="", place="", scope="") for session in synthesize(kind, 5, seed=4)]
    assert other != [replace(session, name="", place="", scope="") for session in first]


MEASURES: dict[str, tuple[Callable[[Shape], Spread], Callable[[str], list[float]]]] = {
    "calls": (lambda shape: shape.calls, lambda kind: [len(session.calls) for session in agents(kind)]),
    "own": (
        lambda shape: shape.own,
        lambda kind: [s.calls[0].facts.prompt_tokens - SHAPES[kind].kit_tokens for s in agents(kind)],
    ),
    "output": (
        lambda shape: shape.output,
        lambda kind: [after.facts.output_tokens for _, after in turns(kind)],
    ),
    "tool_s": (lambda shape: shape.tool_s, lambda kind: waits(kind, WaitKind.TOOL)),
    "human_s": (lambda shape: shape.human_s, lambda kind: waits(kind, WaitKind.HUMAN)),
}


def waits(kind: str, whom: WaitKind) -> list[float]:
    gaps = [after.facts.gap for _, after in turns(kind)]
    return [gap.seconds for gap in gaps if gap.kind is whom and gap.seconds is not None]


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("kind", KINDS)
def test_medians_and_ninetieth_percentiles_are_the_shape_s(kind: str, name: str) -> None:
    """Within three standard deviations of so many draws. A swe-agent has nobody to wait for."""
    of_shape, measured = MEASURES[name]
    spread, values = of_shape(SHAPES[kind]), measured(kind)
    if name == "human_s" and not SHAPES[kind].people:
        assert values == []
        return
    near = 3 * math.sqrt(0.25 / len(values))
    assert share(value <= spread.median for value in values) == pytest.approx(0.5, abs=near)
    assert share(value <= spread.p90 for value in values) == pytest.approx(0.9, abs=near)
    assert max(values) <= spread.most


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_grows_by_what_is_added_and_at_least_by_the_answer(kind: str) -> None:
    shape = SHAPES[kind]
    grown = [
        (before, after) for before, after in turns(kind) if after.keep == before.keep + len(before.blocks)
    ]
    growths = [after.facts.prompt_tokens - before.facts.prompt_tokens for before, after in grown]
    assert all(
        growth >= before.facts.output_tokens for growth, (before, _) in zip(growths, grown, strict=True)
    )
    for tokens in (shape.added.median, shape.added.p90):
        expected = below(shape.added, tokens) * below(shape.output, tokens)
        assert share(growth <= tokens for growth in growths) == pytest.approx(expected, abs=0.015)
    assert share(growth >= shape.longest for growth in growths) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_people_shrinks_and_sub_agents_are_as_frequent_as_told(kind: str) -> None:
    shape, pairs = SHAPES[kind], turns(kind)
    human = share(after.facts.gap.kind is WaitKind.HUMAN for _, after in pairs)
    cut = share(after.keep < before.keep + len(before.blocks) for before, after in pairs)
    parents = {session.among.parent for session in made(kind)} - {""}
    assert human == pytest.approx(shape.people, abs=0.01)
    assert cut == pytest.approx(shape.shrinks, abs=0.003)
    assert len(parents) / len(agents(kind)) == pytest.approx(shape.subagents.share, abs=0.02)
    assert bool(parents) == (shape.subagents.share > 0)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_the_whole_blocks_of_the_prompt(kind: str) -> None:
    """An append keeps all and brings new blocks only; a cut keeps the front; blocks are nobody else's."""
    for session in made(kind):
        assert (session.block_tokens, session.scope) == (BLOCK_TOKENS, session.name)
        length, new = 0, 0
        for call, prompt in zip(session.calls, block_prompts(session), strict=True):
            assert call.keep <= length
            assert call.blocks == tuple(range(new, new + len(call.blocks)))
            length, new = len(prompt), new + len(call.blocks)
            assert length == call.facts.prompt_tokens // BLOCK_TOKENS
            assert length >= SHAPES[kind].kit_tokens // BLOCK_TOKENS
        assert session.calls[0].keep == 0
        assert session.calls[0].facts.gap.seconds == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_who_ends_with_a_tool_call_waits_for_a_tool(kind: str) -> None:
    for before, after in turns(kind):
        human = before.facts.finish == "stop"
        assert after.facts.gap.kind is (WaitKind.HUMAN if human else WaitKind.TOOL)


@pytest.mark.parametrize("kind", KINDS)
def test_children_follow_their_parents(kind: str) -> None:
    shape = SHAPES[kind]
    before: dict[str, Session] = {}
    for session in made(kind):
        among = session.among
        if among.parent:
            assert among.link is Link.SPAWN
            assert 1 <= among.after_call <= len(before[among.parent].calls)
            assert len(session.calls) <= shape.subagents.calls.most
        assert session.name not in before
        before[session.name] = session


def test_kits_are_shared_the_first_most_often() -> None:
    names = [session.hidden.name for session in agents("claude-code")]
    shape = SHAPES["claude-code"]
    assert {session.hidden.tokens for session in made("claude-code")} == {shape.kit_tokens}
    assert len(set(names)) == shape.kits
    harmonic = sum(1 / kit for kit in range(1, shape.kits + 1))
    assert names.count("claude tools 0") / len(names) == pytest.approx(1 / harmonic, abs=0.05)


def test_no_prompt_begins_over_the_longest() -> None:
    """A session ends where its prompt has reached it."""
    for session in made("claude-code"):
        assert all(call.facts.prompt_tokens < SHAPES["claude-code"].longest for call in session.calls[:-1])


def test_a_kind_that_there_is_not() -> None:
    with pytest.raises(
        CacheError, match=r"no kind of trace is called 'chat'; there are claude-code, swe-agent"
    ) as caught:
        next(synthesize("chat", 1, 0))
    assert caught.value.kind is Kind.BAD_REQUEST

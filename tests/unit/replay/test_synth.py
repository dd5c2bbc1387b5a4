"""Made-up traces: the same for a seed, and in their numbers what their shapes say."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import NormalDist

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.replay.inspecting import spread
from agentcache.replay.synth import BLOCK_TOKENS, NEVER, SHAPES, Shape, Spread, synthesize
from agentcache.replay.trace import Call, Link, Session
from agentcache.waits import WaitKind
from tests.traces import block_prompts

KINDS = list(SHAPES)


@cache
def made(kind: str) -> tuple[Session, ...]:
    """Enough sessions that their 90th percentile says something; children not counted."""
    return tuple(synthesize(kind, 1_000, seed=11))


def agents(kind: str) -> list[Session]:
    return [session for session in made(kind) if not session.origin.parent]


def turns(kind: str) -> list[tuple[Call, Call]]:
    """Every call that is not a first one, behind the one before it."""
    return [pair for session in agents(kind) for pair in pairwise(session.calls)]


def share(values: Iterable[bool]) -> float:
    counted = list(values)
    return sum(counted) / len(counted)


def below(drawn: Spread, value: float) -> float:
    """How many of what the spread draws do not exceed the value."""
    return NormalDist(0, math.log(drawn.p90 / drawn.median) / 1.2816).cdf(math.log(value / drawn.median))


def test_a_spread_draws_its_median_and_its_ninetieth_percentile() -> None:
    chance = Random(1)
    drawn = Spread(10, 80, 200)
    values = sorted(drawn.draw(chance) for _ in range(20_000))
    assert values[10_000] == pytest.approx(10, rel=0.05)
    assert values[18_000] == pytest.approx(80, rel=0.05)
    assert values[-1] == 200
    assert share(value == 200 for value in values) == pytest.approx(1 - below(drawn, 200), abs=0.005)


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
    drawn, values = of_shape(SHAPES[kind]), measured(kind)
    if name == "human_s" and not SHAPES[kind].people:
        assert values == []
        return
    near = 3 * math.sqrt(0.25 / len(values))
    assert share(value <= drawn.median for value in values) == pytest.approx(0.5, abs=near)
    assert share(value <= drawn.p90 for value in values) == pytest.approx(0.9, abs=near)
    assert max(values) <= drawn.most


def prompts(kind: str) -> list[float]:
    return [call.facts.prompt_tokens for session in agents(kind) for call in session.calls]


def new_tokens(kind: str) -> list[float]:
    """What of each prompt an unlimited cache lacks, if nobody shares anything.

    As it was counted: of Claude Code's block ids those of prompts, of mini-swe-agent's texts all but the answers.
    """
    if SHAPES[kind].cut is not NEVER:
        return [BLOCK_TOKENS * len(call.blocks) for session in agents(kind) for call in session.calls]
    first = [session.calls[0].facts.prompt_tokens - SHAPES[kind].kit_tokens for session in agents(kind)]
    return first + [beyond_the_answer(before, after) for before, after in turns(kind)]


def beyond_the_answer(before: Call, after: Call) -> float:
    return after.facts.prompt_tokens - before.facts.prompt_tokens - before.facts.output_tokens


PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {
    "claude-code": {
        "calls": (43, 149),
        "prompt tokens": (100_000, 196_000),
        "new tokens": (704, 4_928),
        "output": (218, 885),
        "tool_s": (9, 78),
        "human_s": (121, 1_375),
        "waits": (10, 168),
    },
    "swe-agent": {
        "calls": (36, 66),
        "prompt tokens": (12_400, 27_700),
        "new tokens": (86, 639),
        "output": (79, 589),
        "tool_s": (0.64, 4.6),
    },
}
"""Medians and 90th percentiles of the trajectories after which the shapes were made; `waits`: all of them."""

COUNTED: dict[str, Callable[[str], list[float]]] = {
    **{name: counted for name, (_, counted) in MEASURES.items()},
    "prompt tokens": prompts,
    "new tokens": new_tokens,
    "waits": lambda kind: waits(kind, WaitKind.TOOL) + waits(kind, WaitKind.HUMAN),
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, figures in PUBLISHED.items() for name in figures]
)
def test_medians_and_ninetieth_percentiles_are_the_published_ones(kind: str, name: str) -> None:
    """Within a tenth; all waits together, which are no lognormal, within a fifth."""
    told = spread(COUNTED[name](kind))
    assert (told.p50, told.p90) == pytest.approx(PUBLISHED[kind][name], rel=0.2 if name == "waits" else 0.1)


@pytest.mark.parametrize(("kind", "cached"), [("claude-code", 0.963), ("swe-agent", 0.979)])
def test_an_unlimited_cache_has_as_much_of_the_prompts_as_published(kind: str, cached: float) -> None:
    assert 1 - sum(new_tokens(kind)) / sum(prompts(kind)) == pytest.approx(cached, abs=0.005)


ROWS = {
    "calls a session": "calls",
    "prompt tokens": "prompt tokens",
    "of them new": "new tokens",
    "output tokens": "output",
    "waits for tools, s": "tool_s",
    "waits for people, s": "human_s",
}


@pytest.mark.parametrize("row", ROWS)
def test_the_page_about_traces_tells_these_figures(row: str) -> None:
    """What is made beside what is published, each with as many digits as it needs."""

    def told(p50: float, p90: float, digits: int = 0) -> str:
        return f"{p50:,.{digits}f} / {p90:,.{digits}f}"

    name, cells = ROWS[row], [row]
    for kind in KINDS:
        if name in PUBLISHED[kind]:
            made_up = spread(COUNTED[name](kind))
            p50, p90 = PUBLISHED[kind][name]
            cells.append(told(made_up.p50, made_up.p90, 2 if name.endswith("_s") else 0))
            cells.append(f"{p50:,} / {p90:,}")
    page = (Path(__file__).parents[3] / "docs" / "traces.md").read_text(encoding="utf-8")
    assert f"| {' | '.join(cells)} |" in page


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_grows_by_the_answer_and_by_what_is_added(kind: str) -> None:
    added = SHAPES[kind].added
    beyond = [beyond_the_answer(*pair) for pair in turns(kind) if not is_cut(*pair)]
    near = 3 * math.sqrt(0.25 / len(beyond)) + 0.005
    assert share(tokens <= added.median for tokens in beyond) == pytest.approx(0.5, abs=near)
    assert share(tokens <= added.p90 for tokens in beyond) == pytest.approx(0.9, abs=near)
    assert (min(beyond) >= 0, max(beyond) <= added.most) == (True, True)


def is_cut(before: Call, after: Call) -> bool:
    shorter = after.facts.prompt_tokens < before.facts.prompt_tokens
    return shorter or after.keep < before.keep + len(before.blocks)


@pytest.mark.parametrize(
    ("kind", "human", "cut", "parents"), [("claude-code", 0.139, 0.018, 0.025), ("swe-agent", 0, 0, 0)]
)
def test_people_cuts_and_sub_agents_are_as_frequent_as_published(
    kind: str, human: float, cut: float, parents: float
) -> None:
    pairs = turns(kind)
    told = {session.origin.parent for session in made(kind)} - {""}
    assert share(after.facts.gap.kind is WaitKind.HUMAN for _, after in pairs) == pytest.approx(
        human, abs=0.005
    )
    assert share(is_cut(*pair) for pair in pairs) == pytest.approx(cut, abs=0.003)
    assert len(told) / len(agents(kind)) == pytest.approx(parents, abs=0.01)


def test_a_cut_keeps_the_tools_and_a_part() -> None:
    """A prompt that has reached its session's window is cut, and never longer than what was cut."""
    shape = SHAPES["claude-code"]
    for before, after in turns("claude-code"):
        tokens = before.facts.prompt_tokens
        if is_cut(before, after):
            kept = max(shape.kit_tokens, round(shape.cut.kept * tokens))
            assert after.keep == kept // BLOCK_TOKENS
            assert kept <= after.facts.prompt_tokens <= max(kept, math.ceil(shape.cut.length.most * tokens))
        else:
            assert tokens < shape.cut.window.most


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
        origin = session.origin
        if origin.parent:
            assert origin.link is Link.SPAWN
            assert 1 <= origin.after_call <= len(before[origin.parent].calls)
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


def test_a_kind_that_there_is_not() -> None:
    with pytest.raises(
        CacheError, match=r"no kind of trace is called 'chat'; there are claude-code, swe-agent"
    ) as caught:
        next(synthesize("chat", 1, 0))
    assert caught.value.kind is Kind.BAD_REQUEST

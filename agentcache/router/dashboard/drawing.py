"""Geometry of what is drawn: percentages across, pixels down. Everything comes in as counts and leaves as numbers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agentcache.router.dashboard.answers import Branch, Slots, Turn
from agentcache.router.dashboard.rates import TIERS, Column

ROW_PX: Final = 9
LEAST: Final = 0.25
"""The least width of what is there at all."""
TICKS: Final = 6
COLUMNS: Final = 60
CHART_PX: Final = 84


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of a line, of a kind that the style knows; percent."""

    kind: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a column; percent across, pixels down."""

    kind: str
    x: float
    width: float
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Line:
    """A branch: its bars from left to right; it leaves its parent's line at `x`, `up` pixels above its own."""

    x: float
    y: int
    up: int
    bars: tuple[Bar, ...]
    branch: Branch


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Picture:
    """A tree, left to right by tokens."""

    lines: tuple[Line, ...] = ()
    ticks: tuple[Tick, ...] = ()
    height: int = 0


def pool_bars(slots: Slots) -> tuple[Bar, ...]:
    """What of a pool is taken, from left to right; the rest is free."""
    referenced = min(slots.referenced, slots.cached)
    parts = {
        "running": slots.leased + slots.in_flight,
        "referenced": referenced,
        "cached": slots.cached - referenced,
    }
    return tuple(_side_by_side(parts, max(1, slots.size)))


def turn_bars(turn: Turn, longest: int) -> tuple[Bar, ...]:
    """A prompt's tokens by the tier that they came from, and those that were computed."""
    cached = {str(tier): turn.cached_tokens.get(tier, 0) for tier in TIERS}
    computed = max(0, turn.prompt_tokens - sum(cached.values()))
    return tuple(_side_by_side({**cached, "computed": computed}, max(1, longest)))


def rate_blocks(columns: Sequence[Column]) -> tuple[Block, ...]:
    """Shares by tier, stacked from the bottom; a stretch without prompts stays empty."""
    width = 100 / max(1, len(columns))
    return tuple(
        block for number, column in enumerate(columns) for block in _stacked(column, number * width, width)
    )


def _stacked(column: Column, x: float, width: float) -> Iterator[Block]:
    top = float(CHART_PX)
    for tier, share in zip(TIERS, column.shares, strict=False):
        height = min(top, share * CHART_PX)
        top -= height
        if height > 0:
            yield Block(str(tier), x, width, top, height)


def tree_picture(branches: Sequence[Branch], page_tokens: int) -> Picture:
    """Each branch on the line of its parent if it is the first there, else on one of its own below.

    Cost: O(branches)
    """
    if not branches:
        return Picture()
    longest = max(1, *(branch.end for branch in branches))
    rows = _rows(branches)
    lines = tuple(_line(branch, rows, page_tokens, longest) for branch in enumerate(branches))
    step = _step(longest)
    ticks = tuple(Tick(100 * at / longest, at) for at in range(0, longest + 1, step))
    return Picture(lines, ticks, (max(rows) + 1) * ROW_PX)


def _rows(branches: Sequence[Branch]) -> list[int]:
    """The line of each branch. A parent that is not before its child is as good as none."""
    below: dict[int, list[int]] = {}
    for number, branch in enumerate(branches):
        below.setdefault(_above(number, branch), []).append(number)
    rows = [0] * len(branches)
    free = 0
    waiting = [(number, -1) for number in reversed(below.get(-1, []))]
    while waiting:
        number, row = waiting.pop()
        if row < 0:
            row, free = free, free + 1
        rows[number] = row
        first, *others = below.get(number, []) or [-1]
        waiting += [(other, -1) for other in reversed(others)]
        if first >= 0:
            waiting.append((first, row))
    return rows


def _line(numbered: tuple[int, Branch], rows: Sequence[int], page_tokens: int, longest: int) -> Line:
    number, branch = numbered
    above, y = _above(number, branch), rows[number] * ROW_PX
    up = y - rows[above] * ROW_PX if above >= 0 else 0
    x = 100 * min(branch.start, longest) / longest
    return Line(x, y, up, tuple(_stretches(branch, page_tokens, longest)), branch)


def _stretches(branch: Branch, page_tokens: int, longest: int) -> Iterator[Bar]:
    """Of a path whatever is referenced or held is so from its beginning on, and what is out of reach is its end."""
    start, end = branch.start, max(branch.start, branch.end)
    running = min(end, start + branch.running_pages * page_tokens)
    referenced = min(end, max(running, start + branch.referenced_pages * page_tokens))
    reusable = min(end, max(referenced, branch.reusable))
    edges = {"running": (start, running), "referenced": (running, referenced)}
    edges |= {"cached": (referenced, reusable), "beyond": (reusable, end)}
    for kind, (left, right) in edges.items():
        if right > left:
            yield Bar(kind, 100 * left / longest, max(LEAST, 100 * (right - left) / longest))


def _above(number: int, branch: Branch) -> int:
    parent = -1 if branch.parent is None else branch.parent
    return parent if parent < number else -1


def _step(longest: int) -> int:
    """A round number of tokens between ticks: 1, 2 or 5 times a power of ten."""
    power = int("1".ljust(len(str(max(1, longest // TICKS))), "0"))
    return next(step for step in (power, 2 * power, 5 * power, 10 * power) if longest <= step * TICKS)


def _side_by_side(parts: Mapping[str, int], whole: int) -> Iterable[Bar]:
    at = 0.0
    for kind, count in parts.items():
        width = min(100.0 - at, 100 * count / whole)
        if width > 0:
            yield Bar(kind, at, width)
            at += width

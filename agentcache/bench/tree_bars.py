"""What the native core has to reach, and how far figures of one run are from it.

Every bar names one figure of ours and what it may cost: a share of the peer's native core, a number of
microseconds, a multiple of comparing the bytes, or of the same call in a tree of a tenth of the leaves.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from agentcache.bench.tree_rows import REFERENCED, UNREFERENCED, Row

OURS = "native"
IN_RUST = "native-rust"
PEER = "sglang-rust"
PEER_WITH_SESSIONS = "sglang-sessions"


@dataclass(frozen=True, slots=True)
class Where:
    """Which row: everything that is said must be equal."""

    op: str
    components: str
    page: int
    tokens: int | None = None
    leaves: int | None = None
    sessions: str | None = None
    shape: str | None = None

    def among(self, rows: Sequence[Row], core: str) -> Row | None:
        """The first row of `core` that this says."""
        said = {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}
        return next((row for row in rows if row.core == core and _says(row, said)), None)


def _says(row: Row, said: dict[str, object]) -> bool:
    return all(getattr(row, name) == value for name, value in said.items())


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a condition lets a figure cost, in its unit, and why."""

    limit: float
    why: str


Condition = Callable[[Where, Sequence[Row]], Allowed | None]
"""None where what it compares with was not measured."""


def part_of_peer(parts: int) -> Condition:
    def allow(where: Where, rows: Sequence[Row]) -> Allowed | None:
        peer = replace(where, sessions=None).among(rows, PEER)
        return Allowed(peer.best_us / parts, f"1/{parts} of its {_number(peer.best_us)}") if peer else None

    return allow


def at_most(limit: float) -> Condition:
    return lambda _where, _rows: Allowed(limit, f"at most {_number(limit)}")


def times_comparing(times: float) -> Condition:
    def allow(where: Where, rows: Sequence[Row]) -> Allowed | None:
        floor = next((row for row in rows if (row.op, row.tokens) == ("memcmp", where.tokens)), None)
        if not floor:
            return None
        return Allowed(floor.best_us * times, f"{times} × memcmp's {_number(floor.best_us)}")

    return allow


def times_fewer_leaves(times: float, leaves: int) -> Condition:
    def allow(where: Where, rows: Sequence[Row]) -> Allowed | None:
        fewer = replace(where, leaves=leaves).among(rows, OURS)
        if not fewer:
            return None
        return Allowed(fewer.best_us * times, f"{times} × {_number(fewer.best_us)} at {leaves:,} leaves")

    return allow


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure and its conditions: all of them, or (`either`) one of them."""

    title: str
    where: Where
    conditions: tuple[Condition, ...]
    either: bool = False


FIFTH, EIGHTH = part_of_peer(5), part_of_peer(8)
FLAT = (at_most(3), times_fewer_leaves(1.5, 10_000))
LEAVES = 100_000
CONTEXT = 40_000
"""Tokens at the end of 200 rounds."""


def _evict(component: str, components: str, sessions: str, conditions: tuple[Condition, ...]) -> Bar:
    where = Where("evict_1", components, 16, leaves=LEAVES, sessions=sessions)
    return Bar(f"evict 1 of {component}, {LEAVES:,} leaves, {sessions}", where, conditions)


BARS = (
    Bar("round, FULL, page 1", Where("round", "FULL", 1, CONTEXT), (FIFTH,)),
    Bar("round, FULL, page 64", Where("round", "FULL", 64, CONTEXT), (FIFTH,)),
    Bar("round, FULL+SWA128, page 1", Where("round", "FULL+SWA128", 1, CONTEXT), (FIFTH,)),
    Bar("last 20 rounds, FULL, page 64", Where("round_last20", "FULL", 64, CONTEXT), (EIGHTH,)),
    Bar(
        "match 131,072 tokens on a chain, page 64",
        Where("match", "FULL", 64, 131_072, shape="chain"),
        (FIFTH, times_comparing(1.3)),
        either=True,
    ),
    _evict("FULL", "FULL", UNREFERENCED, FLAT),
    _evict("FULL", "FULL", REFERENCED, FLAT),
    _evict("SWA", "FULL+SWA128", UNREFERENCED, FLAT[:1]),
    _evict("MAMBA", "FULL+MAMBA", UNREFERENCED, FLAT[:1]),
    Bar("close a session, path of 11 nodes", Where("close", "FULL", 1), (at_most(2),)),
    Bar(
        "bytes a node, pages of 64, tokens included",
        Where("bytes_per_node", "FULL", 64, sessions=UNREFERENCED),
        (at_most(600),),
    ),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar, what we cost, what the peer does, and what decides: the condition nearest to its edge."""

    bar: Bar
    ours: Row | None
    in_rust: Row | None
    peer: Row | None
    with_sessions: Row | None
    allowed: Allowed | None

    @property
    def share(self) -> float | None:
        """Of what is allowed, how much we use; above 1 the bar is missed."""
        return self.ours.best_us / self.allowed.limit if self.ours and self.allowed else None

    def __str__(self) -> str:
        match self.share:
            case None:
                return "not measured"
            case share if share <= 1:
                return f"met ({share:.2f} of it)"
            case share:
                return f"missed ({share:.2f} times it)"


def judge(rows: Sequence[Row], bars: Sequence[Bar] = BARS) -> list[Verdict]:
    """Every bar against the rows of one run, ours and the peer's."""
    return [_judge(bar, rows) for bar in bars]


def _judge(bar: Bar, rows: Sequence[Row]) -> Verdict:
    anyones = replace(bar.where, sessions=None)
    found = [condition(bar.where, rows) for condition in bar.conditions]
    limits = [allowed for allowed in found if allowed]
    known = len(limits) == len(found) or (bar.either and limits)
    pick = max if bar.either else min
    return Verdict(
        bar,
        bar.where.among(rows, OURS),
        bar.where.among(rows, IN_RUST),
        anyones.among(rows, PEER),
        bar.where.among(rows, PEER_WITH_SESSIONS) or anyones.among(rows, PEER_WITH_SESSIONS),
        pick(limits, key=lambda allowed: allowed.limit) if known else None,
    )


HEADINGS = (
    "bar",
    "SGLang Rust",
    "SGLang sessions",
    "ours",
    "median",
    "in Rust",
    "Rust ÷ ours",
    "sessions ÷ ours",
    "allowed",
    "verdict",
)
TEXTS = ("bar", "allowed", "verdict")
IN_README = tuple(name for name in HEADINGS if name != "sessions ÷ ours")


def lines(verdicts: Sequence[Verdict]) -> Iterator[tuple[str, ...]]:
    """One line of text fields for each bar, as HEADINGS name them."""
    for one in verdicts:
        ours = one.ours
        yield (
            one.bar.title,
            _best(one.peer),
            _best(one.with_sessions),
            _best(ours),
            _number(ours.median_us) if ours else "-",
            _best(one.in_rust),
            _ratio(ours, one.peer),
            _ratio(ours, one.with_sessions),
            f"{_number(one.allowed.limit)}: {one.allowed.why}" if one.allowed else "-",
            str(one),
        )


def show(verdicts: Sequence[Verdict], console: Console) -> None:
    table = Table(title="microseconds, best of the passes (bytes a node: bytes)", title_justify="left")
    for name in HEADINGS:
        table.add_column(name, justify="left" if name in TEXTS else "right")
    for line in lines(verdicts):
        table.add_row(*line)
    console.print(table)


def markdown(verdicts: Sequence[Verdict]) -> str:
    """The same for a README, with fewer columns."""
    rules = tuple("---" if name in TEXTS else "--:" for name in HEADINGS)
    shown = [HEADINGS.index(name) for name in IN_README]
    return "\n".join(
        f"| {' | '.join(line[at] for at in shown)} |" for line in (HEADINGS, rules, *lines(verdicts))
    )


def _best(row: Row | None) -> str:
    return _number(row.best_us) if row else "-"


def _ratio(ours: Row | None, peer: Row | None) -> str:
    return _number(peer.best_us / ours.best_us) if ours and peer else "-"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

"""What a replay answers: one JSON object, or the same as a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from agentcache.replay.compare import Comparison, median_ms
from agentcache.replay.outcome import Refused
from agentcache.replay.run import Played
from agentcache.replay.trace import Session

NO_COMPARISON = Comparison(())


@dataclass(slots=True)
class Asked:
    """What a replay sends, and how. Tokens of the trace's blocks, and as how many each is sent (0: as it is);
    `speed` 0: no gap is waited for.
    """

    scale: int = 0
    speed: float = 0.0
    turns: int = 0
    sub_agents: int = 0
    block_tokens: set[int] = field(default_factory=set)

    def add(self, session: Session, turns: int) -> None:
        """A session of which so many turns are sent."""
        self.turns += turns
        self.sub_agents += bool(session.origin.parent)
        self.block_tokens |= {session.block_tokens} - {0}

    def one_by_one(self, at_once: int) -> bool:
        """Whether no two of its requests run at the same time."""
        return at_once == 1 and not self.sub_agents

    def as_json(self) -> dict[str, Any]:
        """Nothing where there are no blocks and no speed."""
        sizes = sorted(self.block_tokens)
        blocks = {"block_tokens": sizes, "sent_block_tokens": [self.scale or size for size in sizes]}
        return {**(blocks if sizes else {}), **({"speed": self.speed} if self.speed else {})}

    def lines(self) -> Iterator[str]:
        sizes = ", ".join(map(str, sorted(self.block_tokens)))
        if sizes:
            scaled = f", each sent as {self.scale} tokens" if self.scale else ""
            yield f"Text was made up for blocks of {sizes} tokens{scaled}."
        if self.speed:
            yield f"Recorded gaps were waited for, divided by {self.speed:g}."


@dataclass(frozen=True, slots=True)
class Report:
    """One run. `cold` is empty unless sessions were repeated with the cache off."""

    model: str
    played: Sequence[Played]
    in_file: int
    comparison: Comparison = NO_COMPARISON
    strict_tokens: bool = False
    """True if batching cannot explain a differing token: one request at a time."""
    asked: Asked = field(default_factory=Asked)

    @property
    def skipped(self) -> int:
        return sum(refused.skipped for one in self.played for _, refused in one.refusals)

    @property
    def failed(self) -> int:
        return sum(not refused.skipped for one in self.played for _, refused in one.refusals)

    @property
    def differs(self) -> bool:
        """True if the cache changed an answer: first logits always count, later tokens when nothing else can."""
        has_digests = any(pair.cold.first_logits for pair in self.comparison.pairs)
        logits = has_digests and bool(self.comparison.logits_differ)
        return logits or (self.strict_tokens and bool(self.comparison.outputs_differ))

    @property
    def complete(self) -> bool:
        return bool(self.played) and not (self.skipped or self.failed or self.differs)

    def as_json(self) -> dict[str, Any]:
        """Tokens are counts, times milliseconds."""
        totals = _row("total", self.played)
        compared = {"compared_cold": _compared(self.comparison)} if self.comparison.pairs else {}
        return {
            "model": self.model,
            "sessions_in_file": self.in_file,
            "complete": self.complete,
            **self.asked.as_json(),
            "totals": {**totals, "sessions": len(self.played)},
            "sessions": [{**_row(one.name, [one]), "refused": _refused(one)} for one in self.played],
            **compared,
        }

    def show(self, console: Console) -> None:
        """The table, then what was passed over and what the comparison found."""
        console.print(session_table(self.played))
        refused = (line for one in self.played for line in refusal_lines(one))
        for line in (*refused, *self.asked.lines()):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        if self.comparison.pairs:
            console.print(_comparison_line(self.comparison), highlight=False, soft_wrap=True)
        console.print(
            f"Replayed {len(self.played)} of {self.in_file} sessions in the file on {self.model}.",
            highlight=False,
        )


def refusal_lines(one: Played) -> list[str]:
    """One line for each reason why turns of a session were not answered, with the first message."""
    by_code: dict[str, list[tuple[int, Refused]]] = {}
    for turn, refused in one.refusals:
        by_code.setdefault(refused.code, []).append((turn, refused))
    lines = []
    for found in by_code.values():
        turn, refused = found[0]
        done = "skipped" if refused.skipped else "failed"
        turns = f"turn {turn}" if len(found) == 1 else f"{len(found)} turns from turn {turn} on"
        lines.append(f"{done}: {one.name}, {turns}: {refused.message}")
    return lines


def session_table(played: Sequence[Played]) -> Table:
    """One line a session and one for all."""
    table = Table(title="Replay", title_justify="left")
    table.add_column("session", overflow="fold")
    for name in ("turns", "prompt", "cached", "hits", "1st ms", "later ms"):
        table.add_column(name, justify="right")
    rows = [_row(one.name, [one]) for one in played]
    for row in rows[:-1]:
        table.add_row(*_cells(row))
    for row in rows[-1:]:
        table.add_row(*_cells(row), end_section=True)
    table.add_row(*_cells(_row("all", played)), style="bold")
    table.caption = "prompt, cached: tokens; ms: time to the first token, 1st and later turns, median"
    return table


def hit_rate(played: Sequence[Played]) -> float:
    """Cached share of all prompt tokens of the answered turns."""
    prompt = sum(answer.prompt_tokens for one in played for answer in one.answers)
    cached = sum(answer.cached_tokens for one in played for answer in one.answers)
    return round(cached / prompt, 4) if prompt else 0.0


def _row(name: str, played: Sequence[Played]) -> dict[str, Any]:
    answers = [answer for one in played for answer in one.answers]
    return {
        "name": name,
        "turns": len(answers),
        "turns_in_trace": sum(one.in_trace for one in played),
        "skipped": sum(refused.skipped for one in played for _, refused in one.refusals),
        "failed": sum(not refused.skipped for one in played for _, refused in one.refusals),
        "prompt_tokens": sum(answer.prompt_tokens for answer in answers),
        "cached_tokens": sum(answer.cached_tokens for answer in answers),
        "completion_tokens": sum(answer.completion_tokens for answer in answers),
        "hit_rate": hit_rate(played),
        "ttft_first_turn_ms": median_ms(one.answers[0].ttft_ns for one in played if one.answers),
        "ttft_later_turns_ms": median_ms(answer.ttft_ns for one in played for answer in one.answers[1:]),
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    turns = f"{row['turns']} of {row['turns_in_trace']}"
    counts = (f"{row['prompt_tokens']:,}", f"{row['cached_tokens']:,}", f"{row['hit_rate']:.1%}")
    times = (f"{row['ttft_first_turn_ms']:,.0f}", f"{row['ttft_later_turns_ms']:,.0f}")
    return (row["name"], turns, *counts, *times)


def _refused(one: Played) -> list[dict[str, Any]]:
    return [
        {"turn": turn, "skipped": refused.skipped, "code": refused.code, "message": refused.message}
        for turn, refused in one.refusals
    ]


def _compared(comparison: Comparison) -> dict[str, Any]:
    return {
        "turns": len(comparison.pairs),
        "same_first_logits": len(comparison.pairs) - len(comparison.logits_differ),
        "same_outputs": len(comparison.pairs) - len(comparison.outputs_differ),
        "ttft_warm_ms": comparison.ttft_warm_ms,
        "ttft_cold_ms": comparison.ttft_cold_ms,
    }


def _comparison_line(comparison: Comparison) -> str:
    found = _compared(comparison)
    return (
        f"Cache off against on, {found['turns']} turns: first logits equal in {found['same_first_logits']}, outputs"
        f" in {found['same_outputs']}; median first token of later turns {found['ttft_cold_ms']:,.0f} ms off,"
        f" {found['ttft_warm_ms']:,.0f} ms on."
    )

"""What the demo found: the JSON that it writes, its table, and its last sentence."""

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from agentcache.replay.compare import Comparison, compare, median_ms
from agentcache.replay.passes import Identity, Together
from agentcache.replay.report import hit_rate, refusal_lines
from agentcache.replay.run import Played


@dataclass(frozen=True, slots=True)
class Size:
    """How much of a trace the demo takes: sessions of those in the file, turns of those in these sessions."""

    path: str
    sessions: int
    sessions_in_file: int
    turns: int
    turns_in_sessions: int
    max_tokens: int

    def sentence(self) -> str:
        return (
            f"{self.sessions} of {self.sessions_in_file} sessions of {self.path}, {self.turns} of their"
            f" {self.turns_in_sessions} turns, {self.max_tokens} new tokens a turn."
        )


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Both passes, side by side with the turns whose cache was off."""

    model: str
    size: Size
    identity: Identity
    together: Together
    seconds: float

    @property
    def alone(self) -> Comparison:
        return compare(self.identity.warm, self.identity.cold)

    @property
    def at_once(self) -> Comparison:
        return compare(self.together.played, self.identity.cold)

    @property
    def references_left(self) -> int:
        return self.identity.left + self.together.left

    @property
    def refused(self) -> int:
        """Turns without an answer, over the context or failed."""
        passes = (self.identity.cold, self.identity.warm, self.together.played)
        return max(sum(len(one.refusals) for one in played) for played in passes)

    def faults(self) -> list[str]:
        """Why the demo failed; empty if it did not."""
        found = [
            (not self.alone.identical, "the cache changed an answer"),
            (bool(self.at_once.logits_differ), "first logits changed when all sessions ran at once"),
            (self.references_left > 0, f"{self.references_left} references left after the closes"),
            (self.together.while_open.markers == 0, "no reference was seen while sessions were open"),
            (self.refused > 0, f"{self.refused} turns were not answered"),
        ]
        return [fault for holds, fault in found if holds]

    def as_json(self) -> dict[str, Any]:
        """ttft_* are medians over the same turns, the second and later of each session, one request at a time."""
        alone, at_once, warm = self.alone, self.at_once, self.identity.warm
        return {
            "sessions": self.size.sessions,
            "turns": len(alone.pairs),
            "prompt_tokens": _sum(warm, "prompt_tokens"),
            "cached_tokens": _sum(warm, "cached_tokens"),
            "hit_rate": hit_rate(warm),
            "ttft_cold_ms": alone.ttft_cold_ms,
            "ttft_warm_ms": alone.ttft_warm_ms,
            "outputs_identical": alone.identical,
            "open_references_after_close": self.references_left,
            "model": self.model,
            "trace": self.size.path,
            "sessions_in_file": self.size.sessions_in_file,
            "turns_in_sessions": self.size.turns_in_sessions,
            "max_tokens": self.size.max_tokens,
            "turns_not_answered": self.refused,
            "differences": _differences(alone),
            "first_logits_identical": len(alone.pairs) - len(alone.logits_differ),
            "greedy_tokens_identical": len(alone.pairs) - len(alone.outputs_differ),
            "concurrent": {
                "turns": len(at_once.pairs),
                "prompt_tokens": _sum(self.together.played, "prompt_tokens"),
                "cached_tokens": _sum(self.together.played, "cached_tokens"),
                "hit_rate": hit_rate(self.together.played),
                "ttft_ms": _later_ms(self.together.played),
                "first_logits_identical": len(at_once.pairs) - len(at_once.logits_differ),
                "greedy_tokens_identical": len(at_once.pairs) - len(at_once.outputs_differ),
                "open_references_before_close": self.together.while_open.markers,
                "referenced_slots_before_close": self.together.while_open.slots,
                "open_sessions_by_worker": list(self.together.while_open.by_worker),
            },
            "seconds": round(self.seconds, 1),
        }

    def show(self, console: Console) -> None:
        """Refused turns, the table, and one sentence of what was shown."""
        for line in (line for one in self.identity.warm for line in refusal_lines(one)):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        console.print(_table(self))
        for difference in _differences(self.alone):
            console.print(f"differs: {difference}", markup=False)
        for fault in self.faults():
            console.print(f"[bold red]Failed:[/] {fault}.")
        console.print(_sentence(self), highlight=False, soft_wrap=True)


def _table(result: DemoResult) -> Table:
    cold, warm, together = result.identity.cold, result.identity.warm, result.together.played
    table = Table(title=f"{result.model}, float32: {result.size.sessions} sessions", title_justify="left")
    for name in ("", "cache off", "cache on", "cache on, all at once"):
        table.add_column(name, justify="left" if not name else "right")
    passes = (cold, warm, together)
    table.add_row("turns", *(str(sum(len(one.answers) for one in played)) for played in passes))
    table.add_row("prompt tokens", *(f"{_sum(played, 'prompt_tokens'):,}" for played in passes))
    table.add_row("of these cached", *(f"{_sum(played, 'cached_tokens'):,}" for played in passes))
    table.add_row("hit rate", *(f"{hit_rate(played):.1%}" for played in passes))
    table.add_row("first token, turn 1", *(f"{_first_ms(played):,.0f} ms" for played in passes))
    table.add_row("first token, later", *(f"{_later_ms(played):,.0f} ms" for played in passes))
    compared = (result.alone, result.at_once)
    table.add_row("same first logits", "", *(_share(c, c.logits_differ) for c in compared))
    table.add_row("same greedy tokens", "", *(_share(c, c.outputs_differ) for c in compared))
    table.add_row("references while open", "", "", str(result.together.while_open.markers))
    table.add_row(
        "open sessions by worker", "", "", " + ".join(map(str, result.together.while_open.by_worker))
    )
    table.add_row("references once closed", "", str(result.identity.left), str(result.together.left))
    table.caption = (
        "first token: median time; same: as with the cache off; references: while open, once closed"
    )
    return table


def _sentence(result: DemoResult) -> str:
    alone = result.alone
    times = alone.ttft_cold_ms / alone.ttft_warm_ms if alone.ttft_warm_ms else 0.0
    same = "the same, bit for bit," if alone.identical else "NOT the same"
    return (
        f"With the cache on, {hit_rate(result.identity.warm):.0%} of the prompt tokens were not computed again; the"
        f" first token of later turns came {times:.1f} times sooner ({alone.ttft_warm_ms:,.0f} ms instead of"
        f" {alone.ttft_cold_ms:,.0f} ms, medians); first-token logits and greedy tokens were {same} as with the"
        f" cache off; {result.references_left} references were left after the sessions were closed"
        f" ({result.seconds:.0f} s in all)."
    )


def _differences(comparison: Comparison) -> list[str]:
    """Every turn whose answer the cache changed, and what of it."""
    logits = [f"{pair.name} turn {pair.turn}: first logits" for pair in comparison.logits_differ]
    return logits + [f"{pair.name} turn {pair.turn}: tokens" for pair in comparison.outputs_differ]


def _share(comparison: Comparison, differing: list[Any]) -> str:
    return f"{len(comparison.pairs) - len(differing)} of {len(comparison.pairs)}"


def _sum(played: list[Played], name: str) -> int:
    return sum(getattr(answer, name) for one in played for answer in one.answers)


def _first_ms(played: list[Played]) -> float:
    return median_ms(one.answers[0].ttft_ns for one in played if one.answers)


def _later_ms(played: list[Played]) -> float:
    return median_ms(answer.ttft_ns for one in played for answer in one.answers[1:])

"""What `bench tree --ttft` found, as JSON or as a table: medians over trials of every round, then means over rounds."""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean, median
from typing import Any

from rich.console import Console
from rich.table import Table

from agentcache.bench.tree_ttft_run import BASELINE, CORES, OURS, Talk, Trial

Report = dict[str, Any]
LAST = 25
TIMES = ("total_ms", "prefill_ms", "residual_ms")


def report(model: str, talk: Talk, threads: int, trials: Sequence[Trial]) -> Report:
    """One model: every round's medians, the sums over all rounds and over the last 25, and whether the cores agree."""
    rounds = [_round(talk, trials, at) for at in range(talk.rounds)]
    spans = dict.fromkeys((range(talk.rounds), range(max(0, talk.rounds - LAST), talk.rounds)))
    return {
        "model": model,
        "talk": asdict(talk),
        "threads": threads,
        "spans": [_span(span, rounds, trials) for span in spans],
        "rounds": rounds,
        "differences": sum(_differ(trial, at) for trial in trials for at in range(talk.rounds)),
    }


def _round(talk: Talk, trials: Sequence[Trial], at: int) -> Report:
    row: Report = {"round": at + 1, "prompt_tokens": talk.prompt_tokens(at + 1)}
    row["cached_tokens"] = trials[0][OURS][at].cached_tokens
    for core in CORES:
        row[core] = {time: median([getattr(one[core][at], time) for one in trials]) for time in TIMES}
    return row


def _span(span: range, rounds: Sequence[Report], trials: Sequence[Trial]) -> Report:
    """Means over the rounds of a span. `ratio` is the reference's time by the native core's; `trials` one each."""
    found: Report = {"first": span.start + 1, "last": span.stop}
    for core in CORES:
        found[core] = {time: round(fmean(rounds[at][core][time] for at in span), 4) for time in TIMES}
    ours, theirs = found[OURS], found[BASELINE]
    found["ratio"] = {time: round(theirs[time] / ours[time], 4) for time in TIMES}
    found["trials"] = [
        {time: round(_sum(trial, BASELINE, time, span) / _sum(trial, OURS, time, span), 4) for time in TIMES}
        for trial in trials
    ]
    return found


def _sum(trial: Trial, core: str, time: str, span: range) -> float:
    return float(sum(getattr(trial[core][at], time) for at in span))


def _differ(trial: Trial, at: int) -> bool:
    """Whether the cores restored another part of a prompt, or answered otherwise."""
    seen = {(trial[core][at].cached_tokens, trial[core][at].logits) for core in CORES}
    return len(seen) > 1


def show(results: Sequence[Report], console: Console) -> None:
    """One line for each model, span and time."""
    talk = results[0]["talk"]
    table = Table(
        title=f"{talk['rounds']} rounds of {talk['asked']} + {talk['answered']} tokens, pages of "
        f"{talk['page_tokens']}, grid {talk['grid_tokens']}, torch threads {results[0]['threads'] or 'as it likes'}: "
        f"ms a round, medians over trials: {talk['trials']}",
        title_justify="left",
    )
    names = ("model", "rounds", "time", "reference", "native", "saved", "ratio", "ratio of each trial")
    for number, name in enumerate(names):
        table.add_column(name, justify="right" if number > 2 else "left", no_wrap=True)
    for result in results:
        for span in result["spans"]:
            for time in TIMES:
                table.add_row(result["model"], f"{span['first']}-{span['last']}", *_figures(span, time))
        table.add_section()
    console.print(table)
    wrong = {result["model"]: result["differences"] for result in results if result["differences"]}
    said = f"DIFFER in so many rounds: {wrong}" if wrong else "the same in every round, bit for bit"
    console.print(f"restored prefixes and first tokens' logits of the two cores: {said}", highlight=False)


def _figures(span: Report, time: str) -> list[str]:
    ours, theirs = (span[core][time] for core in (OURS, BASELINE))
    trials = [one[time] for one in span["trials"]]
    return [
        time.removesuffix("_ms"),
        f"{theirs:,.2f}",
        f"{ours:,.2f}",
        f"{1 - ours / theirs:.1%}",
        f"{span['ratio'][time]:.2f}",
        f"{min(trials):.2f}-{max(trials):.2f}",
    ]

"""The tree cores by the time to the first token: `agentcache bench tree --ttft`.

A conversation of 200 rounds, each of 100 tokens asked and 100 given as answered, on built-in models; both cores in one
run, round by round, now the one first, now the other.

    total      from submitting a round to its first token
    prefill    the part of it in which the model computed the prompt
    residual   the rest: tree, scheduler, restoring the prefix, publishing

--json prints {"results": [...]}, one for each model:

    model, talk    what was measured, with so many torch `threads`
    spans          all rounds, and the last 25: `first`, `last`; ms a round of each core (`total_ms`, `prefill_ms`,
                   `residual_ms`: medians over trials, means over rounds); `ratio` = reference / native, and `trials`
    rounds         `round`, `prompt_tokens`, `cached_tokens`, and the medians of each core
    differences    rounds in which the cores restored or answered otherwise; 0, or the exit code is 1
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from agentcache.bench.options import add_answers, answer, chosen_by, natural, parser_of, positive
from agentcache.bench.tree_ttft_kept import Book, open_book, terms_of
from agentcache.bench.tree_ttft_report import Report, report, show
from agentcache.bench.tree_ttft_run import CORES, Bench, Talk
from agentcache.build import require_core
from agentcache.clock import SystemClock
from agentcache.replay.progress import steps

MODELS = ("tiny-full", "tiny-swa", "tiny-hybrid")
DEFAULT = Talk()
QUICK = replace(DEFAULT, rounds=30, trials=2)


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a table or one JSON object; 0 when both cores restored and answered the same."""
    options = _parser().parse_args(arguments)
    for core in CORES:
        require_core(core)
    talk = chosen_by(options, QUICK if options.quick else DEFAULT)
    terms = terms_of(talk, options.threads)
    book = open_book(options.keep, terms) if options.keep else Book(terms)
    results = [_measured(model, talk, options.threads, book) for model in options.models]
    answer({"results": results}, options.json, partial(show, results))
    return 1 if any(result["differences"] for result in results) else 0


def _measured(model: str, talk: Talk, threads: int, book: Book) -> Report:
    """Hold the trials that the book does not have yet."""
    missing = range(len(book.of(model)), talk.trials)
    console = Console(stderr=True)
    with steps(model, len(missing) * talk.rounds, console, SystemClock(), "rounds") as shown:
        bench = Bench(talk, model, threads, shown.advance)
        for number in missing:
            book.add(model, bench.trial(number))
    return report(model, talk, threads, book.of(model)[: talk.trials])


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("tree --ttft", __doc__)
    parser.add_argument(
        "--model",
        "--models",
        dest="models",
        nargs="+",
        default=MODELS,
        metavar="MODEL",
        help=f"built-in names or directories  [default: {' '.join(MODELS)}]",
    )
    for flag, name, what in (
        ("--rounds", "rounds", "of a conversation"),
        ("--trials", "trials", "conversations"),
        ("--page-tokens", "page_tokens", "tokens of a page; one gives the tree most to do"),
        ("--grid", "grid_tokens", "tokens of a chunk: what is restored is whole chunks"),
    ):
        text = f"{what}  [default: {getattr(DEFAULT, name)}]"
        parser.add_argument(flag, dest=name, type=positive, metavar="N", help=text)
    parser.add_argument(
        "--threads", type=natural, default=1, help="torch threads; one is steadiest, 0 lets torch choose"
    )
    parser.add_argument("--quick", action="store_true", help="few rounds, two trials: does it run?")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FILE",
        help="keep every trial there; those that it has are not held again",
    )
    add_answers(parser, plots=False)
    return parser

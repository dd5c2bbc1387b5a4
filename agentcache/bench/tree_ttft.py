"""The tree cores by the time to the first token: `agentcache bench tree --ttft`.

A conversation of 200 rounds, each of 100 tokens asked and 100 given as answered, on built-in models; both cores in one
run, round by round, now the one first, now the other.

    total      from submitting a round to its first token
    prefill    the part of it in which the model computed the prompt
    residual   the rest: tree, scheduler, restoring the prefix, publishing

--json prints {"results": [...]}, one for each model:

    model, talk    what was measured
    spans          all rounds, and the last 25: `first`, `last`; ms a round of each core (`total_ms`, `prefill_ms`,
                   `residual_ms`: medians over trials, means over rounds); `ratio` = reference / native, and `trials`
    rounds         `round`, `prompt_tokens`, `cached_tokens`, and the medians of each core
    differences    rounds in which the cores restored or answered otherwise; 0, or the exit code is 1
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from agentcache.bench.tree_ttft_report import report, show
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
    talk = _talk(options)
    results = []
    for model in options.models:
        with steps(model, talk.trials * talk.rounds, Console(stderr=True), SystemClock(), "rounds") as shown:
            trials = Bench(talk, model, options.threads, shown.advance).run()
        results.append(report(model, talk, trials))
    if options.json:
        print(json.dumps({"results": results}))
    else:
        show(results, Console(width=None if sys.stdout.isatty() else 150))
    return 1 if any(result["differences"] for result in results) else 0


def _talk(options: argparse.Namespace) -> Talk:
    chosen = QUICK if options.quick else DEFAULT
    return replace(
        chosen,
        rounds=options.rounds or chosen.rounds,
        trials=options.trials or chosen.trials,
        page_tokens=options.page_tokens,
        grid_tokens=options.grid,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agentcache bench tree --ttft",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", nargs="+", default=MODELS, help="built-in names or directories")
    parser.add_argument(
        "--rounds", type=_positive, metavar="N", help=f"of a conversation  [default: {DEFAULT.rounds}]"
    )
    parser.add_argument(
        "--trials", type=_positive, metavar="N", help=f"conversations  [default: {DEFAULT.trials}]"
    )
    parser.add_argument("--page-tokens", type=_positive, metavar="N", default=DEFAULT.page_tokens)
    parser.add_argument("--grid", type=_positive, metavar="N", default=DEFAULT.grid_tokens)
    parser.add_argument("--threads", type=int, default=1, help="torch threads; one is steadiest")
    parser.add_argument("--quick", action="store_true", help="few rounds, two trials: does it run?")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("not positive")
    return number

"""A session that comes back after a pause: `agentcache bench pause [--json]`.

While it is away, three other agents take turns at its engine and push it off the device. How long does its next turn's
first token take, against a session that was never evicted, and against one that is computed again?

    kept                  on a device with room for all
    host_told             on the host when it returns; its client said when that will be, so it is brought back before
    host_unannounced      the same, and nobody said anything: it is loaded when it asks
    store_told, …         the same with a host that is too small, too: it is in the external store (--l3) only
    recomputed            nothing below the device

Every arm has an engine of its own and the same prompts. All sessions are away together, a few seconds apart; what is
measured is one turn alone. The bar: at most 1.5 times what `kept` takes.

--json prints {"options", "shape", "bar", "rows", "different_answers", "complete"}; in every row:

    arm, told, trials, brought                  `brought`: told returns that found all of it on the device
    first_token_ms, first_token_most_ms         median and most
    ratio, sooner_than_recomputed, met          medians: to `kept`, of `recomputed`; whether the bar is met
    cached_tokens                               medians by tier
    as_claimed                                  trials in which the prefix was pushed off, and came from there
    returns                                     every trial, with the least of its prefix on device and host meanwhile

The exit code is 0 if all trials were as claimed and no arm changed an answer, whether the bar is met or not.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from rich.console import Console

from agentcache import logs
from agentcache.bench.options import add_answers, add_core, answer, chosen_by, natural, parser_of, positive
from agentcache.bench.pause_lane import Time
from agentcache.bench.pause_report import report, show
from agentcache.bench.pause_run import Bench, Options, steps_of
from agentcache.bench.pause_shape import ARMS, Shape
from agentcache.bench.starting import start
from agentcache.clock import SystemClock
from agentcache.engine.engine import Engine
from agentcache.replay.ending import terminated_as_interrupted
from agentcache.replay.progress import steps

DEFAULT, CHOSEN = Shape(), Options()
STORES = ("file", "memory", "redis")


def main(arguments: Sequence[str]) -> int:
    """Measure a model, print a table or one JSON object; 0 when every trial was what it claims to be."""
    options = _parser().parse_args(arguments)
    logs.configure("text", "warning", sys.stderr)
    shape, chosen = chosen_by(options, DEFAULT), chosen_by(options, CHOSEN)
    clock = SystemClock()
    title = f"{chosen.model}: pauses of {shape.pause_s:g} s"
    with (
        terminated_as_interrupted(),
        steps(title, steps_of(shape), Console(stderr=True), clock, "steps") as shown,
    ):
        lanes = Bench(shape, chosen, Time(clock, clock, rest), shown.advance).run()
    result = report(chosen, shape, lanes)
    titles = {arm.name: arm.title for arm in ARMS}
    answer(result, options.json, partial(show, result, titles))
    return 0 if result["complete"] else 1


def rest(engines: Sequence[Engine], seconds: float) -> None:
    """Sleep until a tier of the first one has done something, at most so long."""
    engines[0].bell.wait(seconds)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("pause", __doc__)
    parser.add_argument("--model", default=CHOSEN.model, help="built-in name, directory, or smollm2")
    for flag, name, what in (
        ("--cached", "cached_tokens", "tokens of the session before its pause"),
        ("--new", "new_tokens", "tokens that it returns with"),
        ("--trials", "trials", "pauses of each arm"),
        ("--grid", "grid_tokens", "tokens of a chunk"),
    ):
        value = getattr(DEFAULT, name)
        text = f"{what}  [default: {value}]"
        parser.add_argument(flag, dest=name, type=positive, metavar="N", default=value, help=text)
    parser.add_argument(
        "--pause-s",
        type=_seconds,
        metavar="SECONDS",
        default=DEFAULT.pause_s,
        help=f"how long a session is away, 5 to 3600  [default: {DEFAULT.pause_s:g}]",
    )
    parser.add_argument(
        "--l3",
        dest="store",
        choices=STORES,
        default=CHOSEN.store,
        help=f"external store  [default: {CHOSEN.store}]",
    )
    parser.add_argument(
        "--threads",
        type=natural,
        default=CHOSEN.threads,
        help="torch threads; one is steadiest, 0 lets torch choose",
    )
    add_core(parser)
    add_answers(parser, plots=False)
    return parser


if __name__ == "__main__":
    start(main)

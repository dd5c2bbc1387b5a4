"""The options of the replay lab on the command line: `agentcache replay` and `agentcache bench policies` share them.

Imports nothing of the lab, so that `agentcache --help` does not wait for it. What is copied from there is compared with
its source by a test.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

POLICIES = ("lru", "session", "ert", "clairvoyant", "unbounded")
SCHEDULERS = ("fcfs", "longest_prefix", "least_uncached")
HINTS = ("none", "exact", "noisy")
PARTS = ("full", "full+swa", "full+mamba", "full+swa+mamba")
WINDOW, WINDOW_SHARE, STATE_TOKENS, CHUNK = 1024, 0.5, 256, 128
LONGEST_TOKENS, LONGEST_H = 400_000, 6.0
LEAST_LIVE = 0.1
MANY = 1_000_000_000


class Finite(click.FloatRange):
    """A number in a range. NaN, which click finds in every range, is in none."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number. Errors: click's BadParameter."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is no finite number.", param, ctx)
        return found


class Live(Finite):
    """How many sessions live on the average; 0: as recorded."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number. Errors: click's BadParameter."""
        found = super().convert(value, param, ctx)
        if 0 < found < LEAST_LIVE:
            self.fail(f"{value} is neither 0 (as recorded) nor at least {LEAST_LIVE:g}.", param, ctx)
        return found


COUNT = click.IntRange(1, MANY)
FRACTION = Finite(min=0, min_open=True, max=MANY)

LAB: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("--policy", "policies"),
        {
            "multiple": True,
            "type": click.Choice(POLICIES),
            "help": "an order to replay beside lru and clairvoyant; may be repeated",
        },
    ),
    (
        ("--capacity", "capacities"),
        {
            "multiple": True,
            "type": FRACTION,
            "help": "room on the device, in mean session peaks; may be repeated",
        },
    ),
    (("--host",), {"type": FRACTION, "help": "room on the host, in mean session peaks"}),
    (("--external",), {"type": FRACTION, "help": "room in an external store, in mean session peaks"}),
    (("--live",), {"type": Live(0, 1e6), "help": "sessions live on the average; 0: as recorded"}),
    (
        ("--queue",),
        {"is_flag": True, "default": None, "help": "one prefill at a time, within the room there is"},
    ),
    (("--scheduler",), {"type": click.Choice(SCHEDULERS), "help": "who begins next, with --queue"}),
    (("--close/--no-close",), {"default": None, "help": "clients say when a session is over"}),
    (("--hints",), {"type": click.Choice(HINTS), "help": "clients say how long their tools take"}),
    (
        ("--superseded",),
        {"is_flag": True, "default": None, "help": "clients say when a prompt leaves its path"},
    ),
    (
        ("--parts",),
        {
            "type": click.Choice(PARTS),
            "help": "what a model keeps: full attention, sliding windows, recurrent states",
        },
    ),
    (("--window",), {"type": click.IntRange(2, MANY), "help": "tokens of an attention window"}),
    (
        ("--window-share",),
        {"type": Finite(0, 1, min_open=True), "help": "slots for windows, for one of full attention"},
    ),
    (
        ("--state-tokens",),
        {"type": COUNT, "help": "one state for so many tokens of the room of full attention"},
    ),
    (("--chunk",), {"type": COUNT, "help": "tokens between places where windows and states may be kept"}),
    (("--seeds",), {"type": click.IntRange(1, 1000), "help": "how often, with other starts of the sessions"}),
    (
        ("--longest-tokens",),
        {"type": COUNT, "help": "leave out sessions with a longer prompt or answer, and their sub-agents"},
    ),
    (
        ("--longest-h",),
        {"type": FRACTION, "help": "leave out sessions that live longer, in hours, and their sub-agents"},
    ),
    (("--processes",), {"type": click.IntRange(0, 1024), "help": "replays at the same time; 0: one a core"}),
)
"""Flags in the order of the help; each is a field of `LabOptions`, and absent where it is not said."""

USUAL = {
    "--capacity": "4 and 12; of a stream of single requests a hundredth and a tenth of them",
    "--host": "no host tier",
    "--external": "no store",
    "--live": "40; 20 with --queue; a stream of single requests as recorded",
    "--scheduler": SCHEDULERS[0],
    "--close/--no-close": "they do",
    "--hints": HINTS[0],
    "--parts": PARTS[0],
    "--window": f"{WINDOW}",
    "--window-share": f"{WINDOW_SHARE:g}",
    "--state-tokens": f"{STATE_TOKENS}",
    "--chunk": f"{CHUNK}",
    "--longest-tokens": str(LONGEST_TOKENS),
    "--longest-h": f"{LONGEST_H:g}",
    "--processes": "0",
}


def lab_flags(mark: str = "", **usual: str) -> Callable[[Command], Command]:
    """Give a command every option of the lab. `mark` stands before each help; `usual` adds defaults, by flag."""
    defaults = USUAL | {f"--{name}": shown for name, shown in usual.items()}

    def with_flags(command: Command) -> Command:
        for names, how in reversed(LAB):
            shown = f"  [default: {defaults[names[0]]}]" if names[0] in defaults else ""
            command = click.option(*names, **{**how, "help": f"{mark}{how['help']}{shown}"})(command)
        return command

    return with_flags

"""Two cores on long random histories: `python -m tests.property.two_core_soak --steps N --seed S [--seconds T]`.

Prints the shortest history that still shows a difference, in a form that `--replay FILE` runs again.
"""

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.builders import CORES, MakeCore
from tests.parity.history import Author
from tests.parity.oplog import History, Op
from tests.parity.pair import DifferenceError, PairCore, Watching
from tests.parity.shaping import random_shape
from tests.parity.shrink import shrink
from tests.parity.world import World

CLOSELY = Watching(every=1, checks=True)
ANSWERS = Watching(every=sys.maxsize)  # much faster, where answers differ
EPISODE_STEPS = (40, 150, 150, 400, 1500)


@dataclass
class Tally:
    """How much was done, by operation and refusal."""

    steps: int = 0
    seen: Counter[str] = field(default_factory=Counter)

    def note(self, op: Op, world: World) -> None:
        self.steps += 1
        self.seen[f"{op.name} refused {world.refused.kind}" if world.refused else op.name] += 1


def episode(seed: str, first: MakeCore, second: MakeCore, tally: Tally) -> tuple[History, str]:
    """One random history with a new shape; answers it, and what differed (empty: nothing)."""
    chance = random.Random(seed)
    shape = random_shape(chance)
    done: list[Op] = []
    try:
        seldom = 40 if shape.slots > 300 else 1
        watching = Watching(seldom * chance.choice([1, 1, 4, 12]), checks=chance.random() < 0.15)
        pair = PairCore(first(shape.config), second(shape.config), watching)
        world = World(pair, shape)
        author = Author(chance, world)
        ops = author.ops()
        for _ in range(chance.choice(EPISODE_STEPS)):
            _perform(next(ops), world, done, tally)
        for op in author.ending():
            _perform(op, world, done, tally)
        pair.check()
    except Exception as fault:  # whatever broke is told, and the history with it
        return History(shape, tuple(done)), _why(fault)
    return History(shape, tuple(done)), ""


def _perform(op: Op, world: World, done: list[Op], tally: Tally) -> None:
    done.append(op)
    if world.perform(op):
        tally.note(op, world)
    else:
        done.pop()


def _why(fault: Exception) -> str:
    if isinstance(fault, DifferenceError):
        return str(fault)
    return "".join(traceback.format_exception(fault)[-3:])


def replay(history: History, first: MakeCore, second: MakeCore, watching: Watching = CLOSELY) -> str:
    """Run a history under the closest watch; what differed, with the operation, or empty."""
    op = None
    try:
        pair = PairCore(first(history.shape.config), second(history.shape.config), watching)
        world = World(pair, history.shape)
        for op in history.ops:
            world.perform(op)
    except Exception as fault:  # as above
        return f"at {op}: {_why(fault)}"
    return ""


def report(seed: str, history: History, why: str, cores: tuple[MakeCore, MakeCore], seconds: float) -> None:
    print(f"\nDIFFERENCE in episode --seed {seed} after {len(history.ops)} operations: {why}", flush=True)
    watching = ANSWERS if replay(history, *cores, ANSWERS) else CLOSELY
    if not replay(history, *cores, watching):
        print("it does not come back when replayed; the whole history follows\n")
        print(history)
        return
    short = shrink(history, lambda tried: replay(tried, *cores, watching), seconds)
    print(f"\n{short}\n\n{replay(short, *cores)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", default="1", help="of the run, or of one episode, N.M")
    parser.add_argument("--first", choices=sorted(CORES), default="reference")
    parser.add_argument("--second", choices=sorted(CORES), default=min(CORES))
    parser.add_argument("--differences", type=int, default=1, help="stop after so many")
    parser.add_argument("--shrink", type=float, default=60, help="seconds to spend on each")
    parser.add_argument("--replay", type=Path, help="run this history instead")
    asked = parser.parse_args()
    cores = (CORES[asked.first], CORES[asked.second])
    if asked.replay:
        why = replay(History.parse(asked.replay.read_text(encoding="utf-8")), *cores)
        print(why or "no difference")
        return bool(why)
    return _run(asked, cores)


def _run(asked: argparse.Namespace, cores: tuple[MakeCore, MakeCore]) -> int:
    tally, began, number, found = Tally(), time.monotonic(), 0, 0
    only = asked.seed if "." in asked.seed else ""
    said = began
    while (
        tally.steps < asked.steps and time.monotonic() - began < asked.seconds and found < asked.differences
    ):
        number += 1
        seed = only or f"{asked.seed}.{number}"
        history, why = episode(seed, *cores, tally)
        if why:
            found += 1
            report(seed, history, why, cores, asked.shrink)
        if time.monotonic() - said > 30:
            said = time.monotonic()
            print(f"{tally.steps} steps, {number} episodes, {found} differences", file=sys.stderr, flush=True)
        if only:
            break
    seconds = time.monotonic() - began
    print(
        f"{tally.steps} steps, {number} episodes in {seconds:.0f} s from seed {asked.seed}: {found} differences"
    )
    for name, count in sorted(tally.seen.items()):
        print(f"  {count:9d}  {name}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())

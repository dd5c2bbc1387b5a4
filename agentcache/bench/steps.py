"""What tiers cost a step of the scheduler when nothing is to be moved: `agentcache bench steps [--json]`.

Two engines, one with a host tier and an external store and one without, decode the same answer in turn, step by step.
What the model itself takes is subtracted: a step's time outside the runner is the scheduler's.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agentcache.bench.starting import start
from agentcache.config import EngineSettings
from agentcache.engine.api import GenerateRequest
from agentcache.engine.build import build_engine
from agentcache.engine.engine import Engine
from agentcache.types import SessionId, SessionTag

PROMPT_TOKENS = 512
BAR_US = 50.0


@dataclass(frozen=True, slots=True)
class StepCost:
    """Medians in microseconds: the scheduler's part of a step, without tiers and with them."""

    model: str
    steps: int
    off_us: float
    on_us: float
    more_us: float


class Stopwatch:
    """An engine whose runner is timed, so that what is left of a step is the scheduler."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._model_s = 0.0
        self._inside = False
        runner: Any = engine.runner
        for name in ("prefill", "decode", "save", "restore"):
            setattr(runner, name, self._timed(getattr(runner, name)))

    def step_us(self) -> float:
        """One step; answers what it took beside the model."""
        self._model_s, began = 0.0, time.perf_counter()
        self.engine.step()
        return (time.perf_counter() - began - self._model_s) * 1e6

    def _timed(self, call: Callable[..., object]) -> Callable[..., object]:
        def timed(*given: object) -> object:
            if self._inside:  # the runner calls itself: counted once
                return call(*given)
            self._inside, began = True, time.perf_counter()
            try:
                return call(*given)
            finally:
                self._inside = False
                self._model_s += time.perf_counter() - began

        return timed


def measure(off: Engine, on: Engine, steps: int) -> StepCost:
    """Decode `steps` tokens on both engines in turn. Caller: nothing is due to move on `on`."""
    source = random.Random(0)
    prompt = tuple(source.randrange(off.info.vocab_size) for _ in range(PROMPT_TOKENS))
    request = GenerateRequest("steps", prompt, steps + 8, session=SessionTag(SessionId("steps")))
    watches = (Stopwatch(off), Stopwatch(on))
    for watch in watches:
        watch.engine.submit(request)
    for _ in range(8):  # admission and prefill
        for watch in watches:
            watch.step_us()
    taken = [(watches[0].step_us(), watches[1].step_us()) for _ in range(steps - 8)]
    off_us, on_us = (statistics.median(column) for column in zip(*taken, strict=True))
    return StepCost(off.info.model, len(taken), round(off_us, 1), round(on_us, 1), round(on_us - off_us, 1))


def main(arguments: Sequence[str]) -> int:
    """Measure, print a line (or one JSON object); exit 0 when it was measured."""
    parser = argparse.ArgumentParser(
        prog="agentcache bench steps", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--model", default="tiny-all", help="built-in name or directory")
    parser.add_argument("--steps", type=int, default=1200, help="decode steps of each engine")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args(arguments)
    off = build_engine(EngineSettings(model=options.model))
    on = build_engine(EngineSettings(model=options.model, host_mib=256, l3="memory", l3_mib=256))
    try:
        cost = measure(off, on, options.steps)
    finally:
        on.close()
    if options.json:
        print(json.dumps({**asdict(cost), "bar_us": BAR_US}))
        return 0
    print(
        f"{cost.model}: the scheduler takes {cost.off_us} µs a step without tiers and {cost.on_us} with them, "
        f"{cost.more_us} more (medians of {cost.steps} steps; at most {BAR_US:.0f} more are allowed)"
    )
    return 0


if __name__ == "__main__":
    start(main)

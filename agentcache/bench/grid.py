"""What the chunk grid costs an agent's turns: `agentcache bench grid [--json]`.

A session grows turn by turn; each turn restores the last boundary and computes the rest: the new tokens and what lies
between that boundary and them, half a grid chunk on average. A fine grid computes less again and runs more forwards,
and stores more states. All grids take the same turns, one after the other.
"""

import json
import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from agentcache.bench.options import add_answers, add_core, natural, parser_of, positive
from agentcache.bench.starting import start
from agentcache.config import EngineSettings
from agentcache.engine.api import Finished, GenerateRequest
from agentcache.engine.build import build_engine
from agentcache.engine.engine import Engine
from agentcache.types import SessionId, SessionTag

TURN_TOKENS = (30, 60, 86, 86, 120, 240)
"""New tokens of agents' turns, median 86."""


@dataclass(frozen=True, slots=True)
class GridCost:
    """Medians over the turns after the first. `computed_tokens` are per turn, on average."""

    grid_tokens: int
    cold_ms: float
    turn_ms: float
    turn_mean_ms: float
    computed_tokens: float


def compare(engines: Sequence[Engine], history_tokens: int, turns: int) -> list[GridCost]:
    """Let one session grow by `turns` turns on every engine, in step."""
    source = random.Random(0)
    vocabulary = engines[0].info.vocab_size
    prompt = [source.randrange(vocabulary) for _ in range(history_tokens)]
    times: list[list[float]] = [[_turn(engine, prompt)] for engine in engines]
    started = [engine.load().prefill_tokens_total for engine in engines]
    for turn in range(turns):
        prompt += [source.randrange(vocabulary) for _ in range(TURN_TOKENS[turn % len(TURN_TOKENS)])]
        for taken, engine in zip(times, engines, strict=True):
            taken.append(_turn(engine, prompt))
    return [
        GridCost(
            engine.info.grid_tokens,
            round(taken[0], 1),
            round(statistics.median(taken[1:]), 1),
            round(statistics.mean(taken[1:]), 1),
            round((engine.load().prefill_tokens_total - before) / turns, 1),
        )
        for engine, taken, before in zip(engines, times, started, strict=True)
    ]


def _turn(engine: Engine, prompt: Sequence[int]) -> float:
    """Milliseconds to the first token of one turn."""
    tag = SessionTag(SessionId("grid"))
    engine.submit(GenerateRequest("grid", tuple(prompt), max_tokens=1, session=tag))
    ends: list[float] = []
    while not engine.idle():
        ends += [event.first_token_ns / 1e6 for event in engine.step() if isinstance(event, Finished)]
    return ends[0]


def main(arguments: Sequence[str]) -> int:
    """Compare the grids on one model and print a table (or one JSON object)."""
    parser = parser_of("grid", __doc__)
    parser.add_argument("--model", default="tiny-all", help="built-in name, directory, or smollm2")
    parser.add_argument("--grids", type=positive, nargs="+", default=[64, 128, 256], help="tokens of a chunk")
    parser.add_argument("--history", type=positive, default=4000, help="tokens of the first turn")
    parser.add_argument("--turns", type=positive, default=24, help="behind it")
    parser.add_argument("--threads", type=natural, default=0, help="torch threads; 0 lets torch choose")
    add_core(parser)
    add_answers(parser, plots=False)
    options = parser.parse_args(arguments)
    engines = [
        build_engine(
            EngineSettings(model=options.model, grid_tokens=grid, threads=options.threads, core=options.core)
        )
        for grid in options.grids
    ]
    results = compare(engines, options.history, options.turns)
    if options.json:
        print(json.dumps({"model": options.model, "results": [asdict(result) for result in results]}))
        return 0
    print(f"{options.model}: {options.turns} turns after {options.history} tokens")
    print(f"{'grid':>6}{'cold ms':>10}{'turn ms':>10}{'mean ms':>10}{'computed':>10}")
    for one in results:
        print(
            f"{one.grid_tokens:>6}{one.cold_ms:>10}{one.turn_ms:>10}{one.turn_mean_ms:>10}{one.computed_tokens:>10}"
        )
    return 0


if __name__ == "__main__":
    start(main)

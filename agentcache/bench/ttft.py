"""Time to the first token, warm against cold: `agentcache bench ttft [--json]`.

    cold    |------------ computed: cached + new ------------|
    warm    |======== restored: cached ========|--- new ---|

Same prompts, same chunk grid, one request at a time; the two alternate, so that a neighbour's load hits both.
"""

import argparse
import json
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from agentcache.bench.options import add_answers, add_core, natural, parser_of, positive
from agentcache.bench.starting import start
from agentcache.config import EngineSettings
from agentcache.engine.api import Admitted, Finished, GenerateRequest
from agentcache.engine.build import build_engine
from agentcache.engine.engine import Engine
from agentcache.engine.models import BUILT_IN
from agentcache.errors import CacheError, Kind


@dataclass(frozen=True, slots=True)
class Shape:
    """What is measured: a prompt of `cached_tokens` (a multiple of the grid) and `new_tokens`, `repeats` times."""

    cached_tokens: int = 4096
    new_tokens: int = 64
    repeats: int = 5


DEFAULT = Shape()


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Medians over the repeats, in milliseconds. `restored_tokens` is what the cache really gave."""

    model: str
    grid_tokens: int
    restored_tokens: int
    cold_ms: float
    warm_ms: float
    warm_most_ms: float
    ratio: float


def measure(engine: Engine, shape: Shape) -> FirstToken:
    """Run the shape on an engine with an empty cache.

    Errors  BAD_REQUEST when the cached part is no multiple of the grid; OVER_POOL, PROMPT_TOO_LONG
    """
    grid = engine.info.grid_tokens
    if shape.cached_tokens % grid or shape.repeats < 1:
        raise CacheError(Kind.BAD_REQUEST, f"the cached tokens must be a multiple of the grid ({grid})")
    source = random.Random(0)
    prefix = _tokens(source, shape.cached_tokens, engine)
    _run(engine, (*prefix, *_tokens(source, 1, engine)), reuse=True)
    cold, warm, restored = [], [], []
    for _ in range(shape.repeats):
        prompt = (*prefix, *_tokens(source, shape.new_tokens, engine))
        cold_ms, _unused = _run(engine, prompt, reuse=False)
        warm_ms, cached = _run(engine, prompt, reuse=True)
        cold.append(cold_ms)
        warm.append(warm_ms)
        restored.append(cached)
    cold_ms, warm_ms = statistics.median(cold), statistics.median(warm)
    return FirstToken(
        engine.info.model, grid, min(restored), cold_ms, warm_ms, max(warm), round(cold_ms / warm_ms, 2)
    )


def _tokens(source: random.Random, count: int, engine: Engine) -> tuple[int, ...]:
    return tuple(source.randrange(engine.info.vocab_size) for _ in range(count))


def _run(engine: Engine, prompt: tuple[int, ...], reuse: bool) -> tuple[float, int]:
    """One request of one token, alone: milliseconds to its first token, and tokens restored."""
    engine.submit(GenerateRequest("ttft", prompt, max_tokens=1, reuse=reuse))
    events = []
    while not engine.idle():
        events.extend(engine.step())
    cached = [event.cached_tokens for event in events if isinstance(event, Admitted)]
    ends = [event.first_token_ns for event in events if isinstance(event, Finished)]
    return ends[0] / 1e6, cached[0]


def main(arguments: Sequence[str]) -> int:
    """Measure models, print a table (or one JSON object), and exit 0 when all were measured."""
    options = _parser().parse_args(arguments)
    shape = Shape(options.cached, options.new, options.repeats)
    results = []
    for model in options.models:
        print(f"measuring {model} …", file=sys.stderr, flush=True)
        settings = EngineSettings(
            model=model, grid_tokens=options.grid, threads=options.threads, core=options.core
        )
        results.append(measure(build_engine(settings), shape))
    if options.json:
        print(json.dumps({"shape": asdict(shape), "results": [asdict(result) for result in results]}))
        return 0
    print(
        f"{shape.cached_tokens} cached + {shape.new_tokens} new tokens, medians of {shape.repeats}, batch 1"
    )
    print(f"{'model':<14}{'grid':>6}{'cold ms':>10}{'warm ms':>10}{'worst':>8}{'ratio':>8}")
    for one in results:
        numbers = f"{one.cold_ms:>10.1f}{one.warm_ms:>10.1f}{one.warm_most_ms:>8.1f}{one.ratio:>8.1f}"
        print(f"{one.model:<14}{one.grid_tokens:>6}{numbers}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("ttft", __doc__)
    parser.add_argument("--models", nargs="+", default=list(BUILT_IN), help="built-in names or directories")
    grid = EngineSettings.model_fields["grid_tokens"].default
    for flag, value, what in (
        ("--cached", DEFAULT.cached_tokens, "tokens restored from the cache"),
        ("--new", DEFAULT.new_tokens, "tokens behind them"),
        ("--repeats", DEFAULT.repeats, "of which the median is taken"),
        ("--grid", grid, "tokens of a chunk"),
    ):
        text = f"{what}  [default: {value}]"
        parser.add_argument(flag, type=positive, default=value, metavar="N", help=text)
    parser.add_argument("--threads", type=natural, default=0, help="torch threads; 0 lets torch choose")
    add_core(parser)
    add_answers(parser, plots=False)
    return parser


if __name__ == "__main__":
    start(main)

"""What the tiers are worth to long conversations: `agentcache bench multiturn [--json]`.

Clients talk in step: in each round every client sends all it has said and heard, and new random tokens. What an
unlimited cache holds at the end is the working set; the device (L1) gets a tenth of it, the host (L2) half, the
external store (L3) has room for all. All configurations are asked the same; their answers must be the same too.

The cache restores whole chunks of the grid. The default is 64: of 128 + 4 tokens a round it can restore 96.6 % in
rounds 31 to 40. A grid of 128 can restore 96.2 %, too little above the 96 % that the third tier has to reach; one of
32 could restore 96.8 %, but runs twice the forwards for the same tokens.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import get_args

from agentcache import logs
from agentcache.bench.multiturn_report import (
    L1,
    L1_L2,
    L1_L2_L3,
    TITLES,
    UNLIMITED,
    Found,
    harmless,
    report,
    show,
)
from agentcache.bench.multiturn_run import Conversation, Driver, Progress
from agentcache.bench.multiturn_shape import Shape, Sizes, sizes_for, unlimited_slots
from agentcache.bench.options import (
    add_answers,
    add_core,
    answer,
    chosen_by,
    natural,
    parser_of,
    plotter,
    positive,
)
from agentcache.bench.starting import start
from agentcache.clock import SystemClock
from agentcache.config import EngineSettings
from agentcache.engine.build import build_engine
from agentcache.engine.engine import Engine
from agentcache.engine.publish import PublishPolicy
from agentcache.errors import CacheError, Kind
from agentcache.types import ComponentName, TierName

CONFIGS = (L1, L1_L2, L1_L2_L3)
STORES = ("file", "memory", "redis", "mooncake")
WITH_FILES = ("file", "redis")
"""Stores that keep files, here in a folder that goes when the run ends."""
STORE_ROOM = 4
"""The store's capacity in working sets: an object is a little larger than its slot, and none may have to leave."""
LEAST_STORE_MIB = 256.0
PLOT = "agentcache.bench.multiturn_plot:plot"


@dataclass(frozen=True, slots=True)
class Options:
    """What is run, beside the shape."""

    model: str = "tiny-all"
    core: str = "native"
    threads: int = 0
    configs: Sequence[str] = CONFIGS
    store: str = "file"
    prefetch: str = "wait_complete"
    write_policy: str = "write_through"


DEFAULT, CHOSEN = Shape(), Options()


@dataclass(frozen=True, slots=True)
class Bench:
    """One run: the unlimited cache, then the tiers sized by what it held."""

    shape: Shape
    options: Options
    progress: Progress
    build: Callable[[EngineSettings], Engine] = build_engine

    def run(self) -> Found:
        """Errors: those of building an engine, and of a request that failed; BAD_REQUEST for a shape too long."""
        best = self.shape.reachable(self.shape.last_rounds)
        self.progress.say(
            f"grid {self.shape.grid_tokens}: at most {best:.2%} of the prompts can be cached in the last rounds"
        )
        with closing(self._engine(unlimited_slots(self.shape))) as engine:
            self._check(engine)
            runs = {UNLIMITED: self._converse(UNLIMITED, engine)}
            working_set = held(engine)
            policy = PublishPolicy(
                engine.info.page_tokens, engine.info.grid_tokens, engine.cache.config.specs
            )
            sizes = sizes_for(self.shape, policy, working_set)
        for setting, was in sizes.raised.items():
            self.progress.say(
                f"{setting}: {was} could not admit the longest request, raised to {sizes.device_slots[setting]}"
            )
        for name in sorted(self.options.configs, key=CONFIGS.index):
            runs[name] = self._limited(name, sizes)
        return Found(self.options.model, self.shape, working_set, sizes, runs)

    def _check(self, engine: Engine) -> None:
        """Errors: BAD_REQUEST for conversations that the model could not hold to their end."""
        if self.shape.final_tokens > engine.info.context_tokens:
            raise CacheError(
                Kind.BAD_REQUEST,
                f"the last round's prompt and answer ({self.shape.final_tokens} tokens) are over the model's context "
                f"({engine.info.context_tokens}); lower --rounds, --request-length or --output-length",
            )

    def _limited(self, name: str, sizes: Sizes) -> Conversation:
        with tempfile.TemporaryDirectory(prefix="agentcache-multiturn-") as folder:
            tiers = self._tiers(name, sizes, folder)
            with closing(self._engine({**sizes.device_slots, **tiers})) as engine:
                return self._converse(name, engine)

    def _tiers(self, name: str, sizes: Sizes, folder: str) -> dict[str, object]:
        """The settings of the tiers below the device."""
        if name == L1:
            return {}
        tiers: dict[str, object] = {
            "host_mib": sizes.host_bytes / 2**20,
            "write_policy": self.options.write_policy,
        }
        if name == L1_L2_L3:
            room_mib = max(LEAST_STORE_MIB, STORE_ROOM * sizes.working_set_bytes / 2**20)
            tiers |= {"l3": self.options.store, "l3_mib": room_mib, "prefetch": self.options.prefetch}
            tiers |= {"l3_path": folder} if self.options.store in WITH_FILES else {}
        return tiers

    def _engine(self, changes: Mapping[str, object]) -> Engine:
        settings = EngineSettings.model_validate(
            {
                "model": self.options.model,
                "core": self.options.core,
                "threads": self.options.threads,
                "grid_tokens": self.shape.grid_tokens,
                "queue_limit": self.shape.clients,
                **changes,
            }
        )
        return self.build(settings)

    def _converse(self, name: str, engine: Engine) -> Conversation:
        pools = ", ".join(f"{pool.component} {pool.slots}" for pool in engine.info.pools)
        self.progress.say(f"{TITLES[name]}: device slots {pools}")
        found = Driver(TITLES[name], engine, self.shape, self.progress).run()
        self.progress.say(f"{TITLES[name]}: {sum(one.wall_s for one in found.rounds):.1f} s")
        return found


def held(engine: Engine) -> dict[ComponentName, int]:
    """Slots that an unlimited cache holds, by component."""
    stats = engine.cache.stats()
    assert not any(stats.turns.evicted_slots.values()), "the unlimited cache has evicted something"
    return {use.pool.component: use.cached for use in stats.pools if use.pool.tier is TierName.DEVICE}


def main(arguments: Sequence[str]) -> int:
    """Measure a model, print a table (or one JSON object); 0 when all was measured and no answer was wrong."""
    options = _parser().parse_args(arguments)
    logs.configure("text", "warning", sys.stderr)
    plot = plotter(options.plot, PLOT) if options.plot else None
    shape, chosen = chosen_by(options, DEFAULT), chosen_by(options, CHOSEN)
    result = report(Bench(shape, chosen, Progress(SystemClock())).run())
    answer(result, options.json, partial(show, result, options.bars))
    if plot:
        plot([result], options.plot)
    return 0 if harmless(result) else 1


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("multiturn", __doc__)
    parser.add_argument("--model", default=CHOSEN.model, help="built-in name, directory, or smollm2")
    for name, what in (
        ("clients", "conversations"),
        ("rounds", "requests of each"),
        ("request_length", "new tokens a round"),
        ("output_length", "generated tokens a round"),
        ("grid_tokens", "tokens of a chunk: what is restored is whole chunks"),
    ):
        flag, value = f"--{name.removesuffix('_tokens').replace('_', '-')}", getattr(DEFAULT, name)
        text = f"{what}  [default: {value}]"
        parser.add_argument(flag, dest=name, type=positive, metavar="N", default=value, help=text)
    parser.add_argument("--seed", type=int, default=DEFAULT.seed, help="of the random tokens")
    parser.add_argument("--configs", nargs="+", choices=CONFIGS, default=CONFIGS, help="only these")
    _add_settings(parser)
    parser.add_argument("--bars", action="store_true", help="say which bars of the third tier are met")
    add_answers(parser)
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """Those that the worker has too, with its words."""
    add_core(parser)
    parser.add_argument("--threads", type=natural, default=0, help="torch threads; 0 lets torch choose")
    parser.add_argument(
        "--l3", dest="store", choices=STORES, default=CHOSEN.store, help="store of the third tier"
    )
    for name in ("prefetch", "write_policy"):
        field = EngineSettings.model_fields[name]
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            choices=get_args(field.annotation),
            default=getattr(CHOSEN, name),
            help=field.description,
        )


if __name__ == "__main__":
    start(main)

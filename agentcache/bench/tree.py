"""What the calls of the tree cores cost: `agentcache bench tree`.

    match | lock | insert | unlock | reference      a round of a conversation
    match, insert                                   on a path of one node, or of many
    evict_1, evict_1000                             among 10,000 and 100,000 leaves
    open, reference, close                          of a session
    demote_first, demote_last                       of 10,000 siblings
    bytes_per_node                                  resident memory
    memcmp                                          the same bytes compared by the C library: the floor under a match

Timed at the Python contract, results and effects built, keys made inside the timed region; sessions always on. The
reference core gets smaller shapes, as its rows say. What the cores make of the time to the first token is `--ttft`.

--json prints {"rows": [...]}, every row with the same keys:

    op, core            what was called, of which core
    components, page    what the core was built for, and the tokens of a page (null: memcmp has neither)
    shape               lookups: the path is `one` node or a `chain`; demotions: `wide`; else empty
    tokens              the length of the path, of the buffers that memcmp compares, of a node for bytes_per_node
    leaves              of the tree (evict_*), under the one parent (demote_*); else null
    sessions            `referenced` by sessions, `unreferenced`, or `-`
    best_us, median_us  of n calls, in what `unit` says: `us`, microseconds a call; or `bytes`, for bytes_per_node the
                        same number twice: what the process grew by, a node (n is 1)
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from rich.console import Console

from agentcache.bench.options import add_answers, answer, parser_of
from agentcache.bench.starting import start
from agentcache.bench.tree_evictions import demote_rows, evict_rows
from agentcache.bench.tree_lookups import LIBC, SHAPES, lookup_rows, memcmp_rows
from agentcache.bench.tree_memory import memory_rows
from agentcache.bench.tree_rounds import round_rows
from agentcache.bench.tree_rows import REFERENCED, UNREFERENCED, Place, Row, as_json, show
from agentcache.bench.tree_sessions import session_rows
from agentcache.bench.tree_ttft import main as first_tokens
from agentcache.bench.tree_world import STEPS
from agentcache.build import CORES, require_core
from agentcache.tree.api import Order

COMPONENTS = ("FULL", "FULL+SWA128", "FULL+SWA4096", "FULL+MAMBA", "FULL+SWA128+MAMBA")
PAGES = (1, 16, 64)
EVICT_PAGE = 16
MEMCMP_TOKENS = 131_072
TTFT = "--ttft"
OPS = {
    "memcmp": ("memcmp",),
    "rounds": ("round", "round_last20", *(f"round_{step}" for step in STEPS)),
    "lookups": ("match", "insert"),
    "evictions": ("evict_1", "evict_1000"),
    "sessions": ("open", "reference", "close"),
    "siblings": ("demote_first", "demote_last"),
    "memory": ("bytes_per_node",),
}
"""The figures of each family of shapes."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One thing to measure: its family, where, and the call that does it."""

    family: str
    place: Place
    measure: Callable[[], Iterable[Row]]

    def __str__(self) -> str:
        page = f"page {self.place.page}" if self.place.page else ""
        return " ".join(filter(None, (self.family, self.place.components, page, self.place.core)))


@dataclass(frozen=True, slots=True)
class Scale:
    """How large the shapes are. `hybrid_tokens` are lookups of hybrid trees.

    Pages of one token may have fewer rounds: the reference core keeps a node a page.
    """

    rounds: int = 200
    rounds_page_1: int = 200
    passes: int = 5
    tokens: tuple[int, ...] = (1_024, 8_192, 32_768, 131_072)
    hybrid_tokens: tuple[int, ...] = (8_192, 131_072)
    leaves: tuple[int, ...] = (10_000, 100_000)
    sessions: int = 1_000
    siblings: int = 10_000
    nodes: int = 50_000


FULL_SCALE = Scale()
REFERENCE_SCALE = Scale(200, 40, 5, (1_024, 8_192), (8_192,), (10_000, 100_000), 20, 10_000, 10_000)
QUICK_SCALE = Scale(40, 40, 5, (1_024, 8_192), (8_192,), (10_000,), 100, 1_000, 10_000)
QUICK_REFERENCE_SCALE = Scale(20, 20, 5, (1_024,), (), (10_000,), 5, 500, 2_000)


def shapes_of(core: str, scale: Scale, order: Order) -> Iterator[Shape]:
    """Every shape of one core."""
    for components, page in product(COMPONENTS, PAGES):
        place = Place(core, components, page)
        rounds = scale.rounds_page_1 if page == 1 else scale.rounds
        yield Shape("rounds", place, partial(round_rows, place, rounds, scale.passes, order))
    for place, tokens in _lookups(core, scale):
        yield Shape("lookups", place, partial(lookup_rows, place, tokens, order))
    evictions = product(("FULL", "FULL+SWA128", "FULL+MAMBA"), scale.leaves, (UNREFERENCED, REFERENCED))
    for components, leaves, sessions in evictions:
        place = Place(core, components, EVICT_PAGE)
        yield Shape("evictions", place, partial(evict_rows, place, leaves, sessions, order))
    for components in ("FULL", "FULL+SWA4096", "FULL+MAMBA"):
        place = Place(core, components, 1)
        yield Shape("sessions", place, partial(session_rows, place, scale.sessions, order))
    place = Place(core, "FULL", EVICT_PAGE, "wide")
    yield Shape("siblings", place, partial(demote_rows, place, scale.siblings, order))
    yield from _memory(core, scale)


def _lookups(core: str, scale: Scale) -> Iterator[tuple[Place, int]]:
    for page, shape, tokens in product(PAGES, SHAPES, scale.tokens):
        yield Place(core, "FULL", page, shape), tokens
    for components, tokens in product(("FULL+SWA4096", "FULL+MAMBA"), scale.hybrid_tokens):
        yield Place(core, components, 1, "chain"), tokens


def _memory(core: str, scale: Scale) -> Iterator[Shape]:
    trees = [(components, UNREFERENCED) for components in ("FULL", "FULL+SWA128", "FULL+MAMBA")]
    for (components, sessions), page in product([*trees, ("FULL", REFERENCED)], PAGES):
        place = Place(core, components, page)
        yield Shape("memory", place, partial(memory_rows, place, scale.nodes, sessions))


def measure(plan: Sequence[Shape], wanted: Sequence[str], progress: Console) -> list[Row]:
    """Run the shapes that have a wanted figure; `wanted` empty means all."""
    rows: list[Row] = []
    asked = [shape for shape in plan if not wanted or set(wanted) & set(OPS[shape.family])]
    for number, shape in enumerate(asked, 1):
        progress.print(f"{number}/{len(asked)}  {shape}", markup=False, highlight=False)
        rows.extend(found for found in shape.measure() if not wanted or found.op in wanted)
    return rows


def plan_of(cores: Sequence[str], quick: bool, order: Order) -> list[Shape]:
    """The whole run; the floor under a match first."""
    plan = [Shape("memcmp", LIBC, partial(memcmp_rows, MEMCMP_TOKENS))]
    for core in cores:
        slow = core == "reference"
        scales = (QUICK_REFERENCE_SCALE, REFERENCE_SCALE) if slow else (QUICK_SCALE, FULL_SCALE)
        plan += shapes_of(core, scales[not quick], order)
    return plan


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a table or one JSON object."""
    if TTFT in arguments:
        return first_tokens([word for word in arguments if word != TTFT])
    options = _parser().parse_args(arguments)
    cores = list(CORES) if options.core == "both" else [options.core]
    for core in cores:
        require_core(core)
    plan = plan_of(cores, options.quick, Order(options.order))
    rows = measure(plan, options.op or (), Console(stderr=True))
    answer(as_json(rows), options.json, partial(show, rows))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("tree", __doc__)
    ops = [op for names in OPS.values() for op in names]
    parser.add_argument("--core", choices=["native", "reference", "both"], default="both")
    parser.add_argument(
        "--op", nargs="+", action="extend", choices=ops, metavar="OP", help=f"only these: {', '.join(ops)}"
    )
    parser.add_argument("--order", choices=[one.value for one in Order], default=Order.SESSION.value)
    parser.add_argument("--quick", action="store_true", help="small shapes: does it run?")
    parser.add_argument(
        TTFT, action="store_true", help="instead: first tokens of conversations on engines; see --ttft --help"
    )
    add_answers(parser, plots=False)
    return parser


if __name__ == "__main__":
    start(main)

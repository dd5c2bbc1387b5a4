"""Our native core and SGLang's cores in one sitting, against the bars that are set: `make bench-peer`.

Runs in the project's environment; SGLang runs in the one beside this file. The shapes'
numbers are those of `agentcache bench tree`. Its rows go to build/bench-peer.json.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby, product
from pathlib import Path
from typing import Any

from rich.console import Console

from agentcache.bench import tree_evictions, tree_lookups, tree_memory, tree_rounds, tree_rows, tree_sessions
from agentcache.bench.tree import COMPONENTS, EVICT_PAGE, FULL_SCALE, OPS, PAGES, QUICK_SCALE, Scale
from agentcache.bench.tree_bars import BARS, PEER, PEER_WITH_SESSIONS, judge, markdown, show
from agentcache.bench.tree_rows import REFERENCED, UNREFERENCED, Row

HERE = Path(__file__).resolve().parent
PEER_PYTHON = "sglang-python"
CORES = (PEER, PEER_PYTHON, PEER_WITH_SESSIONS)
EVICT_BUDGET_S = 3.0
HYBRIDS = ("FULL", "FULL+SWA128", "FULL+MAMBA")
LONG_HYBRIDS = ("FULL", "FULL+SWA4096", "FULL+MAMBA")

Ask = dict[str, Any]


def asks(scale: Scale) -> Iterator[Ask]:
    """Every shape on every core of the peer that can do it."""
    for core in CORES:
        sessions = REFERENCED if core == PEER_WITH_SESSIONS else UNREFERENCED
        base = {"core": core, "sessions": sessions, "shape": ""}
        for shape in (*_growing(scale), *_leafy(scale, core)):
            yield base | shape
        if core == PEER_WITH_SESSIONS:
            for components in LONG_HYBRIDS:
                yield base | _sessions(scale) | {"components": components}


def _growing(scale: Scale) -> Iterator[Ask]:
    """Rounds and lookups."""
    round_ = {
        "family": "rounds",
        "rounds": scale.rounds,
        "passes": scale.passes,
        "round_tokens": tree_rounds.ROUND_TOKENS,
        "asked_tokens": tree_rounds.ASKED_TOKENS,
        "last": tree_rounds.LAST,
    }
    lookup = {
        "family": "lookups",
        "added_tokens": tree_lookups.ADDED_TOKENS,
        "inserts": tree_lookups.INSERTS,
        "calls": tree_rows.CALLS,
        "budget_s": tree_rows.BUDGET_S,
    }
    for components, page in product(COMPONENTS, PAGES):
        yield round_ | {"components": components, "page": page}
    for page, shape, tokens in product(PAGES, tree_lookups.SHAPES, scale.tokens):
        yield lookup | {"components": "FULL", "page": page, "shape": shape, "tokens": tokens}
    for components, tokens in product(LONG_HYBRIDS[1:], scale.hybrid_tokens):
        yield lookup | {"components": components, "page": 1, "shape": "chain", "tokens": tokens}


def _leafy(scale: Scale, core: str) -> Iterator[Ask]:
    """Evictions, siblings and memory."""
    grown = {"family_leaves": tree_evictions.FAMILY, "parent_pages": tree_evictions.PARENT_PAGES}
    evict = {"evict_calls": list(tree_evictions.CALLS.items()), "evict_budget_s": EVICT_BUDGET_S}
    kinds = (UNREFERENCED, REFERENCED) if core == PEER_WITH_SESSIONS else (UNREFERENCED,)
    for components, leaves, sessions in product(HYBRIDS, scale.leaves, kinds):
        where = {"components": components, "page": EVICT_PAGE, "leaves": leaves, "sessions": sessions}
        yield {"family": "evictions"} | grown | evict | where
    if core == PEER_WITH_SESSIONS:
        return
    wide = {"shape": "wide", "count": scale.siblings, "edge": tree_evictions.EDGE}
    yield {"family": "siblings", "components": "FULL", "page": EVICT_PAGE} | grown | wide
    for components, page in product(HYBRIDS, PAGES):
        nodes = {"warm_leaves": tree_memory.WARM_LEAVES, "nodes": scale.nodes}
        yield {"family": "memory", "components": components, "page": page} | grown | nodes


def _sessions(scale: Scale) -> Ask:
    return {
        "family": "sessions",
        "page": 1,
        "count": scale.sessions,
        "prompt_tokens": tree_sessions.PROMPT_TOKENS,
        "turn_tokens": tree_sessions.TURN_TOKENS,
        "turns": tree_sessions.TURNS,
    }


def is_for_a_bar(ask: Ask) -> bool:
    """Whether a bar, or what it is compared with, comes from this shape."""
    names = ("components", "page", "tokens", "leaves", "shape")
    for bar in BARS:
        said = {name: getattr(bar.where, name) for name in names}
        wanted = {name: value for name, value in said.items() if value is not None}
        same = all(ask.get(name) in (value, None) for name, value in wanted.items())
        if same and bar.where.op in OPS[ask["family"]]:
            return bool(ask["core"] != PEER_PYTHON)
    return False


def batches(plan: Sequence[Ask]) -> Iterator[list[Ask]]:
    """What one process of the peer does: a family on a core, or one tree's memory."""

    def key(ask: Ask) -> tuple[object, ...]:
        alone = (ask["components"], ask["page"]) if ask["family"] == "memory" else ()
        return ask["core"], ask["family"], *alone

    for _, group in groupby(plan, key):
        yield list(group)


def ask_peer(asks: Sequence[Ask], python: Path) -> Iterator[Row]:
    """The rows of one batch; says on stderr what comes next."""
    command = [str(python), str(HERE / "sglang_shapes.py"), json.dumps(asks)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdout
        for ask in asks:
            words = ("core", "family", "components", "page", "shape", "tokens", "leaves", "sessions")
            print("   ", *(ask[word] for word in words if ask.get(word)), file=sys.stderr, flush=True)
            while (line := peer.stdout.readline()).startswith("{"):
                yield Row(**json.loads(line))
    if peer.returncode:
        raise SystemExit("SGLang's process failed; it said why")


def read(path: Path) -> list[Row]:
    return [Row(**one) for one in json.loads(path.read_text(encoding="utf-8"))["rows"]]


def ask_ours(quick: bool, only_bars: bool) -> list[Row]:
    command = [sys.executable, "-m", "agentcache", "bench", "tree", "--json", "--core", "native"]
    command += ["--quick"] * quick
    if only_bars:
        command += ["--op", "memcmp", *sorted({bar.where.op for bar in BARS})]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit("agentcache bench tree failed; it said why")
    return [Row(**one) for one in json.loads(done.stdout)["rows"]]


def sitting(quick: bool, only_bars: bool, python: Path) -> list[Row]:
    """All figures, ours first; says on stderr what it does."""
    rows = ask_ours(quick, only_bars)
    plan = [ask for ask in asks(QUICK_SCALE if quick else FULL_SCALE) if not only_bars or is_for_a_bar(ask)]
    for batch in batches(plan):
        rows += ask_peer(batch, python)
    return rows


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.read:
        rows = read(options.read)
    else:
        began = time.monotonic()
        rows = sitting(options.quick, options.bars, options.python)
        rows += read(options.rust) if options.rust else []
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"rows": [asdict(row) for row in rows]}))
        print(f"{time.monotonic() - began:.0f} s; the rows are in {options.out}", file=sys.stderr)
    verdicts = judge(rows)
    if options.markdown:
        print(markdown(verdicts))
    else:
        show(verdicts, Console(width=None if sys.stdout.isatty() else 200))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bars", action="store_true", help="only the shapes that a bar is set for")
    parser.add_argument("--quick", action="store_true", help="small shapes: does it run?")
    parser.add_argument("--markdown", action="store_true", help="the table as README.md has it")
    parser.add_argument("--read", type=Path, help="judge the rows of an earlier run")
    parser.add_argument("--rust", type=Path, help="rows that the core's own benchmark has printed")
    parser.add_argument("--out", type=Path, default=Path("build/bench-peer.json"))
    parser.add_argument("--python", type=Path, default=HERE / ".venv" / "bin" / "python", help="SGLang's")
    return parser


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

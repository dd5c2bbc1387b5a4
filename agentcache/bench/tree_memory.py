"""Resident bytes a node: the growth of a fresh process over a tree of one-page leaves."""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agentcache.bench.starting import start
from agentcache.bench.tree_evictions import FAMILY, grow_leaves
from agentcache.bench.tree_rows import BYTES, Place, Row, figure
from agentcache.bench.tree_world import World

WARM_LEAVES = 2_000


def memory_rows(place: Place, leaves: int, sessions: str) -> list[Row]:
    """Bytes a node, tokens and slots included, in a process of its own. Parents count as nodes."""
    words = (place.core, place.components, str(place.page), str(leaves), sessions)
    command = [sys.executable, "-m", "agentcache.bench.tree_memory", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit("the process that measures memory failed; it said why")
    found = float(json.loads(done.stdout))
    times = figure("bytes_per_node", place, (0, 0, 1), place.page, None, sessions)
    return [replace(times, best_us=round(found), median_us=round(found), unit=BYTES)]


def bytes_per_node(place: Place, leaves: int, sessions: str) -> float:
    """In this process: leave what is here aside, add `leaves`, and see what grew."""
    world = World(place)
    grow_leaves(world, WARM_LEAVES, sessions)
    gc.collect()
    before = _resident()
    grow_leaves(world, leaves, sessions, WARM_LEAVES)
    gc.collect()
    return (_resident() - before) / (leaves + leaves / FAMILY)


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def main(words: Sequence[str]) -> int:
    core, components, page, leaves, sessions = words
    print(json.dumps(bytes_per_node(Place(core, components, int(page)), int(leaves), sessions)))
    return 0


if __name__ == "__main__":
    start(main)

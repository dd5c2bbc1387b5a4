"""Measures SGLang's cores in the shapes of `agentcache bench tree`; runs in the environment beside this file.

    sglang_shapes.py '[{"family": "rounds", "core": "sglang-rust", "components": "FULL", "page": 1, ...}, ...]'

prints one JSON row a line, and an empty line after each shape. Keys and values are built outside the timed region,
which favours SGLang.
"""

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from sglang_tree import SESSIONS, Tree

clock = time.perf_counter
Ask = dict[str, Any]
Row = dict[str, Any]


def row(ask: Ask, op: str, seconds: list[float], **more: Any) -> Row:
    best, median = min(seconds) * 1e6, statistics.median(seconds) * 1e6
    return figure(ask, op, (best, median, len(seconds)), **more)


def figure(ask: Ask, op: str, found: tuple[float, float, int], **more: Any) -> Row:
    known = {name: ask.get(name) for name in ("components", "page", "tokens", "leaves", "core")}
    best, median, n = found
    measured = {"best_us": round(best, 3), "median_us": round(median, 3), "n": n}
    general = {"sessions": ask.get("sessions", "unreferenced"), "shape": ask.get("shape", ""), "unit": "us"}
    return {"op": op, **known, **measured, **general, **more}


def settle() -> None:
    gc.collect()
    gc.freeze()


def rounds(ask: Ask) -> Iterator[Row]:
    """Per round and step the least of the passes (best), or their median."""
    passes = [converse(ask) for _ in range(ask["passes"])]
    names = list(passes[0][0])
    tokens = ask["rounds"] * ask["round_tokens"]
    found: dict[str, list[float]] = {}
    for pick in (min, statistics.median):
        times = [
            {name: pick([one[name] for one in same]) for name in names} for same in zip(*passes, strict=True)
        ]
        whole = [sum(one.values()) * 1e6 for one in times]
        found.setdefault("round", []).append(statistics.mean(whole))
        found.setdefault("round_last20", []).append(statistics.median(whole[-ask["last"] :]))
        for name in names:
            found.setdefault(f"round_{name}", []).append(statistics.mean(one[name] for one in times) * 1e6)
    for op, (best, median) in found.items():
        yield figure(ask, op, (best, median, ask["passes"]), tokens=tokens)


def converse(ask: Ask) -> list[dict[str, float]]:
    tree = Tree(ask["core"], ask["components"], ask["page"])
    context = tree.tokens(ask["rounds"] * ask["round_tokens"])
    request = tree.open("s") if ask["core"] == SESSIONS else None
    settle()
    ends = range(ask["round_tokens"], len(context) + 1, ask["round_tokens"])
    times = [turn(tree, context, (end - ask["asked_tokens"], end), request) for end in ends]
    tree.cache.sanity_check()
    gc.unfreeze()
    return times


def turn(tree: Tree, context: Any, lengths: tuple[int, int], request: Any) -> dict[str, float]:
    """One round; seconds of each step."""
    cache = tree.cache
    asked = tree.looked_up(context[: tree.whole(lengths[0])])
    begin = clock()
    found = cache.match_prefix(asked)
    matched = clock()
    held = cache.lock(found.last_device_node)
    locked = clock()
    offer = tree.offered(context[: tree.whole(lengths[1])], found.device_prefix_len)
    ready = clock()
    inserted = cache.insert(offer)
    added = clock()
    cache.unlock(held)
    ended = clock()
    times = {
        "match": matched - begin,
        "lock": locked - matched,
        "insert": added - ready,
        "unlock": ended - added,
    }
    if request:
        begin = clock()
        tree.refer(request, inserted.last_device_node)
        times["reference"] = clock() - begin
    return times


def grown(ask: Ask) -> tuple[Tree, Any]:
    """A tree with one path of so many tokens: one node, or a chain as turns grow it."""
    tree = Tree(ask["core"], ask["components"], ask["page"])
    context = tree.tokens(ask["tokens"])
    step = len(context) if ask["shape"] == "one" else max(tree.page, tree.whole(ask["added_tokens"]))
    ends = list(range(step, len(context), step))
    for start, end in zip([0, *ends], [*ends, len(context)], strict=True):
        tree.cache.insert(tree.offered(context[:end], start))
    return tree, context


def lookups(ask: Ask) -> Iterator[Row]:
    tree, context = grown(ask)
    asked = tree.looked_up(context)
    assert tree.cache.match_prefix(asked).device_prefix_len == len(context)
    settle()
    yield row(ask, "match", repeat(lambda: tree.cache.match_prefix(asked), ask))
    step = max(tree.page, tree.whole(ask["added_tokens"]))
    seconds = []
    for _ in range(ask["inserts"]):
        offer = tree.offered(context + tree.tokens(step), len(context))
        begin = clock()
        tree.cache.insert(offer)
        seconds.append(clock() - begin)
    yield row(ask, "insert", seconds)


def repeat(call: Callable[[], Any], ask: Ask) -> list[float]:
    """Calls for about a budget of seconds, within bounds."""
    least, most = ask["calls"]
    seconds: list[float] = []
    end = clock() + ask["budget_s"]
    while len(seconds) < least or (len(seconds) < most and clock() < end):
        begin = clock()
        call()
        seconds.append(clock() - begin)
    return seconds


def grow_leaves(tree: Tree, ask: Ask, leaves: int, first: int = 0) -> None:
    """One-page leaves under parents of some pages; each referenced by a session of its own, or by none."""
    base = tree.tokens(0)
    for number in range(leaves):
        if number % ask["family_leaves"] == 0:
            base = tree.tokens(ask["parent_pages"] * tree.page)
            tree.cache.insert(tree.offered(base))
        leaf = tree.cache.insert(tree.offered(base + tree.tokens(tree.page), len(base)))
        if ask["sessions"] == "referenced":
            tree.refer(tree.open(f"s{first + number}"), leaf.last_device_node)


def evictions(ask: Ask) -> Iterator[Row]:
    tree = Tree(ask["core"], ask["components"], ask["page"])
    grow_leaves(tree, ask, ask["leaves"])
    length = (ask["parent_pages"] + 1) * tree.page
    settle()
    for pages, calls in ask["evict_calls"]:
        bounds = {"calls": (min(calls, 5), calls), "budget_s": ask["evict_budget_s"]}
        yield row(ask, f"evict_{pages}", repeat(lambda pages=pages: tree.evict(pages), bounds), tokens=length)


def sessions(ask: Ask) -> Iterator[Row]:
    tree = Tree(ask["core"], ask["components"], ask["page"])
    prompt = tree.tokens(ask["prompt_tokens"])
    times: dict[str, list[float]] = {"open": [], "reference": [], "close": []}
    names = [f"s{number}" for number in range(ask["count"])]
    settle()
    for name in names:
        live(tree, name, prompt, ask, times)
    for name in names:
        begin = clock()
        tree.cache.release_radix_session(name)
        times["close"].append(clock() - begin)
    first, last = len(prompt) + ask["turn_tokens"], len(prompt) + ask["turns"] * ask["turn_tokens"]
    for op, seconds in times.items():
        yield row(ask, op, seconds, tokens=first if op == "open" else last)


def live(tree: Tree, name: str, prompt: Any, ask: Ask, times: dict[str, list[float]]) -> None:
    """One session's turns. Its first reference counts with the opening, as ours opens a session with it."""
    step = ask["turn_tokens"]
    begin = clock()
    request = tree.open(name)
    opening = clock() - begin
    context = prompt + tree.tokens(ask["turns"] * step)
    for end in range(len(prompt) + step, len(context) + 1, step):
        leaf = tree.cache.insert(tree.offered(context[:end], end - step)).last_device_node
        begin = clock()
        tree.refer(request, leaf)
        times["open" if opening else "reference"].append(clock() - begin + opening)
        opening = 0.0


def siblings(ask: Ask) -> Iterator[Row]:
    """The tree's own part of a demotion: note the host copy, let go of the device copy."""
    tree = Tree(ask["core"], ask["components"], ask["page"])
    tree.cache.tree_core.set_hicache_enabled()
    tree.cache.tree_core.is_write_back = True
    base = tree.tokens(ask["parent_pages"] * tree.page)
    tree.cache.insert(tree.offered(base))
    leaves = [
        tree.cache.insert(tree.offered(base + tree.tokens(tree.page), len(base))).last_device_node
        for _ in range(ask["count"])
    ]
    host = torch.arange(tree.page, dtype=torch.int64)
    settle()
    seconds = []
    for leaf in leaves:
        begin = clock()
        tree.cache.tree_core.commit_backup(leaf, host, {})
        tree.cache._demote(leaf, dict.fromkeys(tree.cache.tree_components, 0))
        seconds.append(clock() - begin)
    length, edge = len(base) + tree.page, ask["edge"]
    yield row(ask, "demote_first", seconds[:edge], tokens=length)
    yield row(ask, "demote_last", seconds[-edge:], tokens=length)


def memory(ask: Ask) -> Iterator[Row]:
    """What this process grows by, a node; parents count as nodes."""
    tree = Tree(ask["core"], ask["components"], ask["page"])
    grow_leaves(tree, ask, ask["warm_leaves"])
    gc.collect()
    before = resident()
    grow_leaves(tree, ask, ask["nodes"], ask["warm_leaves"])
    gc.collect()
    found = round((resident() - before) / (ask["nodes"] + ask["nodes"] / ask["family_leaves"]))
    yield figure(ask, "bytes_per_node", (found, found, 1), tokens=ask["page"], unit="bytes")


def resident() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


FAMILIES: dict[str, Callable[[Ask], Iterator[Row]]] = {
    one.__name__: one for one in (rounds, lookups, evictions, sessions, siblings, memory)
}


def main() -> None:
    for ask in json.loads(sys.argv[1]):
        for found in FAMILIES[ask["family"]](ask):
            print(json.dumps(found))
        print(flush=True)
        gc.unfreeze()
        gc.collect()


if __name__ == "__main__":
    main()

"""All prompts of a workload as one tree that never changes: what a replay looks up that knows the future.

    pages ─► nodes: the longest runs of pages that every prompt holds wholly or not at all ─► the calls below each

All pages of a node are asked for by the same calls, so they have one next use, and a cache need only know how many
leading pages of a node it holds.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentcache.replay.paged import ROOT, PagedCall, Workload

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CallNodes:
    """Where a call's path ends in the tree: of what it may reuse, of its prompt, of prompt and output.

    `place`: its position among all calls in the order of the tree.
    """

    reusable: int
    prompt: int
    whole: int
    place: int


@dataclass(frozen=True, slots=True, eq=False)
class PromptTrie:
    """Nodes are numbered in preorder: all below one follow it. Node 0 is the root, without pages and above itself.

    Shapes  above, depth, pages: one entry a node; `depth` counts the pages before it. Lists, since they are read one by
            one
            first, beyond: int64[nodes]; the calls at places [first, beyond) may reuse the node
            ends[session][turn]
    """

    above: list[int]
    depth: list[int]
    pages: list[int]
    first: Numbers
    beyond: Numbers
    ends: list[list[CallNodes]]

    def of(self, call: PagedCall) -> CallNodes:
        return self.ends[call.session][call.turn]


def prompt_trie(workload: Workload) -> PromptTrie:
    """Compile it, once for all replays of a workload.

    Cost  O(pages log longest node + calls); no prompt is read but at its ends
    """
    node, above, pages = _nodes(workload)
    called = [[_ends(call, node) for call in session.calls] for session in workload.sessions]
    at = np.array([ends[0] for session in called for ends in session], dtype=np.int64)
    by_node = np.argsort(at, kind="stable")
    places = np.empty(len(at), dtype=np.int64)
    places[by_node] = np.arange(len(at))
    place = iter(places.tolist())
    numbers = np.arange(len(above))
    return PromptTrie(
        above=above.tolist(),
        depth=_depths(above, pages).tolist(),
        pages=pages.tolist(),
        first=np.searchsorted(at[by_node], numbers),
        beyond=np.searchsorted(at[by_node], numbers + _sizes(above)),
        ends=[[CallNodes(*ends, next(place)) for ends in session] for session in called],
    )


def _ends(call: PagedCall, node: Numbers) -> tuple[int, int, int]:
    """The nodes at which a call's parts end."""
    reusable = int(node[call.prompt[call.reusable - 1]]) if call.reusable else 0
    prompt = int(node[call.prompt[-1]]) if len(call.prompt) else 0
    return reusable, prompt, int(node[call.output[-1]]) if len(call.output) else prompt


def _last_pages(workload: Workload) -> Iterator[int]:
    """Where a call's path, or what it may reuse of it, ends."""
    calls = (call for session in workload.sessions for call in session.calls)
    parts = (part for call in calls for part in (call.prompt[: call.reusable], call.prompt, call.output))
    yield from (int(part[-1]) for part in parts if len(part))


def _nodes(workload: Workload) -> tuple[Numbers, Numbers, Numbers]:
    """The node of each page, in preorder; of each node the one above and how many pages it has."""
    before = workload.before.astype(np.int64)
    ends = np.bincount(before[1:], minlength=len(before)) != 1  # paths part or stop here
    ends[np.fromiter(_last_pages(workload), dtype=np.int64)] = True
    ends[ROOT] = True
    begins = ends[before]
    begins[ROOT] = True
    top = _followed(np.where(begins, np.arange(len(before)), before))
    node = (np.cumsum(begins) - 1)[top]
    above, pages = node[before[begins]], np.bincount(node)
    pages[0] = 0
    order = np.array(_preorder(above.tolist()))
    number = np.argsort(order)
    return number[node], number[above[order]], pages[order]


def _followed(pointers: Numbers) -> Numbers:
    """Where each pointer leads in the end, to one that points to itself."""
    while True:
        further = pointers[pointers]
        if np.array_equal(further, pointers):
            return further
        pointers = further


def _depths(above: Numbers, pages: Numbers) -> Numbers:
    """How many pages lie above each node: sums over ever longer ways up."""
    depth, pointers = pages[above], above
    while pointers.any():
        depth = depth + depth[pointers]
        pointers = pointers[pointers]
    return depth


def _preorder(above: list[int]) -> list[int]:
    """The nodes, each right before all below it."""
    below: list[list[int]] = [[] for _ in above]
    for node, upper in enumerate(above):
        if node:
            below[upper].append(node)
    order, stack = [], [0]
    while stack:
        order.append(stack.pop())
        stack.extend(below[order[-1]])
    return order


def _sizes(above: Numbers) -> Numbers:
    """How many nodes are at or below each."""
    sizes = [1] * len(above)
    for node, upper in reversed(list(enumerate(above.tolist()))[1:]):
        sizes[upper] += sizes[node]
    return np.array(sizes)

"""Replays one cell of a table with one seed."""

from functools import lru_cache

from agentcache.clock import ManualClock
from agentcache.replay.lab.cached import CachedPages, Sizing, replay_cache
from agentcache.replay.lab.cells import Cell, Policy, Score, score
from agentcache.replay.lab.clairvoyant import Clairvoyant
from agentcache.replay.lab.scripts import draw_script, draw_tells
from agentcache.replay.lab.serving import Replayed, Served
from agentcache.replay.lab.trie import PromptTrie, prompt_trie
from agentcache.replay.lab.unbounded import Unbounded
from agentcache.replay.lab.world import Script, World
from agentcache.replay.paged import Workload


def replay_cell(workload: Workload, cell: Cell, seed: int) -> Score:
    """What becomes of a workload in this cell. Equal seeds have equal starts and gaps under every policy."""
    return score(replay_calls(workload, cell, seed), workload.page_tokens)


def replay_calls(workload: Workload, cell: Cell, seed: int) -> list[Replayed]:
    """Every call as it went."""
    script, clock = draw_script(workload, cell, seed), ManualClock()
    served = _served(script, cell, seed, clock)
    return World(script, cell.machine, served, clock).run()


def _served(script: Script, cell: Cell, seed: int, clock: ManualClock) -> Served:
    workload = script.workload
    peak = workload.mean_peak_pages
    device, host = max(1, round(cell.device * peak)), round(cell.host * peak)
    if cell.policy is Policy.UNBOUNDED:
        return Unbounded(workload)
    order = cell.policy.order
    if order is None:
        return Clairvoyant(script, cell.machine, trie_of(workload), device, host)
    cache = replay_cache(Sizing(order, device, host), clock)
    return CachedPages(workload, cache, draw_tells(script, cell, seed), cell.supersedes)


@lru_cache(maxsize=2)
def trie_of(workload: Workload) -> PromptTrie:
    """All prompts of a workload, once for all its cells."""
    return prompt_trie(workload)

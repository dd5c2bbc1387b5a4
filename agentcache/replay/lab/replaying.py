"""Replays one cell of a table with one seed."""

from functools import lru_cache

from agentcache.clock import ManualClock
from agentcache.errors import CacheError, Kind
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
    device, host, external = (room_pages(workload, room) for room in (cell.device, cell.host, cell.external))
    if cell.policy is Policy.UNBOUNDED:
        return Unbounded(workload, cell.parts)
    order = cell.policy.order
    if order is None and cell.parts.hybrid:
        said = f"the clairvoyant order knows pages of full attention only, not {cell.parts.name}"
        raise CacheError(Kind.BAD_REQUEST, f"{said}; hold the orders against unbounded")
    if order is None:
        return Clairvoyant(script, cell.machine, trie_of(workload), device, host + external)  # one lower tier
    sizing = Sizing(
        order, device, host, parts=cell.parts, page_tokens=workload.page_tokens, external_pages=external
    )
    tells = draw_tells(script, cell, seed)
    return CachedPages(workload, replay_cache(sizing, clock), tells, cell.supersedes, cell.parts)


def room_pages(workload: Workload, room: float) -> int:
    """A room of so many mean session peaks in pages, and no more than everything could fill; 0 stays 0.

    Errors  BAD_REQUEST for less than half a page
    """
    everything = len(workload.before) + sum(session.peak_pages for session in workload.sessions)
    pages = round(min(room * workload.mean_peak_pages, everything))
    if room and not pages:
        peak_tokens = round(workload.mean_peak_pages * workload.page_tokens)
        said = f"a room of {room:g} mean session peaks, {peak_tokens:,} tokens each, is less than a page"
        raise CacheError(Kind.BAD_REQUEST, f"{said} of {workload.page_tokens}: ask for a larger one")
    return pages


@lru_cache(maxsize=2)
def trie_of(workload: Workload) -> PromptTrie:
    """All prompts of a workload, once for all its cells."""
    return prompt_trie(workload)

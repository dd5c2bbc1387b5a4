"""Match: one walk, two votes (on the device; on device or host), and why the first is not deeper."""

from agentcache.errors import CacheError, Kind
from agentcache.keys import Key
from agentcache.tree.reference.component import TreeComponent
from agentcache.tree.reference.node import Node
from agentcache.tree.reference.trie import PageTrie
from agentcache.tree.reference.vote import Ballot
from agentcache.types import FULL, MatchResult, Miss, MissReason, TierName


def match(trie: PageTrie, key: Key, limit: int) -> MatchResult:
    """`Lookup.peek` of the contract. Topology and recency stay."""
    if len(key) % trie.config.page_tokens:
        raise CacheError(Kind.UNALIGNED, "a key is whole pages; cut it with keys.page_key", tokens=len(key))
    on_device, on_any = Ballot(trie.components), Ballot(trie.components)
    device = deepest = last = trie.origin
    refused: tuple[TreeComponent | None, TreeComponent | None] = (None, None)
    full_tokens, grid = 0, trie.config.grid
    for node in trie.walk(key, trie.origin):
        if node.end > limit:
            break
        full_tokens = node.end
        refusals = (
            on_device.refusing(node.end, lambda name, at=node: at.has(name, TierName.DEVICE)),  # type: ignore[misc]
            on_any.refusing(node.end, node.anywhere),
        )
        if node.end % grid:
            continue
        last, refused = node, refusals
        if refusals[0] is None:
            device = node
        if refusals[1] is None:
            deepest = node
    miss = _explain(device, last, refused)
    reachable = min(limit, len(key))
    if miss is None and device.end < reachable - reachable % grid:
        miss = Miss(FULL, full_tokens, MissReason.NOT_CACHED)
    return MatchResult(trie.boundary(device), trie.boundary(deepest), full_tokens, miss)


def _explain(
    device: Node, last: Node, refused: tuple[TreeComponent | None, TreeComponent | None]
) -> Miss | None:
    """Who refused the last candidate on the path: who lacks the data, or else whose data are on the host only."""
    on_device, on_any = refused
    if last is device or on_device is None:
        return None
    if on_any is None:
        return Miss(on_device.name, last.end, MissReason.ON_HOST)
    return Miss(on_any.name, last.end, on_any.refusal)

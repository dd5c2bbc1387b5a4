"""Match: one walk, two votes (on the device; on device or host), and why the first is not deeper."""

from agentcache.keys import Key
from agentcache.tree.reference.arguments import raw_key, saturated
from agentcache.tree.reference.component import TreeComponent
from agentcache.tree.reference.node import Node
from agentcache.tree.reference.trie import PageTrie
from agentcache.tree.reference.vote import Ballot
from agentcache.types import FULL, MatchResult, Miss, MissReason, TierName


def match(trie: PageTrie, asked: Key, limit: int) -> MatchResult:
    """`Lookup.peek` of the contract. Topology and recency stay."""
    key, limit = raw_key(asked, trie.config.page_tokens), saturated(limit)
    on_device, on_any = Ballot(trie.components), Ballot(trie.components)
    device = deepest = last = trie.origin
    refused: tuple[list[TreeComponent], list[TreeComponent]] = ([], [])
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
        if not refusals[0]:
            device = node
        if not refusals[1]:
            deepest = node
    if device is not last:
        miss: Miss | None = _explain(last, *refused)
    elif device.end + grid <= min(limit, len(key)):
        miss = Miss(FULL, full_tokens, MissReason.NOT_CACHED)
    else:
        miss = None
    return MatchResult(trie.boundary(device), trie.boundary(deepest), full_tokens, miss)


def _explain(last: Node, on_device: list[TreeComponent], on_any: list[TreeComponent]) -> Miss:
    """Who refused the last candidate on the path: who lacks the data, or else whose data are on the host only."""
    if on_any:
        return Miss(on_any[0].name, last.end, on_any[0].refusal)
    return Miss(on_device[0].name, last.end, MissReason.ON_HOST)

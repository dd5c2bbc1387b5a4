"""Insert: who owns each offered slot, and how deep the path now votes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import index

from agentcache.errors import CacheError, Kind
from agentcache.keys import Key
from agentcache.tree.reference.arguments import RawKey, demand_numbers, demand_once, raw_key, slots_by_end
from agentcache.tree.reference.changes import Changes, Pieces
from agentcache.tree.reference.leases import LeaseTable
from agentcache.tree.reference.node import Node, child_key, upward
from agentcache.tree.reference.trie import PageTrie
from agentcache.tree.reference.vote import Ballot, deepest_votable
from agentcache.types import (
    FULL,
    ComponentName,
    Insert,
    Inserted,
    Piece,
    PoolName,
    TierName,
)


@dataclass(slots=True)
class Offer:
    """A validated insert: the base it continues, and per page end the offered slot of each component."""

    key: RawKey
    base: Node
    full_from: int
    tier: TierName
    now_ns: int
    slots: dict[int, dict[ComponentName, int]] = field(default_factory=dict)

    def offered(self, end: int) -> dict[ComponentName, int]:
        """What is offered for the page that ends here."""
        return self.slots.get(end, {})


def insert(trie: PageTrie, leases: LeaseTable, key: Key, request: Insert, now_ns: int) -> Inserted:
    """`Lookup.insert` of the contract."""
    offer = _validated(trie, leases, key, request, now_ns)
    stored = trie.walk(offer.key, offer.base)
    taken, kept, changes = Pieces(trie.config), Pieces(trie.config), Changes()
    if _has_ground(offer, stored):
        node = _take(trie, offer, _frontier_end(trie, offer, stored), taken, changes)
        _keep(trie, offer, node.end, kept)
    else:
        tip = stored[-1] if stored else offer.base
        node = deepest_votable(tip, trie.components, trie.config.grid) or trie.origin
        _keep(trie, offer, 0, kept)
    trie.touch(node, node.end, now_ns, hit=False)
    if request.priority:
        _raise_priority(trie, node, request.priority)
    return Inserted(trie.boundary(node), taken.build(), kept.build(), changes.effects(trie.config))


def _has_ground(offer: Offer, stored: list[Node]) -> bool:
    """Whether the pages before `full_from` have the FULL that the offer leaves out: on the device for an offer there.

    A page that is in the tree has FULL on some tier.
    """
    ground = [node for node in stored if node.end <= offer.full_from]
    whole = (ground[-1] if ground else offer.base).end == offer.full_from
    return whole and (offer.tier is not TierName.DEVICE or all(at.has(FULL, offer.tier) for at in ground))


def _take(trie: PageTrie, offer: Offer, frontier_end: int, taken: Pieces, changes: Changes) -> Node:
    """Take what is offered up to the frontier; answers its node."""
    node, page = offer.base, trie.config.page_tokens
    for end in range(offer.base.end + page, frontier_end + 1, page):
        node = _child(trie, node, offer, end)
        _settle(trie, node, offer, taken, changes)
    while node.end > frontier_end:
        node = node.above
    return node


def _raise_priority(trie: PageTrie, node: Node, priority: int) -> None:
    for at in upward(node):
        at.priority = max(at.priority, priority)
        trie.ranking.mark(at)


def _child(trie: PageTrie, parent: Node, offer: Offer, end: int) -> Node:
    page = offer.key.page(end, trie.config.page_tokens)
    child = parent.children.get(child_key(parent, offer.key.namespace, page))
    return child or trie.grow(parent, offer.key.namespace, page)


def _settle(trie: PageTrie, node: Node, offer: Offer, taken: Pieces, changes: Changes) -> None:
    """Take what the page lacks on the offer's tier; present copies win and the incoming slot is freed."""
    for component in trie.components:
        slot = offer.offered(node.end).get(component.name)
        if slot is None:
            continue
        if node.has(component.name, offer.tier):
            changes.free(PoolName(component.name, offer.tier), slot)
        else:
            trie.attach(node, component.name, offer.tier, slot, changes)
            cell = node.cells[component.name]
            cell.used_ns, cell.released = offer.now_ns, False
            taken.add(component.name, node.end, slot, component.is_state)


def _keep(trie: PageTrie, offer: Offer, beyond: int, kept: Pieces) -> None:
    """What is offered beyond a position stays with the caller."""
    for end in sorted(end for end in offer.slots if end > beyond):
        for name, slot in offer.slots[end].items():
            kept.add(name, end, slot, trie.component(name).is_state)


def _frontier_end(trie: PageTrie, offer: Offer, stored: list[Node]) -> int:
    """The deepest end that votes on device or host once the offer is in."""
    voted = deepest_votable(offer.base, trie.components, trie.config.grid)
    deepest = voted.end if voted else 0
    ballot = Ballot(trie.components)
    ballot.resume_below(offer.base)
    there, page = {node.end: node for node in stored}, trie.config.page_tokens
    for end in range(offer.base.end + page, len(offer.key) + 1, page):
        resident = _resident_with(offer.offered(end), there.get(end))
        if not ballot.refusing(end, resident) and end % trie.config.grid == 0:
            deepest = end
    return deepest


def _resident_with(offered: dict[ComponentName, int], stored: Node | None) -> Callable[[ComponentName], bool]:
    return lambda name: name in offered or (stored is not None and stored.anywhere(name))


# -- validation: an error changes nothing


def _validated(trie: PageTrie, leases: LeaseTable, asked: Key, request: Insert, now_ns: int) -> Offer:
    key = raw_key(asked, trie.config.page_tokens)
    base = leases.record(request.after).node if request.after else trie.origin
    if request.tier not in trie.config.tiers:
        raise CacheError(Kind.BAD_INSERT, "this tree does not keep residency of that tier", tier=request.tier)
    if len(key) < base.end or (base.end and base.namespace != key.namespace):
        raise CacheError(Kind.BAD_INSERT, "the key does not continue the lease's path", after=base.end)
    full_from = _full_from(request, base, key, trie.config.page_tokens)
    offer = Offer(key, base, full_from, request.tier, now_ns)
    _add(trie, offer, Piece(FULL, full_from, len(key), request.full))
    for piece in request.pieces:
        if piece.component == FULL:
            raise CacheError(Kind.BAD_INSERT, "FULL slots go into `full`, not into `pieces`")
        _add(trie, offer, piece)
    _refuse_owned(trie, offer)
    demand_numbers(priority=request.priority)
    return offer


def _full_from(request: Insert, base: Node, key: RawKey, page_tokens: int) -> int:
    """Where the offered FULL begins. Errors: BAD_INSERT, UNALIGNED."""
    start = base.end if request.full_from is None else index(request.full_from)
    if not base.end <= start <= len(key):
        raise CacheError(
            Kind.BAD_INSERT, "FULL begins after the lease and within the key", full_from=start, after=base.end
        )
    if start % page_tokens:
        raise CacheError(Kind.UNALIGNED, "FULL begins at a whole page", full_from=start)
    return start


def _add(trie: PageTrie, offer: Offer, piece: Piece) -> None:
    """Spread a piece over its page ends."""
    component, page = trie.component(piece.component), trie.config.page_tokens
    if not 0 <= piece.start <= piece.end <= len(offer.key):
        raise CacheError(
            Kind.BAD_INSERT, "pieces lie within the key", component=piece.component, start=piece.start
        )
    if piece.start % page or piece.end % page:
        raise CacheError(
            Kind.UNALIGNED, "pieces are whole pages", component=piece.component, start=piece.start
        )
    for end, slot in slots_by_end(piece, component.is_state, page):
        if not component.can_lie_at(end):
            raise CacheError(Kind.UNALIGNED, "no state can lie here", component=piece.component, position=end)
        here = offer.slots.setdefault(end, {})
        if piece.component in here or not offer.base.end < end <= len(offer.key):
            raise CacheError(
                Kind.BAD_INSERT,
                "each position is offered once, after the lease and within the key",
                component=piece.component,
                position=end,
            )
        here[piece.component] = slot


def _refuse_owned(trie: PageTrie, offer: Offer) -> None:
    """A slot has one owner: refuse slots that the tree has already, or that are offered twice."""
    offered = [place for here in offer.slots.values() for place in here.items()]
    for name, slot in offered:
        if slot in trie.owners[PoolName(name, offer.tier)]:
            raise CacheError(Kind.BAD_INSERT, "this slot has an owner already", component=name, slot=slot)
    demand_once(offered, "slot")

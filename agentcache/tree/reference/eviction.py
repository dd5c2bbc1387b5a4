"""One call of `evict`: victims, what their loss takes along, and where it goes (design §4.2, §7)."""

from agentcache.tree.api import WritePolicy
from agentcache.tree.reference.changes import Changes
from agentcache.tree.reference.jobs import JobTable
from agentcache.tree.reference.node import Node
from agentcache.tree.reference.rooms import HostRoom, cascaded
from agentcache.tree.reference.trie import PageTrie
from agentcache.tree.reference.vote import cut_off, deepest_votable, votes
from agentcache.types import FULL, ComponentName, TierName, Wait

HOST, DEVICE = TierName.HOST, TierName.DEVICE


class Eviction:
    """Takes the lowest ranked piece until enough is gained, then the tails that nothing can reach any more."""

    def __init__(
        self,
        trie: PageTrie,
        jobs: JobTable,
        component: ComponentName,
        where: tuple[TierName, dict[ComponentName, int]],
        changes: Changes,
    ) -> None:
        self._trie = trie
        self._ranking = trie.ranking
        self._jobs = jobs
        self._component = component
        self._tier, room = where
        self._room = HostRoom(trie, room, changes)
        self._changes = changes
        self._freed = 0
        self._moving = 0
        self._leaving: list[tuple[Node, ComponentName]] = []
        self._touched: list[tuple[Node, bool]] = []  # where data went, and whether its trigger was referenced

    def run(self, want: int, before: Wait | None) -> tuple[int, int]:
        """Evict; answers the slots of the component that are freed, and those moving."""
        while self._gained < want:
            victim = self._ranking.best(self._component, self._tier)
            if not victim or (before and not self._ranking.expected_after(before, victim, self._component)):
                break
            self._take(victim, want)
            self._jobs.plan_leaving(self._leaving, self._changes)
            self._leaving = []
        for node in self._ranking.going:
            self._ranking.mark(node.above)
        self._ranking.going.clear()
        self._sweep()
        return self._freed, self._moving

    @property
    def _gained(self) -> int:
        return self._freed + self._moving

    def _take(self, victim: Node, want: int) -> None:
        referenced = victim.cells[self._component].references > 0
        if self._component == FULL:
            self._trim(victim, want)
        else:
            self._take_piece(victim)
        self._touched.append((victim, referenced))

    # -- FULL: a tail, page by page

    def _trim(self, tail: Node, want: int) -> None:
        """Shorten a path from its end down to the next boundary that votes, at least `want`, no further."""
        key = self._ranking.key(tail, FULL)
        node = tail
        while self._ranking.candidate(node, FULL, self._tier) and self._ranking.key(node, FULL) == key:
            above = node.above
            if not self._leave_page(node):
                return
            node = above
            if self._gained >= want and self._votes(node):
                return

    def _leave_page(self, node: Node) -> bool:
        """FULL leaves the tier at this page; every aux piece there shares its fate.

        False: nothing left, because something below is only on its way and this page cannot go with it.
        """
        aux = cascaded(self._trie, node, FULL, self._tier, demoted=False)
        backed = self._tier is DEVICE and node.has(FULL, HOST)
        if self._tier is DEVICE and not backed and self._demotes(node, FULL):
            self._ranking.going.add(node)
            self._ranking.mark(node.above)
            self._send(node, FULL)
            for name in aux:
                self._give_up(node, name)
            return True
        if self._leaving or any(child in self._ranking.going for child in node.children.values()):
            return False
        for name in aux:
            if backed:
                self._give_up(node, name)
            else:
                self._lose(node, name)
        self._lose(node, FULL)
        return True

    # -- aux: one checkpoint, or one window interval between boundaries

    def _take_piece(self, victim: Node) -> None:
        for node in self._interval(victim):
            demoted = self._give_up(node, self._component)
            follow = self._give_up if demoted else self._lose  # what it takes along shares its fate
            for name in cascaded(self._trie, node, self._component, self._tier, demoted):
                follow(node, name)

    def _interval(self, victim: Node) -> list[Node]:
        """The pages that make one piece with the victim, deepest first: none below, it would have been the victim."""
        nodes = [victim]
        while (above := nodes[-1].above).end and self._joined(victim, above):
            nodes.append(above)
        return nodes

    def _joined(self, victim: Node, upper: Node) -> bool:
        """Whether the page that ends at `upper` goes with those below: no boundary and no fork there, same rank key."""
        return (
            len(upper.children) == 1
            and self._trie.component(self._component).in_one_piece(upper.end, self._trie.config.grid)
            and self._ranking.candidate(upper, self._component, self._tier)
            and self._ranking.key(upper, self._component) == self._ranking.key(victim, self._component)
        )

    # -- where a copy goes

    def _give_up(self, node: Node, name: ComponentName) -> bool:
        """One copy leaves the tier, down where it fits; answers whether it survives below."""
        if self._tier is DEVICE and node.has(name, HOST):
            self._lose(node, name)
            return True
        if self._tier is DEVICE and self._demotes(node, name):
            self._send(node, name)
            return True
        self._lose(node, name)
        return False

    def _lose(self, node: Node, name: ComponentName) -> None:
        self._freed += name == self._component and self._tier in node.cells[name].slots
        self._trie.lose(node, name, self._tier, self._changes)

    def _send(self, node: Node, name: ComponentName) -> None:
        self._moving += name == self._component
        self._leaving.append((node, name))

    def _demotes(self, node: Node, name: ComponentName) -> bool:
        """Whether one host slot is to be had for this piece."""
        config = self._trie.config
        if config.write_policy is not WritePolicy.WRITE_BACK or not config.host_tier:
            return False
        return self._room.take(node, name, self._leaving)

    # -- tails beyond the deepest boundary that votes

    def _sweep(self) -> None:
        """Drop tails that nothing can reach any more: above a trimmed tail, or below a lost aux piece."""
        reached: dict[bool, set[Node]] = {False: set(), True: set()}
        for node, referenced in self._touched:
            for tail in self._ends(node, reached[referenced]):
                if self._trie.holds(tail):
                    self._drop_dead(tail, referenced)

    def _ends(self, node: Node, reached: set[Node]) -> list[Node]:
        """Where tails may end now: where a trimmed path does, or at and below a lost aux piece."""
        if self._component != FULL and self._trie.holds(node):
            return cut_off(node, reached, self._trie.components, self._trie.config.grid)
        while node.end and not self._trie.holds(node):
            node = node.above
        return [node]

    def _votes(self, node: Node) -> bool:
        return votes(node, self._trie.components, self._trie.config.grid)

    def _drop_dead(self, tail: Node, referenced: bool) -> None:
        if not self._ranking.candidate(tail, FULL, self._tier):
            return
        boundary = deepest_votable(tail, self._trie.components, self._trie.config.grid)
        deepest = boundary.end if boundary else 0
        node = tail
        while (
            node.end > deepest
            and self._ranking.candidate(node, FULL, self._tier)
            and (referenced or not node.cells[FULL].references)
        ):
            above = node.above
            for name in cascaded(self._trie, node, FULL, self._tier, demoted=False):
                self._lose(node, name)
            self._lose(node, FULL)
            node = above

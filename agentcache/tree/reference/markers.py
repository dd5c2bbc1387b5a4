"""Markers: what each open session wants back (design §4.5)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agentcache.tree.reference.node import Cell, Node, is_prefix, path_to
from agentcache.tree.reference.trie import PageTrie
from agentcache.tree.reference.vote import deepest_votable
from agentcache.types import ComponentName, Held, SessionId, Turn, Wait, WaitState
from agentcache.views import MarkerView

NOT_LEFT = 0


@dataclass(slots=True, eq=False)
class Marker:
    """One branch of a session. `number` stays when the marker moves forward along its branch."""

    number: int
    generation: int
    frontier: Node
    alternate: Node | None
    start_seq: int
    finish_seq: int
    left_for: int = NOT_LEFT  # the number of the marker whose branch the session went on with


Positions = dict[ComponentName, set[Node]]


class MarkerBook:
    """Markers per session, and on every position how many sessions reference it."""

    def __init__(self, trie: PageTrie) -> None:
        self._trie = trie
        self._markers: dict[SessionId, list[Marker]] = {}
        self._held: dict[SessionId, Positions] = {}
        self._next = 1
        self.size = 0  # markers of all sessions

    def markers(self, session: SessionId) -> list[Marker]:
        return list(self._markers.get(session, ()))

    def sessions(self) -> list[SessionId]:
        return list(self._markers)

    def views(self) -> Iterator[MarkerView]:
        for session in sorted(self._markers):
            for marker in self._markers[session]:
                yield MarkerView(
                    session,
                    marker.generation,
                    marker.frontier.end,
                    marker.alternate.end if marker.alternate else 0,
                    marker.start_seq,
                    marker.finish_seq,
                    marker.left_for != NOT_LEFT,
                )

    # -- registering and releasing

    def register(
        self, session: SessionId, generation: int, turn: Turn, nodes: tuple[Node | None, Node | None]
    ) -> Positions:
        """Apply a finished turn. Answers the positions let go of.

        `nodes` are its frontier and alternate; each counts as the deepest boundary at or above it that votes.
        """
        frontier, alternate = (node and self._votable(node) for node in nodes)
        before = self.markers(session)
        kept = [marker for marker in before if not _ended_by(marker, generation, turn, frontier)]
        if frontier is None:
            return self._replace(session, kept)
        passed = [marker for marker in kept if is_prefix(marker.frontier, frontier)]
        ahead = max(passed, key=lambda marker: marker.frontier.end, default=None)
        new = Marker(
            ahead.number if ahead else self._take_number(),
            generation,
            frontier,
            alternate,
            turn.start_seq,
            turn.finish_seq,
        )
        others = [marker for marker in kept if marker not in passed]
        if ahead and not ahead.left_for and frontier.end > ahead.frontier.end:
            others = _still_wanted(others, ahead.number)
        there = {marker.number for marker in others}
        for marker in others:  # one that was left for a branch that is gone is left for this one
            if marker.finish_seq < turn.start_seq and marker.left_for not in there:
                marker.left_for = new.number
        return self._replace(session, self._newest([*others, new]))

    def drop_through(self, session: SessionId, generation: int) -> Positions:
        """Let go of the markers with generation <= `generation`."""
        return self._replace(session, self._after(session, generation))

    def would_drop(self, session: SessionId, generation: int) -> Positions:
        """What `drop_through` would let go of."""
        return _less(self._held.get(session, {}), self._union(self._after(session, generation)))

    def repair(self, disturbed: Iterable[SessionId]) -> None:
        """After data was dropped: move markers whose boundary no longer votes to the deepest one above that does.

        Only those of sessions that referenced what was dropped can be concerned: a boundary votes by its regions.
        """
        self._replace_all(
            {
                session: [marker for marker in self._markers[session] if self._settle(marker)]
                for session in disturbed
            }
        )

    # -- waits

    def expect(self, session: SessionId, wait: Wait) -> None:
        """Keep what a session is doing, and note the key of an idle one on all that it references."""
        if session not in self._markers:
            return
        self._trie.ranking.waits.put(session, wait)
        for cell in self._cells(self._held[session]):
            if wait.state == WaitState.IDLE:
                cell.note(wait.key_ns)

    def advance(self, now_ns: int) -> None:
        """Time goes on: what hinted sessions reference ranks otherwise once most of the hint has passed."""
        for session in self._trie.ranking.waits.advance(now_ns):
            self._trie.ranking.mark_all(node for nodes in self._held[session].values() for node in nodes)

    # -- inside

    def _take_number(self) -> int:
        self._next += 1
        return self._next - 1

    def _after(self, session: SessionId, generation: int) -> list[Marker]:
        return [marker for marker in self.markers(session) if marker.generation > generation]

    def _newest(self, markers: list[Marker]) -> list[Marker]:
        """At most `max_markers`, least recently finished first out."""
        ordered = sorted(markers, key=lambda marker: marker.finish_seq)
        return ordered[-self._trie.config.max_markers :]

    def _settle(self, marker: Marker) -> bool:
        """Move the marker up to what still votes; False when nothing does."""
        frontier = self._votable(marker.frontier)
        marker.alternate = self._votable(marker.alternate) if marker.alternate else None
        if frontier is None:
            return False
        marker.frontier = frontier
        return True

    def _votable(self, node: Node) -> Node | None:
        while node.end and not self._trie.holds(node):
            node = node.above
        return deepest_votable(node, self._trie.components, self._trie.config.grid)

    def _union(self, markers: list[Marker]) -> Positions:
        held: Positions = {component.name: set() for component in self._trie.components}
        for marker in markers:
            for node in (marker.frontier, marker.alternate):
                if node is None:
                    continue
                for component in self._trie.components:
                    held[component.name].update(self._trie.region_nodes(node, component, node.end))
        return held

    def _replace(self, session: SessionId, markers: list[Marker]) -> Positions:
        """Put a session's markers, adjust the counts, and answer the positions it no longer references."""
        before = self._held.get(session, {})
        self._replace_all({session: markers})
        return _less(before, self._held.get(session, {}))

    def _replace_all(self, markers: dict[SessionId, list[Marker]]) -> None:
        """Put the markers of several sessions in one step: what passes from one to another is never released."""
        ranking = self._trie.ranking
        before = {session: self._held.get(session, {}) for session in markers}
        after = {session: self._union(kept) for session, kept in markers.items()}
        for session in markers:
            for cell in self._cells(_less(after[session], before[session])):
                cell.gain(session)
        for session, kept in markers.items():
            for cell in self._cells(_less(before[session], after[session])):
                cell.let_go(session)
            self.size += len(kept) - len(self._markers.get(session, ()))
            if kept:
                self._markers[session], self._held[session] = kept, after[session]
            else:
                self._markers.pop(session, None)
                self._held.pop(session, None)
            ranking.mark_all(ranking.waits.put_tips(session, {marker.frontier for marker in kept}))

    def _cells(self, positions: Positions) -> Iterator[Cell]:
        """The cells at these positions, marked as changed."""
        for name, nodes in positions.items():
            self._trie.ranking.mark_all(nodes)
            yield from (node.cells[name] for node in nodes)

    def recount(self) -> dict[tuple[ComponentName, Node], set[SessionId]]:
        """References from scratch, for `check`."""
        found: dict[tuple[ComponentName, Node], set[SessionId]] = {}
        for session in self.sessions():
            for name, nodes in self._union(self._markers[session]).items():
                for node in nodes:
                    found.setdefault((name, node), set()).add(session)
        return found


def _ended_by(marker: Marker, generation: int, turn: Turn, frontier: Node | None) -> bool:
    """Whether a registering turn lets this marker go: an older generation, or a branch that it declares dead."""
    if frontier is not None and is_prefix(marker.frontier, frontier):
        return False
    dead_branch = turn.superseded and marker.finish_seq < turn.start_seq
    return dead_branch or marker.generation < generation


def _still_wanted(markers: list[Marker], extended: int) -> list[Marker]:
    """Without those left for the extended branch, or for one that goes with them."""
    dead = {extended}
    while gone := {marker.number for marker in markers if marker.left_for in dead} - dead:
        dead |= gone
    return [marker for marker in markers if marker.left_for not in dead]


def _less(positions: Positions, others: Positions) -> Positions:
    return {name: nodes - others.get(name, set()) for name, nodes in positions.items()}


def held_slots(positions: Positions, trie: PageTrie, own: int = 0) -> tuple[Held, ...]:
    """What lies at these positions, per component and tier, components without data left out.

    `own`: how many references to each are the holder's, and do not make it shared.
    """
    answer = []
    for component in trie.components:
        for pool in trie.config.tiers:
            nodes = [node for node in positions.get(component.name, ()) if node.has(component.name, pool)]
            shared = sum(node.cells[component.name].references > own for node in nodes)
            tokens = 0 if component.is_state else len(nodes) * trie.config.page_tokens
            if nodes:
                answer.append(Held(component.name, pool, tokens, len(nodes), shared))
    return tuple(answer)


def deepest_first(positions: Positions) -> list[Node]:
    nodes = set().union(*positions.values()) if positions else set()
    return sorted(nodes, key=lambda node: (-node.end, node.serial))


def by_path(nodes: list[Node]) -> list[list[Node]]:
    """Group nodes into root-to-tip paths, each node once, shallowest first within a path."""
    left, groups = set(nodes), []
    for tip in nodes:
        if tip in left:
            path = [node for node in path_to(tip) if node in left]
            left.difference_update(path)
            groups.append(path)
    return groups

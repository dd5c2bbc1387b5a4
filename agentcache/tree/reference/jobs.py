"""Jobs: transfers in flight, planned by region and settled by what landed (design §4.2)."""

from collections.abc import Iterable
from dataclasses import dataclass

from agentcache.errors import CacheError, Kind
from agentcache.tree.instances import first_number
from agentcache.tree.reference.arguments import demand_once, slots_by_end
from agentcache.tree.reference.changes import Changes, Pieces
from agentcache.tree.reference.node import Node, upward
from agentcache.tree.reference.ranking import protected
from agentcache.tree.reference.trie import PageTrie
from agentcache.types import (
    FULL,
    Committed,
    ComponentName,
    Job,
    Piece,
    PoolName,
    TierName,
)

DEVICE, HOST, EXTERNAL = TierName.DEVICE, TierName.HOST, TierName.EXTERNAL
Place = tuple[int, ComponentName]
"""A position of a job: (end of the page or position of the state in tokens, component)."""


@dataclass(slots=True)
class JobRecord:
    """A job, the node of each of its positions (FULL before aux, shallow before deep), and when it was planned."""

    job: Job
    places: dict[Place, Node]
    above: set[Node]
    tick: int
    keep_unlanded: bool


class JobTable:
    """Claims of jobs in flight. A claimed copy stays until `commit`."""

    def __init__(self, trie: PageTrie) -> None:
        self._trie = trie
        self._records: dict[int, JobRecord] = {}
        self._next = first_number(trie.instance)

    def __len__(self) -> int:
        return len(self._records)

    def records(self) -> list[JobRecord]:
        return list(self._records.values())

    # -- planning

    def demand_region(self, node: Node) -> None:
        """Errors: NOT_RESIDENT unless every component's region at `node` is on the device or the host."""
        for component in self._trie.components:
            for at in self._trie.region_nodes(node, component, node.end):
                if not at.anywhere(component.name):
                    raise CacheError(
                        Kind.NOT_RESIDENT,
                        "this boundary does not vote on device or host; plan with `any_tier` of a match",
                        component=component.name,
                        position=at.end,
                    )

    def plan_region(self, node: Node, source: TierName, target: TierName, changes: Changes) -> Job | None:
        """A copy of the region pieces at `node` that are on `source` and not on `target`; None when there are none."""
        places = [
            (at, component.name)
            for component in self._trie.components
            for at in self._trie.region_nodes(node, component, node.end)
            if at.has(component.name, source) and not at.has(component.name, target)
        ]
        return self.plan(places, (source, target), changes)

    def plan_leaving(self, places: list[tuple[Node, ComponentName]], changes: Changes) -> None:
        """A demotion of pieces of one path: what does not land is dropped."""
        self.plan(places, (DEVICE, HOST), changes, leaving=True)

    def plan(
        self,
        places: list[tuple[Node, ComponentName]],
        route: tuple[TierName, TierName],
        changes: Changes,
        leaving: bool = False,
        keep_unlanded: bool = False,
    ) -> Job | None:
        """Claim these places of one path on the route's source and emit the Move."""
        if not places:
            return None
        ordered = sorted(places, key=lambda place: (place[0].end, place[1] != FULL))
        pieces = Pieces(self._trie.config)
        for node, name in ordered:
            state = self._trie.component(name).is_state
            pieces.add(name, node.end, node.cells[name].slots[route[0]], state)
        job = Job(self._next, *route, pieces.build(), leaving)
        self._next += 1
        record = JobRecord(
            job,
            {(node.end, name): node for node, name in ordered},
            _with_ancestors(node for node, _ in reversed(ordered)),
            self._trie.tick,
            keep_unlanded,
        )
        self._records[job.number] = record
        self._claim(record, 1)
        changes.move(job)
        return job

    def _claim(self, record: JobRecord, by: int) -> None:
        for (_, name), node in record.places.items():
            self._trie.claim(node, name, record.job.source, by)
        for node in record.above:
            node.jobs_below += by
            self._trie.ranking.mark(node)

    # -- committing

    def commit(self, job: Job, landed: tuple[Piece, ...], changes: Changes) -> Committed:
        """Settle a job; the effects are the caller's to build from `changes`."""
        record, arrivals = self._arrived(job, landed)
        del self._records[job.number]
        self._claim(record, -1)
        settlement = Settlement(self._trie, record, arrivals, changes)
        if record.job.target is not EXTERNAL:
            settlement.run()
        settlement.strip()
        return Committed(settlement.landed.build(), settlement.dropped())

    def _arrived(self, job: Job, landed: tuple[Piece, ...]) -> tuple[JobRecord, dict[Place, int]]:
        """The record and the destination slot of each landed place. Errors: UNKNOWN_JOB, BAD_INSERT."""
        record = self._records.get(job.number)
        if record is None:
            raise CacheError(
                Kind.UNKNOWN_JOB, "this job is not in flight; commit a job once", number=job.number
            )
        owned = self._trie.owners  # what lies on EXTERNAL is not in the tree
        arrived = [
            (end, piece.component, slot)
            for piece in landed
            for end, slot in slots_by_end(
                piece, self._trie.component(piece.component).is_state, self._trie.config.page_tokens
            )
        ]
        for end, name, slot in arrived:
            pool = PoolName(name, record.job.target)
            if (end, name) not in record.places or slot in owned.get(pool, ()):
                raise CacheError(
                    Kind.BAD_INSERT,
                    "landed pieces are parts of the job, in new slots",
                    component=name,
                    position=end,
                )
        demand_once([(name, end) for end, name, _ in arrived], "position")
        demand_once([(name, slot) for _, name, slot in arrived], "slot")
        return record, {(end, name): slot for end, name, slot in arrived}


def _with_ancestors(nodes: Iterable[Node]) -> set[Node]:
    """These nodes and all above them. Cost O(answer)."""
    found: set[Node] = set()
    for node in nodes:
        for at in upward(node):
            if at in found:
                break
            found.add(at)
    return found


class Settlement:
    """One commit: attach what arrived, then let go of what left or never came."""

    def __init__(
        self, trie: PageTrie, record: JobRecord, arrivals: dict[Place, int], changes: Changes
    ) -> None:
        self._trie = trie
        self._record = record
        self._arrivals = arrivals
        self._changes = changes
        self._sources = {
            place: node.cells[place[1]].slots[record.job.source] for place, node in record.places.items()
        }
        self.landed = Pieces(trie.config)

    def dropped(self) -> tuple[Piece, ...]:
        """The pieces of the job that are on no tier any more, with the slots that they had."""
        pieces = Pieces(self._trie.config)
        for (end, name), node in self._record.places.items():
            if not node.anywhere(name):
                slot = self._sources[end, name]
                pieces.add(name, end, slot, self._trie.component(name).is_state)
        return pieces.build()

    def run(self) -> None:
        for place, node in self._record.places.items():
            if place in self._arrivals:
                self._arrive(node, place[1], self._arrivals[place])
            elif self._record.job.leaving and not self._record.keep_unlanded:
                self._drop(node, place[1])
        if self._record.job.leaving:
            self._depart()

    def strip(self) -> None:
        """Aux data whose FULL left the device while jobs read them go with the last of these jobs."""
        for (_, name), node in self._record.places.items():
            stays = not self._trie.holds(node) or node.has(FULL, DEVICE) or protected(node, name, DEVICE)
            if not stays and node.has(name, DEVICE):
                self._trie.lose(node, name, DEVICE, self._changes)

    def _arrive(self, node: Node, name: ComponentName, slot: int) -> None:
        target = self._record.job.target
        if not self._trie.holds(node) or node.has(name, target) or not self._has_ground(node, name, target):
            self._changes.free(PoolName(name, target), slot)
            return
        self._trie.attach(node, name, target, slot, self._changes)
        self.landed.add(name, node.end, slot, self._trie.component(name).is_state)

    def _has_ground(self, node: Node, name: ComponentName, target: TierName) -> bool:
        """On the device, FULL needs its parent and aux data their FULL; below, existing nodes are ground enough."""
        if target is not DEVICE:
            return True
        return node.has(FULL, DEVICE) if name != FULL else not node.above.end or node.above.has(FULL, DEVICE)

    def _busy(self, node: Node, name: ComponentName) -> bool:
        """Locked, used, or read by another job since the job was planned: the device copy stays."""
        cell = node.cells[name]
        return cell.locks > 0 or cell.touched > self._record.tick or DEVICE in cell.claims

    def _drop(self, node: Node, name: ComponentName) -> None:
        """A piece that was sent off and did not land goes, a FULL page with all below it."""
        if not node.has(name, DEVICE) or self._busy(node, name) or (name == FULL and node.jobs_below):
            return  # gone with a page above, or needed
        if name == FULL:
            self._leave_device(node)
        else:
            self._trie.lose(node, name, DEVICE, self._changes)

    def _leave_device(self, node: Node) -> None:
        """FULL leaves the device here, and what lies on it; a host copy that came meanwhile stays."""
        for component in self._trie.components[1:]:
            if node.has(component.name, DEVICE):
                self._trie.lose(node, component.name, DEVICE, self._changes)
        self._trie.lose(node, FULL, DEVICE, self._changes)

    def _depart(self) -> None:
        """Landed pieces leave the device, deepest first, aux before FULL; a page that is still needed stays on both."""
        for place, node in reversed(self._record.places.items()):
            name = place[1]
            gone = place not in self._arrivals or not self._trie.holds(node) or not node.has(name, DEVICE)
            if gone or self._busy(node, name) or (name == FULL and self._carries(node)):
                continue
            self._trie.lose(node, name, DEVICE, self._changes)

    def _carries(self, node: Node) -> bool:
        below = any(child.has(FULL, DEVICE) for child in node.children.values())
        return below or any(node.has(component.name, DEVICE) for component in self._trie.components[1:])

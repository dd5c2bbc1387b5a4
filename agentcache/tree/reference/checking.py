"""Every invariant of design §4.2, against a recomputation from the nodes alone."""

from agentcache.tree.reference.jobs import JobTable
from agentcache.tree.reference.leases import LeaseTable
from agentcache.tree.reference.markers import MarkerBook
from agentcache.tree.reference.node import Node, region_nodes, upward
from agentcache.tree.reference.ranking import protected
from agentcache.tree.reference.trie import PageTrie
from agentcache.types import FULL, ComponentName, TierName

DEVICE, HOST = TierName.DEVICE, TierName.HOST


def check(trie: PageTrie, leases: LeaseTable, jobs: JobTable, markers: MarkerBook) -> None:
    """Raise AssertionError naming the first broken invariant. Cost O(pages · components)."""
    _check_residency(trie)
    _check_owners(trie)
    _check_locks(trie, leases)
    _check_claims(trie, jobs)
    _check_references(trie, markers)
    _check_indexes(trie)


def _check_residency(trie: PageTrie) -> None:
    for node in trie.nodes():
        assert node.above.children.get(node.child_key()) is node, "a node hangs below its parent"
        assert node.anywhere(FULL), f"page {node.end}: a node has FULL on device or host"
        if node.has(FULL, DEVICE):
            assert not node.above.end or node.above.has(FULL, DEVICE), (
                "FULL on device has its parent on device"
            )
        for component in trie.components:
            cell = node.cells[component.name]
            assert not cell.slots or component.can_lie_at(node.end), "data lies where its component allows"
            if DEVICE in cell.slots and component.name != FULL:
                leaving = DEVICE in cell.claims
                assert leaving or node.has(FULL, DEVICE), "aux data on the device have their FULL there"


def _check_owners(trie: PageTrie) -> None:
    for pool, owned in trie.owners.items():
        holders = [node for node in trie.nodes() if node.has(pool.component, pool.tier)]
        found = {node.cells[pool.component].slots[pool.tier]: node for node in holders}
        assert len(found) == len(holders), f"a slot of {pool.component} on {pool.tier} has two owners"
        assert found == owned, "owners equal residency"


def _check_locks(trie: PageTrie, leases: LeaseTable) -> None:
    wanted: dict[tuple[ComponentName, Node], int] = {}
    for record in leases.records():
        assert not record.node.end or trie.holds(record.node), "a lease's path exists"
        for name, region in record.regions.items():
            for node in region_nodes(record.node, region, trie.component(name).is_state):
                assert name != FULL or node.has(FULL, DEVICE), "leased FULL stays on the device"
                wanted[name, node] = wanted.get((name, node), 0) + 1
    for node in trie.nodes():
        for name, cell in node.cells.items():
            assert cell.locks == wanted.get((name, node), 0), f"lock count of {name} at {node.end}"


def _check_claims(trie: PageTrie, jobs: JobTable) -> None:
    claims: dict[tuple[ComponentName, Node, TierName], int] = {}
    below: dict[Node, int] = {}
    for record in jobs.records():
        above: set[Node] = set()
        for (_, name), node in record.places.items():
            assert trie.holds(node), "a job's source exists"
            assert node.has(name, record.job.source), "a job's source is resident"
            claim = (name, node, record.job.source)
            claims[claim] = claims.get(claim, 0) + 1
            above.update(upward(node))
        for node in above:
            below[node] = below.get(node, 0) + 1
    for node in trie.nodes():
        assert node.jobs_below == below.get(node, 0), f"jobs below {node.end}"
        for name, cell in node.cells.items():
            for tier in trie.config.tiers:
                assert cell.claims.get(tier, 0) == claims.get((name, node, tier), 0), "claims equal the jobs'"


def _check_references(trie: PageTrie, markers: MarkerBook) -> None:
    wanted = markers.recount()
    for node in trie.nodes():
        for name, cell in node.cells.items():
            assert cell.sessions.keys() == wanted.get((name, node), set()), (
                f"references of {name} at {node.end}"
            )
            assert not (cell.released and cell.sessions), f"{name} at {node.end} is released and referenced"
            assert cell.sessions or not cell.noted_ns, f"{name} at {node.end} keeps a note of nobody"
    for name, node in wanted:
        assert trie.holds(node), f"a marker's region of {name} exists"
    tips = {session: {at.frontier for at in markers.markers(session)} for session in markers.sessions()}
    assert trie.ranking.waits.tips == tips, "the order knows where every marker ends"
    assert trie.ranking.waits.states.keys() <= tips.keys(), "a wait is kept while its session has markers"


def _check_indexes(trie: PageTrie) -> None:
    ranking = trie.ranking
    assert not ranking.going, "nothing is on its way between calls"
    for pool, index in ranking.indexes():
        name, tier = pool.component, pool.tier
        wanted = {
            node: ranking.rank(node, name) for node in trie.nodes() if ranking.candidate(node, name, tier)
        }
        assert index.ranks == wanted, f"the order of {name} on {tier} equals a recomputation"
        here = [node for node in trie.nodes() if node.has(name, tier)]
        assert index.protected == {node for node in here if protected(node, name, tier)}, (
            "counted as protected"
        )
        assert index.referenced == {node for node in here if node.cells[name].sessions}, (
            "counted as referenced"
        )

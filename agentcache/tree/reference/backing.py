"""A backup that fits: the region's pieces that find room on the host, and what makes way for them there."""

from agentcache.tree.reference.changes import Changes
from agentcache.tree.reference.jobs import JobTable
from agentcache.tree.reference.node import Node
from agentcache.tree.reference.rooms import HostRoom
from agentcache.tree.reference.trie import PageTrie
from agentcache.types import Job, TierName

DEVICE, HOST = TierName.DEVICE, TierName.HOST


def plan_fitting(trie: PageTrie, jobs: JobTable, node: Node, room: HostRoom, changes: Changes) -> Job | None:
    """A copy to the host of the region pieces at `node` that are on the device alone and find room there.

    They are asked one by one, FULL before the others, each from the shallowest on. The regions' own host copies
    do not make way: they count as claimed while room is made.
    """
    regions = [
        (at, component.name)
        for component in trie.components
        for at in reversed(list(trie.region_nodes(node, component, node.end)))
    ]
    there = [(at, name) for at, name in regions if at.has(name, HOST)]
    for at, name in there:
        trie.claim(at, name, HOST, 1)
    lacking = [(at, name) for at, name in regions if at.has(name, DEVICE) and not at.has(name, HOST)]
    places = [(at, name) for at, name in lacking if room.take(at, name)]
    for at, name in there:
        trie.claim(at, name, HOST, -1)
    return jobs.plan(places, (DEVICE, HOST), changes)

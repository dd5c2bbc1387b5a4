"""When every call of a replay will come, as somebody knows who has read the script.

    first call ─► its end ─► second call ─► its end ─► …      own gaps; calls that find all that they may reuse
                        └─► children that begin there ─► …

What has happened moves all that depends on it. Where nothing waits and nothing has to be computed twice, this is exact;
elsewhere later calls may come later than it says, never earlier.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agentcache.replay.lab.serving import Found, Machine
from agentcache.replay.lab.trie import Numbers, PromptTrie
from agentcache.replay.lab.world import Script, children
from agentcache.replay.paged import PagedCall

NEVER = 2**62


class Foresight:
    """The next call that may reuse each node of a trie. `Caller` tells what happens as it happens."""

    def __init__(self, script: Script, machine: Machine, trie: PromptTrie) -> None:
        self._machine = machine
        self._trie = trie
        self._page_tokens = script.workload.page_tokens
        self._when = np.full(sum(map(len, trie.ends)) + 1, NEVER, dtype=np.int64)
        self._futures = _futures(script, self.least_ns, trie)
        for session, start_ns in script.starts_ns.items():
            self._futures[session].put(self._when, 0, start_ns)

    def least_ns(self, call: PagedCall) -> int:
        """From start to end, if all is there that may be."""
        return self.ends_after_ns(call, Found(device=call.reusable))

    def ends_after_ns(self, call: PagedCall, found: Found) -> int:
        """From start to end."""
        return self._machine.first_token_ns(call, found, self._page_tokens) + self._machine.answer_ns(call)

    def expected(self, call: PagedCall, at_ns: int) -> None:
        """A call that has not started will then, or would if it could."""
        self._when[self._trie.of(call).place] = at_ns

    def started(self, call: PagedCall, ends_ns: int) -> None:
        """A call has what it needs, and ends then: all that follows it is known better."""
        self._when[self._trie.of(call).place] = NEVER
        self._futures[call.session].put(self._when, call.turn + 1, ends_ns)

    def next_use(self, node: int) -> int:
        """When this node may be reused next, as `next_uses`."""
        calls = self._when[self._trie.first[node] : self._trie.beyond[node]]
        return int(calls.min()) if len(calls) else NEVER

    def next_uses(self, nodes: Numbers) -> Numbers:
        """When each of these nodes, in rising order, may be reused next; NEVER: not any more.

        Cost  O(nodes + calls) simple steps of one numpy call
        """
        first, beyond = self._trie.first[nodes], self._trie.beyond[nodes]
        bounds = np.stack((first, beyond), axis=1).ravel()
        soonest = np.minimum.reduceat(self._when, bounds)[::2]
        return np.where(first < beyond, soonest, NEVER)


@dataclass(frozen=True, slots=True, eq=False)
class _Future:
    """What follows in a session: its own calls, and those of all below it.

    Shapes  places, after_ns: one entry a call, in the order of the session's own calls after whose end they come;
            `after_ns` counts from the session's beginning
            at[n]: the first entry that comes after the end of call n - 1; ends_ns[n]: when that is, 0 the beginning
    """

    places: Numbers
    after_ns: Numbers
    at: list[int]
    ends_ns: list[int]

    def put(self, when: Numbers, turn: int, ended_ns: int) -> None:
        """Call `turn` - 1 ends then, or with 0 the session begins: say when all comes that follows."""
        at = self.at[turn]
        when[self.places[at:]] = self.after_ns[at:] + (ended_ns - self.ends_ns[turn])


def _futures(script: Script, least_ns: Callable[[PagedCall], int], trie: PromptTrie) -> dict[int, _Future]:
    """The future of every session; one below another comes after it in the workload."""
    sessions, gaps_ns = script.workload.sessions, script.gaps_ns
    below, futures = children(sessions), dict[int, _Future]()
    for session in reversed(sessions):
        entries: list[tuple[int, int, int]] = []
        ends_ns = [0]
        for call in session.calls:
            arrives_ns = ends_ns[-1] + (gaps_ns[session.index][call.turn] if call.turn else 0)
            entries.append((call.turn, trie.of(call).place, arrives_ns))
            ends_ns.append(arrives_ns + least_ns(call))
            for child in below.get((session.index, call.turn), ()):
                began_ns = ends_ns[-1] + gaps_ns[child.index][0]
                future = futures[child.index]
                places, after_ns = future.places.tolist(), (future.after_ns + began_ns).tolist()
                entries += zip(itertools.repeat(call.turn + 1), places, after_ns)
        futures[session.index] = _future(entries, ends_ns)
    return futures


def _future(entries: list[tuple[int, int, int]], ends_ns: list[int]) -> _Future:
    turns, places, after_ns = np.array(sorted(entries), dtype=np.int64).T
    at = np.searchsorted(turns, np.arange(len(ends_ns))).tolist()
    return _Future(places.copy(), after_ns.copy(), at, ends_ns)

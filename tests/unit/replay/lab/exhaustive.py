"""The most pages that any choice of victims can hit: all are tried. For tiny trees and calls that take no time."""

from collections.abc import Iterable, Sequence

from agentcache.replay.paged import PagedCall, Workload

State = frozenset[int]


def most_hits(workload: Workload, calls: Sequence[PagedCall], capacity: int) -> int:
    """Over these calls in this order, with room for so many pages."""
    before = workload.before.tolist()
    best: dict[State, int] = {frozenset(): 0}
    for call in calls:
        after: dict[State, int] = {}
        for there, hits in best.items():
            now_hits = hits + _hit(call, there)
            for state in _through(call, there, before, capacity):
                after[state] = max(now_hits, after.get(state, 0))
        best = after
    return max(best.values())


def refills(calls: Sequence[PagedCall]) -> bool:
    """Whether a call brings pages that were there before without having to compute them: then to have kept them is
    worth nothing, though they are used again.
    """
    seen: set[int] = set()
    for call in calls:
        brought = {*call.prompt[call.reusable :].tolist(), *call.output.tolist()}
        if brought & seen:
            return True
        seen |= {*call.prompt.tolist(), *call.output.tolist()}
    return False


def _hit(call: PagedCall, there: State) -> int:
    reusable = call.prompt[: call.reusable].tolist()
    return next((hit for hit, page in enumerate(reusable) if page not in there), len(reusable))


def _through(call: PagedCall, there: State, before: list[int], capacity: int) -> Iterable[State]:
    """What may be there after a call: its prompt has room first, then, if all of it had, its answer."""
    prompt = call.prompt.tolist()
    states = _kept(there, prompt[:capacity], before, capacity)
    if len(prompt) > capacity:
        return states
    whole = [*prompt, *call.output.tolist()][:capacity]
    return {after for state in states for after in _kept(state, whole, before, capacity)}


def _kept(there: State, path: list[int], before: list[int], capacity: int) -> set[State]:
    """With this path, less so many other pages that all fits, tails first, in every way."""
    states = {there | set(path)}
    while len(next(iter(states))) > capacity:
        states = {state - {page} for state in states for page in _tails(state, before) - set(path)}
    return states


def _tails(state: State, before: list[int]) -> set[int]:
    return set(state) - {before[page] for page in state}

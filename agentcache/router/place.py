"""Which worker takes a request: a pure function of what is asked and of the workers as they are.

    pinned ──► home (the session's worker; same conversation) ──► near (parent, siblings, family) ──► longest prefix
    within a window of the least load ──► least load, then chosen longest ago

Loads are counted in requests and measured in the worker's own seats. Whoever goes anywhere new goes by those that will
come there, too, once others have computed their prompts; who may stay by those that are there. Order of the workers
does not matter.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentcache.errors import CacheError, Kind
from agentcache.router.fleet import WorkerView

OVERLOADED = "moved: its worker is overloaded"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker and how many tokens of the prompt it is expected to reuse; 0 where nobody looked."""

    view: WorkerView
    predicted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked. Worker names are "" where there is none.

    `bound`: the store's word for the session; `usual`: a worker that had the same conversation before, as this router
    remembers. `near`: a parent's or family's worker, and `near_why` which; `forks`: the session goes on from what its
    parent has there, whether that is known of or not. `siblings`: by worker, with how many tokens
    of the prompt siblings of the session were sent there, whether they are computed yet or not. `looked_up`:
    predictions say something, 0 too. `rested`: whether its last move for load was long enough ago.
    """

    bound: str = ""
    usual: str = ""
    near: str = ""
    near_why: str = "near parent"
    forks: bool = False
    siblings: Mapping[str, int] = field(default_factory=dict)
    pinned: str = ""
    model: str = ""
    exclude: frozenset[str] = frozenset()
    looked_up: bool = False
    rested: bool = True


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a request goes and why, in a few words.

    `best_tokens`: the most that any usable worker is expected to reuse. `for_once`: the session's worker stays what it
    is (the request is pinned elsewhere, or asks for a model that it does not serve).
    """

    worker: str
    why: str
    predicted_tokens: int = 0
    best_tokens: int = 0
    for_once: bool = False


def place(wish: Wish, candidates: Sequence[Candidate]) -> Choice:
    """Errors: CacheError(NO_WORKER) says what there is instead. Cost O(workers)."""
    fitting = _usable(wish, candidates)
    if wish.pinned:
        return _pinned(wish, candidates, fitting)
    if not fitting:
        raise _nobody(wish, candidates)
    home = _home(wish, fitting)
    choice = _at_home(wish, home, fitting) if home else _placed(wish, candidates, fitting)
    return replace(choice, for_once=True) if _serves_others(wish, candidates, fitting) else choice


def must_look(wish: Wish, views: Iterable[WorkerView]) -> bool:
    """Whether predictions can change the choice: nothing else has decided it, and there is one."""
    candidates = [Candidate(view) for view in views]
    fitting = _usable(wish, candidates)
    home = _home(wish, fitting)
    if wish.pinned or len(fitting) < 2:
        return False
    return not home or (wish.rested and _overloaded(home.view, patient=False) and bool(_free(fitting)))


def _home(wish: Wish, fitting: dict[str, Candidate]) -> Candidate | None:
    return fitting.get(wish.bound) or fitting.get(wish.usual)


def _serves_others(wish: Wish, candidates: Sequence[Candidate], fitting: dict[str, Candidate]) -> bool:
    """Whether the session's worker is well and only does not serve this request's model."""
    bound = next((each.view for each in candidates if each.view.id == wish.bound), None)
    return bool(bound and bound.answers and bound.id not in wish.exclude and bound.id not in fitting)


def _usable(wish: Wish, candidates: Sequence[Candidate]) -> dict[str, Candidate]:
    """By name. A model that no worker serves, alive or not, may be asked of any."""
    served = any(wish.model in each.view.models for each in candidates)
    return {
        each.view.id: each
        for each in candidates
        if each.view.answers
        and each.view.id not in wish.exclude
        and (not served or wish.model in each.view.models)
    }


def _pinned(wish: Wish, candidates: Sequence[Candidate], fitting: dict[str, Candidate]) -> Choice:
    """A request that names its worker goes there or nowhere; where the session lives is another matter."""
    target = fitting.get(wish.pinned)
    if not target:
        raise _nobody(wish, [each for each in candidates if each.view.id == wish.pinned])
    bound = any(each.view.id == wish.bound and each.view.alive for each in candidates)
    elsewhere = bound and wish.bound != wish.pinned
    return Choice(wish.pinned, "pinned", target.predicted_tokens, _best(fitting), for_once=elsewhere)


def _at_home(wish: Wish, home: Candidate, fitting: dict[str, Candidate]) -> Choice:
    """Stay, unless home is overloaded while others have free seats; who would lose its prefix stays longer."""
    others = _free(fitting)
    loses = not wish.looked_up or home.predicted_tokens > _best(others)
    if not (wish.rested and others and _overloaded(home.view, patient=loses)):
        why = "sticky" if home.view.id == wish.bound else "same conversation"
        return Choice(home.view.id, why, home.predicted_tokens, _best(fitting))
    found, why = _near(wish, others) or _open(others)
    return Choice(found.view.id, f"{OVERLOADED}; {why}", found.predicted_tokens, _best(fitting))


def _placed(wish: Wish, candidates: Sequence[Candidate], fitting: dict[str, Candidate]) -> Choice:
    found, why = _near(wish, fitting) or _open(fitting)
    apart = "apart from its parent" if wish.forks and found.view.id != wish.near else ""
    said = "; ".join(filter(None, (_left(wish, candidates), why, apart)))
    return Choice(found.view.id, said, found.predicted_tokens, _best(fitting))


def _near(wish: Wish, fitting: dict[str, Candidate]) -> tuple[Candidate, str] | None:
    """The parent's worker, while its queue is short and, where that is known, nobody has more of the prefix; else that
    of the siblings that share most of it, though it may not be computed yet, if nobody with a short queue has more."""
    near = fitting.get(wish.near)
    least = _best(fitting) if wish.forks else max(1, _best(fitting))
    shares = near and (not wish.looked_up or near.predicted_tokens >= least)
    if near and shares and _has_room(near.view):
        return near, wish.near_why
    roomy = {name: each for name, each in fitting.items() if _has_room(each.view)}
    with_kin = roomy.keys() & wish.siblings.keys()
    had = {name: max(wish.siblings[name], roomy[name].predicted_tokens) for name in with_kin}
    most = max(had.values(), default=0)
    if not most or most < _best(roomy):
        return None
    return _least(roomy[name] for name, tokens in had.items() if tokens == most), "near siblings"


def _open(fitting: dict[str, Candidate]) -> tuple[Candidate, str]:
    """Within a window of the least load the longest prefix; on a miss the load decides.

    Whoever has the prefix does not get every conversation that begins with it: what follows would fill one cache and
    leave the others empty. Beyond its share it goes elsewhere, and the prefix is there too from then on.
    """
    found = list(fitting.values())
    least = min(_pressure(each.view) for each in found)
    near = [each for each in found if each.view.expected <= least * each.view.seats + _half(each.view)]
    fewest = min(each.view.homes for each in near)
    window = [each for each in near if each.view.homes <= fewest * 1.5 + 2 * each.view.seats]
    best = max(window, key=lambda each: each.predicted_tokens)
    if best.predicted_tokens:
        equal = [each for each in window if each.predicted_tokens == best.predicted_tokens]
        return _least(equal), "longest prefix"
    return _least(found), "only worker" if len(found) == 1 else "least load"


def _least(candidates: Iterable[Candidate]) -> Candidate:
    return min(candidates, key=lambda each: (_pressure(each.view), each.view.chosen, each.view.id))


def _pressure(view: WorkerView) -> float:
    return view.expected / view.seats


def _half(view: WorkerView) -> int:
    """Half a batch, in requests."""
    return max(1, view.seats // 2)


def _has_room(view: WorkerView) -> bool:
    """Whether what is sent there for its prefix waits for half a batch at most."""
    return view.expected < view.seats + _half(view)


def _free(fitting: dict[str, Candidate]) -> dict[str, Candidate]:
    """Workers with a seat free, where nothing that moves there waits."""
    return {name: each for name, each in fitting.items() if each.view.expected < each.view.seats}


def _overloaded(view: WorkerView, patient: bool) -> bool:
    """A whole batch waits (`patient`: two); once it was two, until nobody waits any more."""
    return view.shedding or view.waits(batches=2 if patient else 1)


def _best(candidates: dict[str, Candidate]) -> int:
    return max((each.predicted_tokens for each in candidates.values()), default=0)


def _left(wish: Wish, candidates: Sequence[Candidate]) -> str:
    """Why a session is not at its worker; "" for one that has none."""
    if not wish.bound:
        return ""
    if wish.bound in wish.exclude:
        return "moved: its worker did not answer"
    bound = next((each.view for each in candidates if each.view.id == wish.bound), None)
    if not (bound and bound.alive):
        return "moved: its worker is gone"
    if bound.prefills:
        return "moved: its worker computes prompts only"
    return "moved: its worker is draining" if bound.draining else "its worker serves another model"


def _nobody(wish: Wish, candidates: Sequence[Candidate]) -> CacheError:
    views = [candidate.view for candidate in candidates]
    facts = {
        "workers": len(views),
        "draining": sum(view.alive and view.draining for view in views),
        "not_alive": sum(not view.alive for view in views),
        "tried": len(wish.exclude),
    }
    if wish.pinned:
        return CacheError(
            Kind.NO_WORKER,
            "the worker that this request is pinned to cannot take it; leave the pin out",
            worker=wish.pinned,
            **facts,
        )
    if wish.model and any(view.answers for view in views):
        facts["model"] = wish.model  # type: ignore[assignment]
    elif any(view.usable for view in views) and not wish.exclude:
        said = "the workers that are there compute prompts only; start one with --role decode, or both"
        return CacheError(Kind.NO_WORKER, said, **facts)
    return CacheError(Kind.NO_WORKER, "no worker can take this request now; try again", **facts)

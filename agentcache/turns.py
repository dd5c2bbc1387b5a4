"""What a running request holds: its turn, and the slots that are private to it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from agentcache.errors import CacheError, Kind
from agentcache.keys import Key, Namespace, PathNames, page_key
from agentcache.sessions import Ticket
from agentcache.stats import CachedTokens
from agentcache.types import NO_SLOTS, ComponentName, Locked, Miss, Piece, Slots, Tokens
from agentcache.why import ALL_THERE, Finding

NO_TOKENS: Tokens = NO_SLOTS
NOTHING_CACHED = CachedTokens()


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """What a turn asks the cache for.

    Shapes  tokens: int32[n], the whole prompt, aligned or not
    Units   limit: tokens; the deepest boundary allowed (engines pass n - 1, so that one token is computed)

    With `reuse` False the turn runs cold: it matches nothing, reserves nothing and publishes nothing. `hands_over`:
    another worker waits for what it makes reusable (`handing.py`).
    """

    tokens: Tokens
    namespace: Namespace
    limit: int
    reuse: bool = True
    priority: int = 0
    hands_over: bool = False

    def asks(self, page_tokens: int) -> tuple[Key, int]:
        """The path to match and the deepest boundary on it that will do. Errors: BAD_REQUEST for bad tokens."""
        path = page_key(self.tokens if self.reuse else NO_TOKENS, self.namespace, page_tokens)
        return path, max(0, min(self.limit, len(path)))


@dataclass(slots=True, eq=False)
class ActiveTurn:
    """A request between begin and finish. Engines read it, the cache moves it.

        [0, boundary_tokens) restorable and locked | [boundary_tokens, …) the request's own

    `cached` is the hit once the turn is ready, by tier; `full_tokens` is how far FULL alone would have gone at begin,
    and `miss` says what stopped the vote. `path` is the longest whole-page path that the turn has shown to the cache,
    `names` names its pages. `loading` is the job that brings the prefix to the device, 0 when there is none (any
    more); `brought` are the tokens `[start, end)` that a prefetch brought from outside. `published` are its boundaries.
    `found` says why no more was cached, `refused` that there was no room when it last asked for slots.
    """

    number: int
    start_seq: int
    ticket: Ticket
    prompt: Prompt
    path: Key
    locked: Locked
    full_tokens: int
    miss: Miss | None
    names: PathNames
    loading: int = 0
    brought: tuple[int, int] = (0, 0)
    cached: CachedTokens = NOTHING_CACHED
    published: list[int] = field(default_factory=list)
    found: Finding = ALL_THERE
    refused: bool = False

    @property
    def cached_tokens(self) -> int:
        """The hit, on all tiers."""
        return self.cached.total

    @property
    def boundary_tokens(self) -> int:
        """How many tokens the cache can restore for this turn now."""
        return self.locked.boundary.length

    @property
    def handed_over_tokens(self) -> int:
        """The deepest boundary from which another worker can go on with the prompt; 0 if it hands nothing over."""
        known = (self.cached_tokens, *self.published) if self.prompt.hands_over else ()
        return max((boundary for boundary in known if boundary <= self.prompt.limit), default=0)

    def extended(self, tokens: Tokens, page_tokens: int) -> Key:
        """The key of a path that goes on from this turn's boundary.

        Errors  UNALIGNED for a tail that fills no page; BAD_INSERT for another path
        """
        key = page_key(tokens, self.prompt.namespace, page_tokens)
        if len(key) < len(tokens):
            raise CacheError(Kind.UNALIGNED, "publish whole pages", tokens=len(tokens))
        if not np.array_equal(key.tokens[: self.boundary_tokens], self.path.tokens[: self.boundary_tokens]):
            raise CacheError(Kind.BAD_INSERT, "the tokens do not continue the turn's own path")
        return key


class Ledger:
    """Which slots are leased to which turn (taken from the pools, not yet the tree's), and how many it locks."""

    def __init__(self) -> None:
        self._leased: dict[int, dict[ComponentName, set[int]]] = {}
        self._locked: dict[int, Counter[ComponentName]] = {}
        self._kept: dict[int, Counter[ComponentName]] = {}

    def __len__(self) -> int:
        return len(self._leased)

    def open(self, turn: int) -> None:
        """Begin the account of a turn."""
        self._leased[turn] = {}
        self._locked[turn] = Counter()

    def lock(self, turn: int, pieces: tuple[Piece, ...]) -> None:
        """Note what the turn's lock covers now."""
        self._locked[turn] = _slots_by_component(pieces)

    def keep(self, ticket: int, pieces: tuple[Piece, ...]) -> None:
        """Note what is locked for a request that has not begun; nothing: no more."""
        self._kept.pop(ticket, None)
        if pieces:
            self._kept[ticket] = _slots_by_component(pieces)

    def require_open(self, turn: int) -> None:
        """Errors: LEASE_REUSED for a turn that finished or is not ours."""
        if turn not in self._leased:
            raise CacheError(Kind.LEASE_REUSED, "the turn is finished: begin another", turn=turn)

    def lease(self, turn: int, component: ComponentName, slots: Slots) -> None:
        """Slots become private to the turn."""
        self._leased[turn].setdefault(component, set()).update(slots.tolist())

    def require_leased(self, turn: int, component: ComponentName, slots: Slots) -> None:
        """Errors: SLOT_MISUSE unless every slot is leased to the turn and named once."""
        named = set(slots.tolist())
        if len(named) != slots.size or not named <= self._leased[turn].get(component, set()):
            raise CacheError(
                Kind.SLOT_MISUSE,
                "a slot is not leased to this turn, or named twice; nothing was changed",
                component=component,
                slots=slots.tolist(),
            )

    def settle(self, turn: int, component: ComponentName, slots: Slots) -> None:
        """Slots leave the turn: returned, or the tree's."""
        self._leased[turn].get(component, set()).difference_update(slots.tolist())

    def close(self, turn: int) -> Mapping[ComponentName, Slots]:
        """End the account and answer what is still leased."""
        del self._locked[turn]
        return {component: _slots(held) for component, held in self._leased.pop(turn).items()}

    def count(self, component: ComponentName) -> int:
        """How many slots of a component are leased."""
        return sum(len(account.get(component, ())) for account in self._leased.values())

    def claimed(self, component: ComponentName) -> int:
        """How many slots of a component turns lease or lock, those locked by several counted several times."""
        locks = (*self._locked.values(), *self._kept.values())
        return self.count(component) + sum(locked[component] for locked in locks)

    def leased(self, component: ComponentName) -> Slots:
        """Every leased slot of a component's device pool; doubles stay doubles, for checks."""
        accounts = [_slots(account.get(component, set())) for account in self._leased.values()]
        return np.concatenate([NO_SLOTS, *accounts])


def _slots_by_component(pieces: tuple[Piece, ...]) -> Counter[ComponentName]:
    counted: Counter[ComponentName] = Counter()
    for piece in pieces:
        counted[piece.component] += int(piece.slots.size)
    return counted


def _slots(numbers: set[int]) -> Slots:
    return np.array(sorted(numbers), dtype=np.int32)

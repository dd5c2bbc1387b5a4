"""The external tier of a replay: names under a cap, no bytes, no threads and no time of its own.

    a turn ends       device ─► external               what it has published, by the cache's own writing
    a call arrives    external ─► host, or device      before it begins, by the cache's own prefetching

What moves is there at once; the machine of the replay charges the time of what a call had from here.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from agentcache.build import Tiers
from agentcache.cache import ActiveTurn, UnifiedRadixCache
from agentcache.errors import CacheError, Kind
from agentcache.keys import identity_of
from agentcache.prefetch import PrefetchPolicy, PrefetchRules
from agentcache.sessions import Ticket
from agentcache.tiering import Tiering
from agentcache.tiers.api import ExternalStatus, JobResult, Keep, Presence, Transfer
from agentcache.tiers.flights import ends_path, identities, parts, trail
from agentcache.tiers.knowledge import Identity
from agentcache.types import Piece, TierName

TOKENS_A_PAGE = 1
QUIET = 2
"""After so many steps that load nothing nothing will be loaded; in the first one a prefetch may look again."""


class CountingTier:
    """`ExternalTier` of names in the two classes that stores have: LOOSE ones leave first, least recently used first.

    Every job has ended at the next poll. What is there is not stored again, but was used by that, as by a load; the end
    of a path counts as used before its beginning. Pages and states count alike. Unlike a tier over a store this one is
    never wrong about what it holds, and of a path that is longer than itself it keeps the end.

    Errors  BAD_CONFIG for a cap under one page
    """

    name = TierName.EXTERNAL

    def __init__(self, capacity_pages: int) -> None:
        if capacity_pages < 1:
            message = f"an external tier has room for at least one page, not for {capacity_pages}"
            raise CacheError(Kind.BAD_CONFIG, message)
        self._capacity_pages = capacity_pages
        self._loose: OrderedDict[Identity, None] = OrderedDict()
        self._referenced: OrderedDict[Identity, None] = OrderedDict()
        self._ended: list[JobResult] = []
        self._stored = self._loaded = self._missed = 0

    def lookup(self, wanted: Sequence[Identity]) -> tuple[Presence, ...]:
        return tuple(Presence.HIT if self._holds(identity) else Presence.MISS for identity in wanted)

    def submit_load(self, transfer: Transfer) -> None:
        landed: list[Piece] = []
        for target in transfer.targets:
            wanted = identities(target, transfer.hashes, TOKENS_A_PAGE)
            places = [place for place, identity in enumerate(wanted) if self._use(identity)]
            self._loaded += len(places)
            self._missed += len(target.slots) - len(places)
            landed.extend(parts(target, places))
        self._end(transfer, tuple(landed))

    def submit_store(self, transfer: Transfer) -> None:
        for target in transfer.targets:
            for identity in identities(target, transfer.hashes, TOKENS_A_PAGE):
                if identity not in self._referenced:
                    self._put(identity, transfer.keep)
        self._end(transfer, transfer.targets)

    def cancel(self, number: int) -> None:
        """Every job has ended."""

    def poll(self) -> tuple[JobResult, ...]:
        ended, self._ended = tuple(self._ended), []
        return ended

    def drain(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""

    def retain(self, names: Sequence[str], keep: Keep) -> None:
        for identity in map(identity_of, names):
            if self._holds(identity):
                self._move(identity, keep)

    def status(self) -> ExternalStatus:
        return ExternalStatus(
            "counting",
            "up",
            objects=self._objects,
            stored=self._stored,
            loaded=self._loaded,
            missed=self._missed,
        )

    def held(self, keep: Keep) -> tuple[Identity, ...]:
        """The names of a class in the order in which they leave."""
        return tuple(self._of(keep))

    # inside

    @property
    def _objects(self) -> int:
        return len(self._loose) + len(self._referenced)

    def _holds(self, identity: Identity) -> bool:
        return identity in self._loose or identity in self._referenced

    def _of(self, keep: Keep) -> OrderedDict[Identity, None]:
        return self._referenced if keep is Keep.REFERENCED else self._loose

    def _use(self, identity: Identity) -> bool:
        """Whether it is there; then it leaves last of its class."""
        for held in (self._loose, self._referenced):
            if identity in held:
                held.move_to_end(identity)
                return True
        return False

    def _end(self, transfer: Transfer, landed: tuple[Piece, ...]) -> None:
        """As a tier over a store: a path that is through is used once more."""
        self._ended.append(JobResult(transfer.job, landed))
        if ends_path(transfer, TOKENS_A_PAGE):
            moved = sum(len(target.slots) for target in transfer.targets)
            for identity in trail(transfer, moved, TOKENS_A_PAGE):
                self._use(identity)

    def _put(self, identity: Identity, keep: Keep) -> None:
        if identity in self._loose:
            if keep is Keep.REFERENCED:
                self._move(identity, keep)
            return
        while self._objects >= self._capacity_pages:
            (self._loose or self._referenced).popitem(last=False)
        self._of(keep)[identity] = None
        self._stored += 1

    def _move(self, identity: Identity, keep: Keep) -> None:
        """To the end of a class, unless it is in it."""
        if identity not in self._of(keep):
            self._loose.pop(identity, None)
            self._referenced.pop(identity, None)
            self._of(keep)[identity] = None


def with_external(tiers: Tiers, capacity_pages: int, stretch_pages: int) -> Tiers:
    """These tiers and an external one below them. What can come is waited for, as that takes no time here.

    Errors  BAD_CONFIG
    """
    rules = PrefetchRules(PrefetchPolicy.WAIT_COMPLETE, stretch_tokens=stretch_pages)
    return replace(tiers, external=CountingTier(capacity_pages), prefetch=rules)


def bring(tiers: Tiering, ticket: Ticket) -> None:
    """Load all that can come now for a request that was `expected`: until it has arrived, or nothing moves any more.

    Requests far behind in the queue, and those that find no room beside what is kept for others, go without, or on when
    they are asked for again.
    """
    quiet = 0
    while quiet < QUIET and not tiers.arrived(ticket):
        before = _loads(tiers)
        tiers.step()
        quiet = 0 if _loads(tiers) > before else quiet + 1


def ready(cache: UnifiedRadixCache, turn: ActiveTurn, must: bool) -> bool:
    """Whether a turn can go on. With `must` it can in the end: what is kept for those that wait makes way first."""
    while not cache.ready(turn, alone=must):
        if not must:
            return False
    return True


def by_tier(turn: ActiveTurn, there: int) -> tuple[int, int, int]:
    """What a turn has of device, host and external tier: `there` pages when it began, or more since, in all.

    What found no room on the device is read for this call alone.
    """
    cached, (start, end) = turn.cached, turn.brought
    total = max(cached.total, there)
    external = max(0, min(end, total) - start)
    return cached.device, total - cached.device - external, external


def _loads(tiers: Tiering) -> int:
    """Pages that were asked for, found or not."""
    status = tiers.external()
    return status.loaded + status.missed

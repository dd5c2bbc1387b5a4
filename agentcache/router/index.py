"""What each worker has, page by page, as its placement events tell; and how much of a prompt it would reuse.

Per worker a set of page hashes with bits for component and tier. A page needs no parent here: whatever order events
come in, the set is what the worker has. The vote is the tree's (design §2), over device and host.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from agentcache.keys import Namespace, page_hashes, page_key
from agentcache.kv_events import AllBlocksCleared, BlockEvent, Groups
from agentcache.types import FULL, ComponentName, Event, EventKind, TierName, Tokens
from agentcache.wire import ComponentCard, WorkerCard

BUDGET_PAGES = 500_000
"""Pages that are remembered over all workers, about 0.3 KB each."""
_STAMP_BITS = 32
_ANY_TIER = 0b11
_TIERS = {TierName.DEVICE: 0, TierName.HOST: 1}
Pages = OrderedDict[bytes, int]
"""Page hash → when it was last stored or read, above `_STAMP_BITS` bits for component and tier; oldest first."""


class Taken(StrEnum):
    """What became of a message."""

    APPLIED = "applied"
    OLD = "old"  # known already: a replay brought it
    GAP = "gap"  # messages before it are missing: replay from `next_seq`


@dataclass(slots=True)
class _Followed:
    """One incarnation of a worker: where its events stand, and its pages."""

    card: WorkerCard
    groups: Groups
    incarnation: str
    next_seq: int = 0
    last_live: int = -1
    synced: bool = False
    pages: Pages = field(default_factory=OrderedDict)

    def start_over(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.next_seq, self.last_live, self.synced = 0, -1, False
        self.pages.clear()


@dataclass(frozen=True, slots=True)
class Forecast:
    """How many tokens of a prompt each worker would reuse, and the pages that were looked at, by page size and name."""

    tokens: Mapping[str, int]
    paths: Mapping[str, Sequence[bytes]]
    """By worker; workers with equal pages share one."""


class PrefixIndex:
    """All workers that publish, under one budget: beyond it the pages go that were not stored or read for longest.

    Of one path the deepest page is the oldest, so that what is left can be read from the root on.
    """

    def __init__(self, budget_pages: int = BUDGET_PAGES) -> None:
        self._budget = budget_pages
        self._workers: dict[str, _Followed] = {}
        self._stamp = 0
        self.dropped_pages = 0
        """Pages that were given up for the budget."""

    @property
    def pages(self) -> int:
        """Remembered, over all workers. Cost O(workers)."""
        return sum(len(followed.pages) for followed in self._workers.values())

    def follow(self, card: WorkerCard) -> None:
        """Take in a worker; what an earlier incarnation had is gone."""
        known = self._workers.get(card.worker)
        if known and (known.card.components, known.card.page_tokens) == (card.components, card.page_tokens):
            if known.incarnation != card.incarnation:
                known.start_over(card.incarnation)
            known.card = card
        else:
            groups = Groups(_components(card), card.page_tokens)
            self._workers[card.worker] = _Followed(card, groups, card.incarnation)

    def drop(self, worker: str) -> None:
        """Forget a worker that is gone."""
        self._workers.pop(worker, None)

    def next_seq(self, worker: str) -> int:
        """The number of the first message that is still wanted; 0 for a worker that is not followed."""
        followed = self._workers.get(worker)
        return followed.next_seq if followed else 0

    def incarnation(self, worker: str) -> str:
        """Whose events are followed under this name; "" for nobody's."""
        followed = self._workers.get(worker)
        return followed.incarnation if followed else ""

    def synced(self, worker: str) -> bool:
        """Whether all that the worker told, to its last replay at least, is known here."""
        followed = self._workers.get(worker)
        return bool(followed and followed.synced)

    def caught_up(self, worker: str) -> None:
        """A replay has ended."""
        if worker in self._workers:
            self._workers[worker].synced = True

    def begin_at(self, worker: str, seq: int) -> None:
        """Go on from a message though those before it are lost for good: nothing is known of them."""
        if worker in self._workers:
            followed = self._workers[worker]
            followed.pages.clear()
            followed.next_seq, followed.last_live = seq, seq - 1

    def take(self, worker: str, message: "Message") -> Taken:
        """Apply one message in its order. Idempotent; a message of a worker that is not followed is OLD.

        A number that goes backwards on the live stream, or another incarnation, is a start from nothing.
        """
        followed = self._workers.get(worker)
        if not followed:
            return Taken.OLD
        if message.incarnation not in ("", followed.incarnation):
            followed.start_over(message.incarnation)
        if message.live and message.seq <= followed.last_live:
            followed.start_over(followed.incarnation)
        if message.live:
            followed.last_live = message.seq
        if message.seq < followed.next_seq and (message.live or not message.resets):
            return Taken.OLD
        if message.seq > followed.next_seq and not message.resets:
            followed.synced = False
            return Taken.GAP
        for event in message.events:
            self._apply(followed, event)
        followed.next_seq = message.seq + 1
        self._keep_budget()
        return Taken.APPLIED

    def forecast(self, cards: Iterable[WorkerCard], salt: str, tokens: Sequence[int] | Tokens) -> Forecast:
        """The boundary that each worker's tree would vote for; one token is always left to compute.

        Errors  CacheError(BAD_REQUEST) for tokens that are none
        Cost    O(pages that some worker has), once for all workers that name pages alike
        """
        alike: dict[tuple[tuple[str, str, str, str], int], list[_Followed]] = {}
        for card in cards:
            followed = self._workers.get(card.worker)
            if followed and followed.pages and followed.incarnation == card.incarnation:
                alike.setdefault((card.namespace, card.page_tokens), []).append(followed)
        found: dict[str, int] = {}
        paths: dict[str, Sequence[bytes]] = {}
        for (names, page_tokens), group in alike.items():
            key = page_key(tokens[: len(tokens) - 1], Namespace(salt, *names), page_tokens)
            path = _Path(page_hashes(key, page_tokens))
            for followed in group:
                found[followed.card.worker] = _deepest(followed, path)
                paths[followed.card.worker] = path.known
        return Forecast(found, paths)

    def read(self, worker: str, path: Sequence[bytes]) -> None:
        """A request for this path went to the worker: its pages are remembered longest."""
        followed = self._workers.get(worker)
        if followed:
            for page in reversed(path):
                if page in followed.pages:
                    self._store(followed.pages, page, 0)

    def _apply(self, followed: _Followed, told: BlockEvent) -> None:
        if isinstance(told, AllBlocksCleared):
            followed.pages.clear()
            return
        for event in followed.groups.events(told):
            if event.tier not in _TIERS:
                continue
            bit = _bit(followed.card, event.component, event.tier)
            self._change(followed.pages, event, bit)

    def _change(self, pages: Pages, event: Event, bit: int) -> None:
        if event.kind is EventKind.STORED:
            for page in reversed(event.hashes):
                self._store(pages, page, bit)
            return
        for page in event.hashes:
            left = pages.get(page, 0) & ~bit
            if left & ((1 << _STAMP_BITS) - 1):
                pages[page] = left
            else:
                pages.pop(page, None)

    def _store(self, pages: Pages, page: bytes, bit: int) -> None:
        self._stamp += 1
        here = pages.get(page, 0) & ((1 << _STAMP_BITS) - 1)
        pages[page] = self._stamp << _STAMP_BITS | here | bit
        pages.move_to_end(page)

    def _keep_budget(self) -> None:
        over = self.pages - self._budget
        for _ in range(over):
            full = (followed.pages for followed in self._workers.values() if followed.pages)
            oldest = min(full, key=lambda pages: pages[next(iter(pages))] >> _STAMP_BITS)
            oldest.popitem(last=False)
            self.dropped_pages += 1


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a worker: its number, who it was then ("": it does not say), and what happened.

    `live`: from the stream, not from a replay.
    """

    seq: int
    incarnation: str
    events: Sequence[BlockEvent]
    live: bool = True

    @property
    def resets(self) -> bool:
        """Whether it tells everything anew."""
        return bool(self.events) and isinstance(self.events[0], AllBlocksCleared)


class _Path:
    """The pages of a prompt, named only as far as somebody has them."""

    def __init__(self, hashes: Iterable[bytes]) -> None:
        self._more = iter(hashes)
        self.known: list[bytes] = []

    def run(self, pages: Pages) -> int:
        """How many pages from the root on have FULL, the first component."""
        for number, page in enumerate(self.known):
            if not pages.get(page, 0) & _ANY_TIER:
                return number
        for page in self._more:
            self.known.append(page)
            if not pages.get(page, 0) & _ANY_TIER:
                return len(self.known) - 1
        return len(self.known)


def _deepest(followed: _Followed, path: _Path) -> int:
    """The deepest boundary that every component accepts, from the end of FULL upwards. Cost O(pages)."""
    card = followed.card
    grid = card.grid_tokens or card.page_tokens
    end = path.run(followed.pages) * card.page_tokens
    end -= end % grid
    rules = [(each, _ANY_TIER << 2 * number) for number, each in enumerate(_components(card))][1:]
    while end:
        barred = min((_barred(followed, path.known, end, rule) for rule in rules), default=end)
        if barred == end:
            return end
        end = barred - barred % grid
    return 0


def _barred(followed: _Followed, path: Sequence[bytes], end: int, rule: tuple[ComponentCard, int]) -> int:
    """`end` if the component accepts a boundary there; else where the deepest one that it may accept ends.

    A window that misses a page accepts nothing between that page and `end`: their windows miss it too.
    """
    component, mask = rule
    pages, size = followed.pages, followed.card.page_tokens
    if component.rule == "checkpoint":
        there = pages.get(path[end // size - 1], 0) & mask
        return end if there and end % component.tokens == 0 else end - size
    first = max(0, end - component.tokens) // size if component.rule == "window" else 0
    for at in range(end // size - 1, first - 1, -1):
        if not pages.get(path[at], 0) & mask:
            return at * size
    return end


def _bit(card: WorkerCard, component: ComponentName, tier: TierName) -> int:
    number = next(at for at, each in enumerate(_components(card)) if each.name == component)
    return 1 << (2 * number + _TIERS[tier])


def _components(card: WorkerCard) -> tuple[ComponentCard, ...]:
    """A worker that names none has full attention alone."""
    return card.components or (ComponentCard(FULL, "path", 0),)

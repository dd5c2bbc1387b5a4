"""Short builders for indexes of placement events: pages, messages, and an index that is fed in order."""

from collections.abc import Iterable, Sequence

from agentcache.keys import Namespace, page_hashes, page_key
from agentcache.kv_events import BlockEvent, BlockRemoved, BlockStored
from agentcache.router.index import Message, PrefixIndex, Taken
from agentcache.wire import ComponentCard, WorkerCard
from tests.fleets import PAGE

PROMPT = list(range(40))
SALT = "home"
HYBRID = (
    ComponentCard("FULL", "path", 0),
    ComponentCard("SWA", "window", 2 * PAGE),
    ComponentCard("MAMBA", "checkpoint", 2 * PAGE),
)


def names(count: int, tokens: Sequence[int] = PROMPT, salt: str = SALT) -> list[bytes]:
    """The hashes of the first pages of a prompt."""
    key = page_key(tokens, Namespace(salt, "m"), PAGE)
    return list(page_hashes(key, PAGE))[:count]


def stored(pages: Iterable[bytes], group: int | None = None, medium: str | None = "GPU") -> BlockStored:
    return BlockStored(list(pages), medium=medium, group=group, block_size=PAGE)


def removed(pages: Iterable[bytes], group: int | None = None, medium: str | None = "GPU") -> BlockRemoved:
    return BlockRemoved(list(pages), medium=medium, group=group)


def message(seq: int, *events: BlockEvent, incarnation: str = "first", live: bool = True) -> Message:
    return Message(seq, incarnation, events, live)


class Followed:
    """An index over some workers, fed in order."""

    def __init__(self, *cards: WorkerCard, budget_pages: int = 10_000) -> None:
        self.cards = cards
        self.index = PrefixIndex(budget_pages)
        self._seq = dict.fromkeys((card.worker for card in cards), 0)
        for card in cards:
            self.index.follow(card)

    def tell(self, worker: str, *events: BlockEvent) -> Taken:
        taken = self.index.take(worker, message(self._seq[worker], *events))
        self._seq[worker] += 1
        return taken

    def expects(self, tokens: Sequence[int] = PROMPT, salt: str = SALT) -> dict[str, int]:
        """Who would reuse how much; workers that would reuse nothing are left out."""
        found = self.index.forecast(self.cards, salt, tokens).tokens
        return {worker: count for worker, count in found.items() if count}

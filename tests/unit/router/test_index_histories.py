"""Any history of events makes the same index: against sets written again, and against losses and replays."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from agentcache.kv_events import AllBlocksCleared, BlockEvent, BlockStored
from agentcache.router.index import Message, Taken
from agentcache.wire import ComponentCard, WorkerCard
from tests.fleets import PAGE, card_of
from tests.indexing import HYBRID, PROMPT, SALT, Followed, message, names, removed, stored


class Slow:
    """The same written again: for each worker, component and tier a set of pages."""

    def __init__(self, cards: Sequence[WorkerCard]) -> None:
        self.sets: dict[tuple[str, int, bool], set[bytes]] = {}
        self._cards = cards

    def tell(self, worker: str, event: BlockEvent) -> None:
        if isinstance(event, AllBlocksCleared):
            self.sets = {key: pages for key, pages in self.sets.items() if key[0] != worker}
            return
        place = (worker, event.group or 0, event.medium == "GPU")
        pages = {page for page in event.block_hashes if isinstance(page, bytes)}
        here = self.sets.setdefault(place, set())
        self.sets[place] = here | pages if isinstance(event, BlockStored) else here - pages

    def expects(self, card: WorkerCard, tokens: Sequence[int]) -> int:
        """Design §2 word by word, candidate by candidate."""
        pages = names(len(tokens), tokens)
        ends = range(card.grid_tokens, len(tokens), card.grid_tokens)
        return max((end for end in ends if self._votes(card, pages, end)), default=0)

    def _votes(self, card: WorkerCard, pages: list[bytes], end: int) -> bool:
        return all(
            all(self._has(card.worker, number, pages[at]) for at in _region(component, end))
            for number, component in enumerate(card.components)
        ) and all(end % each.tokens == 0 for each in card.components if each.rule == "checkpoint")

    def _has(self, worker: str, number: int, page: bytes) -> bool:
        return any(page in self.sets.get((worker, number, device), ()) for device in (True, False))


def _region(component: ComponentCard, end: int) -> range:
    first = {
        "path": 0,
        "window": max(0, end - component.tokens) // PAGE,
        "checkpoint": end // PAGE - 1,
    }[component.rule]
    return range(first, end // PAGE)


PROMPTS = [PROMPT, PROMPT[:12] + [7] * 20, [7] * 40]
ALL_PAGES = sorted({page for prompt in PROMPTS for page in names(10, prompt)})
PAGES = st.lists(st.sampled_from(ALL_PAGES), max_size=12)
GROUPS = st.integers(0, 2)
MEDIA = st.sampled_from(["GPU", "CPU_PINNED"])
EVENTS = st.one_of(
    st.builds(stored, PAGES, GROUPS, MEDIA),
    st.builds(stored, st.sampled_from(PROMPTS).map(lambda prompt: names(8, prompt)), GROUPS, MEDIA),
    st.builds(removed, PAGES, GROUPS, MEDIA),
    st.just(AllBlocksCleared()),
)
WINDOWS = ComponentCard("SWA", "window", 2 * PAGE - 1)
CARDS = (
    card_of("a", components=HYBRID, grid_tokens=2 * PAGE),
    card_of("b", components=(HYBRID[0], WINDOWS, ComponentCard("SWA2", "window", 1))),
)


@settings(max_examples=200, deadline=None)
@given(history=st.lists(st.tuples(st.sampled_from("ab"), EVENTS), max_size=30))
def test_any_history_makes_the_same_index(history: list[tuple[str, BlockEvent]]) -> None:
    seen, slow = Followed(*CARDS), Slow(CARDS)
    for worker, event in history:
        seen.tell(worker, event)
        slow.tell(worker, event)
    assert seen.index.pages == sum(
        len(set().union(*(pages for key, pages in slow.sets.items() if key[0] == card.worker)))
        for card in CARDS
    )
    for prompt in (*PROMPTS, PROMPT[:33], PROMPT[:8]):
        found = seen.index.forecast(CARDS, SALT, prompt).tokens
        for card in CARDS:
            assert found.get(card.worker, 0) == slow.expects(card, prompt)


@settings(max_examples=100, deadline=None)
@given(history=st.lists(EVENTS, min_size=1, max_size=20), data=st.data())
def test_any_loss_and_repetition_ends_the_same_after_a_replay(
    history: list[BlockEvent], data: st.DataObject
) -> None:
    """Messages are lost and come again; every gap is replayed from the number that is wanted."""
    whole, lossy = Followed(CARDS[0]), Followed(CARDS[0])
    for event in history:
        whole.tell("a", event)
    messages = [message(seq, event) for seq, event in enumerate(history)]
    for arrived in messages:
        if not data.draw(st.booleans(), label="arrives"):
            continue
        if lossy.index.take("a", arrived) is Taken.GAP:
            _replay(lossy, messages[: arrived.seq + 1 + data.draw(st.integers(0, 2), label="more")])
    _replay(lossy, messages)
    for prompt in PROMPTS:
        assert lossy.expects(prompt) == whole.expects(prompt)


def _replay(seen: Followed, messages: Sequence[Message]) -> None:
    for told in messages[seen.index.next_seq("a") :]:
        assert (
            seen.index.take("a", Message(told.seq, told.incarnation, told.events, live=False))
            is Taken.APPLIED
        )
    seen.index.caught_up("a")

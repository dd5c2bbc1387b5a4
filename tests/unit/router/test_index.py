"""The index of what workers have: from any history of events to the same pages, and the tree's own vote over them."""

import random
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcache.errors import CacheError, Kind
from agentcache.keys import Namespace, page_hashes, page_key
from agentcache.kv_events import AllBlocksCleared, BlockEvent, BlockRemoved, BlockStored
from agentcache.router.index import Message, PrefixIndex, Taken
from agentcache.wire import ComponentCard, WorkerCard
from tests.fleets import PAGE, card_of

PROMPT = list(range(40))
SALT = "home"


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


# one component


def test_a_prefix_is_what_was_stored_and_not_removed() -> None:
    seen = Followed(card_of("a"), card_of("b"))
    assert seen.expects() == {}
    seen.tell("a", stored(names(5)))
    seen.tell("b", stored(names(3)))
    assert seen.expects() == {"a": 20, "b": 12}
    seen.tell("a", removed(names(5)[1:2]))
    assert seen.expects() == {"a": 4, "b": 12}
    assert seen.index.pages == 7


def test_one_token_is_left_to_compute() -> None:
    seen = Followed(card_of("a"))
    seen.tell("a", stored(names(5)))
    assert seen.expects(PROMPT[:20]) == {"a": 16}
    assert seen.expects(PROMPT[:21]) == {"a": 20}
    assert seen.expects(PROMPT[:1]) == {}
    assert seen.expects([]) == {}


def test_the_boundary_lies_on_the_workers_own_grid() -> None:
    seen = Followed(card_of("a", grid_tokens=4 * PAGE), card_of("b"))
    for worker in "ab":
        seen.tell(worker, stored(names(7)))
    assert seen.expects() == {"a": 16, "b": 28}


def test_no_page_needs_its_parent() -> None:
    """An index that starts empty hears of the later pages first; the branch becomes visible when the rest is told."""
    seen = Followed(card_of("a"))
    seen.tell("a", stored(names(4)[2:]))
    assert seen.expects() == {}
    seen.tell("a", stored(names(4)[:2]))
    assert seen.expects() == {"a": 16}


def test_each_page_of_a_removal_counts_for_itself() -> None:
    one, _, three = pages = names(3)
    seen = Followed(card_of("a"))
    seen.tell("a", stored([one, three]))
    seen.tell("a", removed(pages))
    seen.tell("a", removed(pages))
    assert seen.index.pages == 0


def test_storing_twice_is_storing_once() -> None:
    seen = Followed(card_of("a"))
    seen.tell("a", stored(names(3)))
    seen.tell("a", stored(names(3)))
    seen.tell("a", removed(names(3)))
    assert seen.index.pages == 0


def test_a_tier_below_counts_and_an_outer_store_does_not() -> None:
    seen = Followed(card_of("a"))
    seen.tell("a", stored(names(2)), stored(names(4), medium="CPU_PINNED"), stored(names(9), medium="DISK"))
    assert seen.expects() == {"a": 16}
    seen.tell("a", removed(names(2)))
    assert seen.expects() == {"a": 16}
    seen.tell("a", removed(names(4), medium="CPU"))
    assert seen.index.pages == 0


def test_a_clear_takes_every_tier_of_that_worker_only() -> None:
    seen = Followed(card_of("a"), card_of("b"))
    for worker in "ab":
        seen.tell(worker, stored(names(4)), stored(names(8), medium="CPU_PINNED"))
    seen.tell("a", AllBlocksCleared())
    assert seen.expects() == {"b": 32}
    assert seen.index.pages == 8


def test_another_salt_or_model_shares_nothing() -> None:
    seen = Followed(card_of("a"), card_of("b", namespace=("n", "", "", "")))
    for worker in "ab":
        seen.tell(worker, stored(names(4)))
    assert seen.expects() == {"a": 16}
    assert seen.expects(salt="away") == {}


def test_unknown_groups_and_media_are_left_out() -> None:
    seen = Followed(card_of("a"))
    seen.tell("a", stored(names(4), group=3), stored(names(4), medium="TAPE"))
    assert seen.index.pages == 0


def test_a_worker_that_names_no_components_has_full_attention() -> None:
    seen = Followed(card_of("a", components=()))
    seen.tell("a", stored(names(4)))
    assert seen.expects() == {"a": 16}


def test_what_is_no_prompt_is_refused() -> None:
    seen = Followed(card_of("a"))
    seen.tell("a", stored(names(4)))
    with pytest.raises(CacheError) as caught:
        seen.expects([2**40] * 8)
    assert caught.value.kind is Kind.BAD_REQUEST


# several components

HYBRID = (
    ComponentCard("FULL", "path", 0),
    ComponentCard("SWA", "window", 2 * PAGE),
    ComponentCard("MAMBA", "checkpoint", 2 * PAGE),
)


def test_the_agreed_boundary_counts_not_the_longest_component() -> None:
    """One worker keeps FULL of 10 pages without its window, the other both for 6."""
    cards = [card_of(name, components=HYBRID[:2]) for name in "ab"]
    seen = Followed(*cards)
    seen.tell("a", stored(names(10), group=0), stored(names(2), group=1))
    seen.tell("b", stored(names(6), group=0), stored(names(6)[4:], group=1))
    assert seen.expects() == {"a": 8, "b": 24}


def test_a_state_counts_exactly_where_it_lies() -> None:
    seen = Followed(card_of("a", components=(HYBRID[0], HYBRID[2])))
    seen.tell("a", stored(names(8)), stored([names(8)[3]], group=1, medium="CPU_PINNED"))
    assert seen.expects() == {"a": 16}
    seen.tell("a", stored([names(8)[4]], group=1))  # no multiple of its grid
    assert seen.expects() == {"a": 16}


def test_a_second_path_needs_all_of_it() -> None:
    seen = Followed(card_of("a", components=(HYBRID[0], ComponentCard("PATH2", "path", 0))))
    seen.tell("a", stored(names(8)), stored(names(8)[:3] + names(8)[4:], group=1))
    assert seen.expects() == {"a": 12}


# the stream


def test_a_gap_asks_for_a_replay_and_a_replay_fills_it() -> None:
    seen = Followed(card_of("a"))
    index = seen.index
    assert index.take("a", message(0, stored(names(1)))) is Taken.APPLIED
    index.caught_up("a")
    assert index.take("a", message(3, stored(names(4)[3:]))) is Taken.GAP
    assert not index.synced("a")
    assert index.next_seq("a") == 1
    for seq in (1, 2, 3):
        replayed = message(seq, stored(names(4)[seq : seq + 1]), live=False)
        assert index.take("a", replayed) is Taken.APPLIED
    index.caught_up("a")
    assert index.synced("a")
    assert seen.expects() == {"a": 16}


def test_what_a_replay_brought_is_old_when_it_comes_live() -> None:
    seen = Followed(card_of("a"))
    for seq in range(3):
        seen.index.take("a", message(seq, stored(names(3)), live=False))
    seen.index.take("a", message(3, removed(names(3)), live=False))
    for seq in range(3):
        assert seen.index.take("a", message(seq, stored(names(3)))) is Taken.OLD
    assert seen.expects() == {}


def test_numbers_that_go_backwards_are_a_start_from_nothing() -> None:
    seen = Followed(card_of("a"))
    for seq in range(9):
        seen.index.take("a", message(seq, stored(names(9)[seq : seq + 1])))
    assert seen.expects() == {"a": 36}
    assert seen.index.take("a", message(0, stored(names(1)))) is Taken.APPLIED
    assert seen.expects() == {"a": 4}
    assert seen.index.take("a", message(0, stored(names(1)))) is Taken.APPLIED


def test_backwards_but_not_to_the_start_is_a_gap() -> None:
    seen = Followed(card_of("a"))
    for seq in range(9):
        seen.tell("a", stored(names(9)[seq : seq + 1]))
    assert seen.index.take("a", message(2, stored(names(3)[2:]))) is Taken.GAP
    assert (seen.index.pages, seen.index.next_seq("a")) == (0, 0)


def test_another_incarnation_has_nothing_of_the_one_before() -> None:
    seen = Followed(card_of("a"), card_of("b"))
    for worker in "ab":
        seen.tell(worker, stored(names(4)))
    assert seen.index.take("a", message(7, stored(names(1)), incarnation="second")) is Taken.GAP
    assert seen.expects() == {"b": 16}
    assert seen.index.next_seq("a") == 0


def test_a_card_of_another_incarnation_clears_too() -> None:
    seen = Followed(card_of("a"))
    seen.tell("a", stored(names(4)))
    seen.index.follow(card_of("a"))
    assert seen.index.pages == 4
    seen.index.follow(card_of("a", incarnation="second"))
    assert (seen.index.pages, seen.index.next_seq("a")) == (0, 0)
    seen.index.follow(card_of("a", incarnation="second", page_tokens=8))
    assert not seen.index.synced("a")


def test_nothing_is_expected_of_a_worker_that_is_another_than_the_one_heard() -> None:
    seen = Followed(card_of("a"))
    seen.tell("a", stored(names(4)))
    restarted = card_of("a", incarnation="second")
    assert seen.index.forecast([restarted], SALT, PROMPT).tokens == {}


def test_a_snapshot_is_believed_whatever_its_number() -> None:
    seen = Followed(card_of("a"))
    seen.tell("a", stored(names(9)))
    everything = message(500, AllBlocksCleared(), stored(names(2)), live=False)
    assert seen.index.take("a", everything) is Taken.APPLIED
    assert seen.expects() == {"a": 8}
    assert seen.index.next_seq("a") == 501
    earlier = message(-1, AllBlocksCleared(), live=False)  # of a worker that has told nothing
    assert seen.index.take("a", earlier) is Taken.APPLIED
    assert (seen.index.pages, seen.index.next_seq("a")) == (0, 0)


def test_without_replays_a_gap_costs_what_was_known() -> None:
    seen = Followed(card_of("a"))
    seen.tell("a", stored(names(4)))
    late = message(5, stored(names(1)))
    assert seen.index.take("a", late) is Taken.GAP
    seen.index.begin_at("a", 5)
    assert seen.index.take("a", late) is Taken.APPLIED
    assert seen.expects() == {"a": 4}


def test_who_is_not_followed_is_not_heard() -> None:
    index = PrefixIndex()
    assert index.take("z", message(0, stored(names(4)))) is Taken.OLD
    index.caught_up("z")
    index.begin_at("z", 3)
    index.read("z", names(4))
    assert (index.synced("z"), index.next_seq("z"), index.pages) == (False, 0, 0)


def test_a_worker_that_is_gone_is_forgotten() -> None:
    seen = Followed(card_of("a"), card_of("b"))
    for worker in "ab":
        seen.tell(worker, stored(names(4)))
    seen.index.drop("a")
    assert seen.expects() == {"b": 16}
    assert seen.index.pages == 4


# the budget


def test_one_budget_for_all_workers() -> None:
    """Nobody alone is over it."""
    seen = Followed(*(card_of(name) for name in "abcd"), budget_pages=20)
    for worker in "abcd":
        seen.tell(worker, stored(names(8)))
    assert seen.index.pages == 20
    assert seen.index.dropped_pages == 12


def test_the_oldest_goes_first_and_of_a_path_its_end() -> None:
    seen = Followed(card_of("a"), card_of("b"), budget_pages=12)
    seen.tell("a", stored(names(8)))
    seen.tell("b", stored(names(8)))
    assert seen.expects() == {"a": 16, "b": 32}


OTHER, THIRD = ([token + more for token in PROMPT] for more in (1000, 2000))


def test_what_is_read_stays() -> None:
    seen = Followed(card_of("a"), card_of("b"), budget_pages=12)
    seen.tell("a", stored(names(8)))
    path = seen.index.forecast(seen.cards, SALT, PROMPT).paths["a"]
    seen.tell("b", stored(names(4, OTHER)))
    seen.index.read("a", path)
    seen.tell("a", stored(names(4, THIRD)))
    assert seen.expects() == {"a": 32}
    assert seen.expects(OTHER) == {}
    seen.tell("b", stored(names(6, OTHER)))  # and of what was read the beginning stays longest
    assert seen.expects() == {"a": 8}


def test_what_is_stored_again_is_as_new() -> None:
    seen = Followed(card_of("a"), budget_pages=8)
    seen.tell("a", stored(names(4)))
    seen.tell("a", stored(names(4, OTHER)))
    seen.tell("a", stored(names(4), medium="CPU_PINNED"))
    seen.tell("a", stored(names(4, THIRD)))
    assert (seen.expects(), seen.expects(OTHER)) == ({"a": 16}, {})


def test_memory_is_flat_over_any_number_of_prompts() -> None:
    seen = Followed(card_of("a"), card_of("b"), budget_pages=500)
    source = random.Random(7)
    for turn in range(3000):
        seen.tell("ab"[turn % 2], stored([source.randbytes(32) for _ in range(4)]))
        assert seen.index.pages <= 500
    assert seen.index.dropped_pages == 12_000 - 500


# any history


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

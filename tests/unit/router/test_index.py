"""The index of what workers have: from any history of events to the same pages, and the tree's own vote over them."""

import random

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.kv_events import AllBlocksCleared
from agentcache.router.index import PrefixIndex, Taken
from agentcache.wire import ComponentCard
from tests.fleets import PAGE, card_of
from tests.indexing import HYBRID, PROMPT, SALT, Followed, message, names, removed, stored

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

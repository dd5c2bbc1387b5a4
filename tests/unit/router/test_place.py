"""The choice of a worker: one law after the other, then all of them over any fleet."""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcache.errors import CacheError, Kind
from agentcache.router.fleet import FleetView, WorkerView
from agentcache.router.place import Candidate, Choice, Wish, must_look, place
from tests.fleets import Heard, card_of, view_of


def fleet(*loads: int, **more: Any) -> list[Candidate]:
    """Workers a, b, c … with these loads."""
    return [Candidate(view_of(name, load, **more)) for name, load in zip("abcdefgh", loads, strict=False)]


def having(candidates: list[Candidate], **tokens: int) -> list[Candidate]:
    """The same, with what each is expected to reuse."""
    return [Candidate(each.view, tokens.get(each.view.id, each.predicted_tokens)) for each in candidates]


def changed(candidates: list[Candidate], worker: str, **fields: Any) -> list[Candidate]:
    """The same, with one of them otherwise."""
    load = fields.pop("load", next(each.view.load for each in candidates if each.view.id == worker))
    return [
        Candidate(view_of(worker, load, **fields)) if each.view.id == worker else each for each in candidates
    ]


# new sessions


def test_the_least_loaded_takes_what_nobody_knows() -> None:
    assert place(Wish(), fleet(3, 1, 2)) == Choice("b", "least load")


def test_load_is_measured_in_seats() -> None:
    large = Candidate(view_of("large", 10, seats=64))
    assert place(Wish(), [*fleet(3), large]).worker == "large"


def test_a_tie_goes_to_the_one_chosen_longest_ago() -> None:
    workers = [Candidate(view_of(name, chosen=turn)) for name, turn in (("a", 7), ("b", 3), ("c", 5))]
    assert place(Wish(), workers).worker == "b"


def test_within_a_window_of_the_least_load_the_longest_prefix_wins() -> None:
    workers = having(fleet(0, 4, 4), b=512, c=256)
    assert place(Wish(looked_up=True), workers) == Choice("b", "longest prefix", 512, 512)


def test_beyond_the_window_a_prefix_does_not_count() -> None:
    workers = having(fleet(0, 5), b=512)
    assert place(Wish(looked_up=True), workers) == Choice("a", "least load", 0, 512)


def test_the_longest_prefix_within_the_window_wins_though_the_longest_of_all_is_busy() -> None:
    """A load that differs by more than the threshold somewhere does not turn prefixes off."""
    workers = having(fleet(40, 1, 0), a=1024, b=512)
    assert place(Wish(looked_up=True), workers) == Choice("b", "longest prefix", 512, 1024)


def test_equal_prefixes_go_by_load() -> None:
    assert place(Wish(looked_up=True), having(fleet(3, 1, 2), a=64, b=64, c=64)).worker == "b"


def test_on_a_miss_the_load_decides_whoever_has_the_larger_cache() -> None:
    """Unique heavy prompts: the busy worker with a small tree, the idle one with a large tree; both miss."""
    assert place(Wish(looked_up=True), fleet(60, 0)) == Choice("b", "least load")


def test_a_burst_within_one_refresh_is_spread() -> None:
    """Fifty requests, eight workers that all have the prefix, and no report in between."""
    view = _seen(*"abcdefgh")
    for _ in range(50):
        view.begin(place(Wish(looked_up=True), [Candidate(each, 256) for each in view.views()]).worker)
    counts = list(view.in_flight.values())
    assert max(counts) / (sum(counts) / 8) < 1.5
    assert len(counts) == 8


def test_a_burst_for_a_prefix_that_one_worker_has_spreads_beyond_the_window() -> None:
    view = _seen(*"abcd")
    for _ in range(40):
        candidates = [Candidate(each, 256 if each.id == "a" else 0) for each in view.views()]
        view.begin(place(Wish(looked_up=True), candidates).worker)
    assert max(view.in_flight.values()) - min(view.in_flight.values()) <= 5
    assert max(view.in_flight, key=lambda name: view.in_flight[name]) == "a"


def _seen(*names: str) -> FleetView:
    """Workers that have just reported."""
    view = FleetView(salt="r")
    asyncio.run(view.refresh(Heard(*(card_of(name) for name in names))))
    return view


# sessions


def test_a_session_stays() -> None:
    assert place(Wish(bound="b"), fleet(0, 10, 0)) == Choice("b", "sticky")


def test_a_conversation_stays() -> None:
    assert place(Wish(usual="b"), fleet(0, 10, 0)) == Choice("b", "same conversation")


def test_the_store_knows_better_than_this_router() -> None:
    assert place(Wish(bound="a", usual="b"), fleet(0, 0)).worker == "a"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"alive": False}, "moved: its worker is gone; least load"),
        ({"draining": True}, "moved: its worker is draining; least load"),
    ],
)
def test_a_session_leaves_a_worker_that_is_not_to_be_used(change: dict[str, Any], why: str) -> None:
    workers = changed(fleet(0, 1, 0), "a", **change)
    assert place(Wish(bound="a"), workers) == Choice("c", why)


def test_a_session_leaves_a_worker_that_did_not_answer() -> None:
    choice = place(Wish(bound="a", exclude=frozenset({"a"})), fleet(0, 3, 1))
    assert choice == Choice("c", "moved: its worker did not answer; least load")


def test_a_session_whose_worker_nobody_knows_is_placed_anew() -> None:
    assert place(Wish(bound="z"), fleet(1, 0)).why == "moved: its worker is gone; least load"


@pytest.mark.parametrize(("load", "stays"), [(16, True), (23, True), (24, False)])
def test_whoever_would_lose_its_prefix_moves_when_two_batches_wait(load: int, stays: bool) -> None:
    workers = having(fleet(load, 0), a=512)
    assert (place(Wish(bound="a", looked_up=True), workers).worker == "a") is stays


@pytest.mark.parametrize(("load", "stays"), [(15, True), (16, False)])
def test_whoever_loses_nothing_moves_when_one_batch_waits(load: int, stays: bool) -> None:
    workers = having(fleet(load, 0), a=512, b=512)
    choice = place(Wish(bound="a", looked_up=True), workers)
    assert (choice.worker == "a") is stays
    assert stays or choice.why == "moved: its worker is overloaded; longest prefix"


def test_without_a_look_a_prefix_may_be_lost() -> None:
    assert place(Wish(bound="a"), fleet(16, 0)).worker == "a"
    assert place(Wish(bound="a"), fleet(24, 0)).worker == "b"


def test_nobody_moves_to_a_worker_without_a_free_seat() -> None:
    assert place(Wish(bound="a"), fleet(100, 8, 9)).worker == "a"


def test_nobody_moves_again_before_it_has_rested() -> None:
    assert place(Wish(bound="a", rested=False), fleet(100, 0)).worker == "a"


def test_a_short_queue_is_full_sooner() -> None:
    short = Candidate(view_of("a", 10, card=card_of("a", queue_limit=4)))
    assert place(Wish(bound="a", looked_up=True), [short, *fleet(99, 0)[1:]]).worker == "b"


# pins


def test_a_pin_is_obeyed() -> None:
    assert place(Wish(pinned="b"), fleet(0, 50)) == Choice("b", "pinned")


def test_a_pin_elsewhere_is_for_once() -> None:
    assert place(Wish(bound="a", pinned="b"), fleet(0, 50)) == Choice("b", "pinned", for_once=True)
    assert not place(Wish(bound="a", pinned="a"), fleet(0, 50)).for_once
    assert not place(Wish(bound="a", pinned="b"), changed(fleet(0, 50), "a", alive=False)).for_once


@pytest.mark.parametrize("change", [{"alive": False}, {"draining": True}])
def test_a_pin_that_cannot_be_obeyed_is_an_error(change: dict[str, Any]) -> None:
    with pytest.raises(CacheError, match="pinned") as caught:
        place(Wish(bound="a", pinned="b"), changed(fleet(0, 0), "b", **change))
    assert caught.value.kind is Kind.NO_WORKER
    with pytest.raises(CacheError, match="pinned"):
        place(Wish(pinned="z"), fleet(0, 0))


# near


def test_a_child_goes_near_its_parent() -> None:
    assert place(Wish(near="a"), fleet(8, 0)) == Choice("a", "near parent")


def test_a_child_does_not_queue_behind_its_parent() -> None:
    assert place(Wish(near="a"), fleet(12, 0)).worker == "b"


def test_a_child_that_shares_nothing_with_its_parent_goes_by_load() -> None:
    assert place(Wish(near="a", looked_up=True), fleet(1, 0)) == Choice("b", "least load")
    assert place(Wish(near="a", looked_up=True), having(fleet(1, 0), a=64)).why == "near parent"


def test_a_child_goes_where_more_of_its_prompt_is() -> None:
    assert place(Wish(near="a", looked_up=True), having(fleet(0, 0), a=64, b=128)).worker == "b"


def test_four_children_share_the_parents_prefix() -> None:
    """Each would compute 20,000 tokens again elsewhere; the parent's worker has room for them."""
    view = _seen(*"abcd")
    view.begin("c")
    for _ in range(4):
        candidates = [Candidate(each, 20_000 if each.id == "c" else 0) for each in view.views()]
        view.begin(place(Wish(near="c", looked_up=True), candidates).worker)
    assert view.in_flight == {"c": 5}


# models


def test_a_model_limits_the_workers() -> None:
    workers = [
        Candidate(view_of("a", 9, models=("large",))),
        Candidate(view_of("b", 0, models=("small",))),
    ]
    assert place(Wish(model="large"), workers).worker == "a"
    assert place(Wish(model="unheard of"), workers).worker == "b"


def test_a_model_whose_worker_is_gone_is_not_served_by_another() -> None:
    workers = [
        Candidate(view_of("a", models=("large",), alive=False)),
        Candidate(view_of("b", models=("small",))),
    ]
    with pytest.raises(CacheError) as caught:
        place(Wish(model="large"), workers)
    assert (caught.value.kind, caught.value.facts["model"]) == (Kind.NO_WORKER, "large")


def test_another_model_in_a_session_does_not_move_it() -> None:
    """Agents ask a small model for titles within the session of the large one."""
    workers = [
        Candidate(view_of("a", models=("large",))),
        Candidate(view_of("b", 3, models=("small",))),
        Candidate(view_of("c", 0, models=("small",))),
    ]
    choice = place(Wish(bound="a", model="small"), workers)
    assert choice == Choice("c", "its worker serves another model; least load", for_once=True)
    again = place(Wish(bound="a", usual="b", model="small"), workers)
    assert again == Choice("b", "same conversation", for_once=True)


# nobody


def test_nobody_is_an_error_that_says_what_there_is() -> None:
    workers = changed(changed(fleet(0, 0, 0), "a", alive=False), "b", draining=True)
    with pytest.raises(CacheError) as caught:
        place(Wish(exclude=frozenset({"c"})), workers)
    assert caught.value.facts == {"workers": 3, "draining": 1, "not_alive": 1, "tried": 1}


def test_no_workers_at_all() -> None:
    with pytest.raises(CacheError, match="no worker can take"):
        place(Wish(), [])


# looking


def test_predictions_are_asked_for_only_where_they_can_matter() -> None:
    views = [each.view for each in fleet(0, 0)]
    assert must_look(Wish(), views)
    assert must_look(Wish(near="a"), views)
    assert not must_look(Wish(), views[:1])
    assert not must_look(Wish(bound="a"), views)
    assert not must_look(Wish(usual="b"), views)
    assert not must_look(Wish(pinned="b"), views)
    assert must_look(Wish(bound="z"), views)


def test_an_overloaded_home_is_looked_at_again() -> None:
    views = [each.view for each in fleet(16, 0)]
    assert must_look(Wish(bound="a"), views)
    assert not must_look(Wish(bound="a", rested=False), views)
    assert not must_look(Wish(bound="a"), [each.view for each in fleet(16, 8)])


# over any fleet

NAMES = st.sampled_from(["", *"abcde", "gone"])
VIEWS = st.builds(
    WorkerView,
    id=st.just(""),
    url=st.just(""),
    alive=st.booleans(),
    draining=st.booleans(),
    seats=st.integers(1, 8),
    in_flight=st.integers(0, 40),
    others=st.integers(0, 5),
    chosen=st.integers(-3, 3),
    models=st.sampled_from([(), ("m",), ("n",), ("m", "n")]),
)


@st.composite
def fleets(draw: st.DrawFn) -> list[Candidate]:
    names = draw(st.lists(st.sampled_from("abcde"), unique=True))
    return [Candidate(_named(name, draw(VIEWS)), draw(st.sampled_from([0, 0, 64, 128]))) for name in names]


def _named(name: str, view: WorkerView) -> WorkerView:
    fields = {field: getattr(view, field) for field in WorkerView.__struct_fields__}
    return WorkerView(**(fields | {"id": name}))


WISHES = st.builds(
    Wish,
    bound=NAMES,
    usual=NAMES,
    near=NAMES,
    pinned=st.one_of(st.just(""), NAMES),
    model=st.sampled_from(["", "m", "n", "x"]),
    exclude=st.frozensets(st.sampled_from("abcde"), max_size=2),
    looked_up=st.booleans(),
    rested=st.booleans(),
)


@given(wish=WISHES, workers=fleets(), seed=st.integers(0, 99))
def test_any_choice(wish: Wish, workers: list[Candidate], seed: int) -> None:
    """Never dead, draining, tried or of another model; the same whatever the order; a pin moves no session."""
    choice = _choice_or_none(wish, workers)
    shuffled = random.Random(seed).sample(workers, len(workers))
    assert _choice_or_none(wish, shuffled) == choice
    served = {model for each in workers for model in each.view.models}
    fit = {
        each.view.id: each
        for each in workers
        if each.view.alive
        and not each.view.draining
        and each.view.id not in wish.exclude
        and (wish.model in each.view.models or wish.model not in served)
    }
    if choice is None:
        assert not fit or (wish.pinned and wish.pinned not in fit)
        return
    assert choice.worker in fit
    assert choice.predicted_tokens == fit[choice.worker].predicted_tokens
    assert choice.best_tokens == max(each.predicted_tokens for each in fit.values())
    bound = next((each.view for each in workers if each.view.id == wish.bound), None)
    if choice.for_once:
        assert bound is not None
        assert bound.alive
        assert choice.worker != wish.bound
    elif wish.pinned:
        assert choice.worker == wish.pinned
    elif wish.bound in fit and choice.worker != wish.bound:
        assert wish.rested
        assert fit[wish.bound].view.load >= fit[wish.bound].view.seats + 1
        assert fit[choice.worker].view.load < fit[choice.worker].view.seats


def _choice_or_none(wish: Wish, workers: list[Candidate]) -> Choice | None:
    """Any other error fails the test."""
    with suppress(CacheError):
        return place(wish, workers)
    return None


@given(wish=WISHES, workers=fleets())
def test_what_needs_no_look_does_not_depend_on_one(wish: Wish, workers: list[Candidate]) -> None:
    """Where `must_look` says no, predictions change only what is told of them."""
    if must_look(wish, [each.view for each in workers]):
        return
    without = _choice_or_none(wish, [Candidate(each.view) for each in workers])
    with_them = _choice_or_none(wish, workers)
    assert (with_them and with_them.worker) == (without and without.worker)


def test_the_least_recently_chosen_of_equals_takes_turns() -> None:
    view = _seen(*"abc")
    turns: Counter[str] = Counter()
    for _ in range(30):
        choice = place(Wish(), [Candidate(each) for each in view.views()])
        turns[choice.worker] += 1
        view.begin(choice.worker).end()
    assert set(turns.values()) == {10}

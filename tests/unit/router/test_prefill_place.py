"""Who computes a prompt for the worker that answers it, and that prefill workers answer nobody."""

import itertools
from typing import Any

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.router.place import Candidate, Wish, must_look, place
from agentcache.router.prefill_place import NoPrefill, PrefillChoice, PrefillWish, place_prefill
from agentcache.wire import ComponentCard, Role
from tests.fleets import FULL_ALONE, PAGE, card_of, view_of


def one(worker: str, load: int = 0, had: int = 0, role: str = Role.PREFILL, **card: Any) -> Candidate:
    view: dict[str, Any] = {
        name: card.pop(name) for name in ("alive", "draining", "chosen", "seats") if name in card
    }
    seats = view.get("seats", 8)
    return Candidate(
        view_of(worker, load, card=card_of(worker, role=role, **card), **{"seats": seats} | view), had
    )


def wish(prompt: int = 2000, cached: int = 0, **more: Any) -> PrefillWish:
    decoder = one("d", role=Role.DECODE).view
    return PrefillWish(decoder, prompt, cached, **{"least_tokens": 1000, **more})


@pytest.mark.parametrize(
    ("prompt", "cached", "worth"),
    [
        (1001, 0, True),
        (1000, 0, False),  # the last token is computed anyhow, and with it its page
        (5000, 4000, False),
        (5001, 4000, True),
        (5001, 4001, False),
        (0, 0, False),
        (1, 0, False),
    ],
)
def test_only_what_the_decode_worker_has_not_counts(prompt: int, cached: int, worth: bool) -> None:
    choice = place_prefill(wish(prompt, cached), [one("p")])
    assert choice == (PrefillChoice("p") if worth else PrefillChoice(why=NoPrefill.SHORT))


@pytest.mark.parametrize(
    ("candidates", "why"),
    [
        ([], NoPrefill.ABSENT),
        ([one("p", alive=False)], NoPrefill.ABSENT),
        ([one("p", draining=True)], NoPrefill.ABSENT),
        ([one("p", role=Role.BOTH), one("q", role=Role.DECODE)], NoPrefill.ABSENT),
        ([one("p", namespace=("m", "", "", "other"))], NoPrefill.UNLIKE),
        ([one("p", page_tokens=2 * PAGE)], NoPrefill.UNLIKE),
        ([one("p", grid_tokens=2 * PAGE)], NoPrefill.UNLIKE),
        ([one("p", components=(*FULL_ALONE, ComponentCard("SWA", "window", 31)))], NoPrefill.UNLIKE),
        ([one("p", load=16)], NoPrefill.FULL),
        ([one("p", load=9, queue_limit=1)], NoPrefill.FULL),
    ],
)
def test_nobody_is_a_value_that_says_why(candidates: list[Candidate], why: str) -> None:
    assert place_prefill(wish(), candidates) == PrefillChoice(why=why)


def test_a_worker_whose_prompts_do_not_arrive_rests() -> None:
    resting = frozenset({"p"})
    assert place_prefill(wish(resting=resting), [one("p")]) == PrefillChoice(why=NoPrefill.RESTING)
    assert place_prefill(wish(resting=resting, usual="p"), [one("p"), one("q")]).worker == "q"


def test_a_session_goes_where_its_prompts_went() -> None:
    workers = [one("a"), one("b", load=12), one("c", had=512)]
    assert place_prefill(wish(usual="b"), workers).worker == "b"
    assert place_prefill(wish(usual="gone"), workers).worker == "c"
    full = [one("a"), one("b", load=16)]
    assert place_prefill(wish(usual="b"), full).worker == "a"


def test_a_new_one_goes_to_the_longest_prefix_among_those_with_little_to_do() -> None:
    assert place_prefill(wish(), [one("a"), one("b", load=4, had=512)]).worker == "b"
    assert place_prefill(wish(), [one("a"), one("b", load=5, had=512)]).worker == "a"
    assert place_prefill(wish(), [one("a", load=2), one("b", load=1)]).worker == "b"
    assert place_prefill(wish(), [one("a", chosen=2), one("b", chosen=1)]).worker == "b"


def test_the_order_of_the_workers_does_not_matter() -> None:
    workers = [one("a", 3, 64), one("b", 1), one("c", 2, 64), one("d", 0, role=Role.DECODE)]
    found = {place_prefill(wish(), list(order)) for order in itertools.permutations(workers)}
    assert len(found) == 1


# whole turns


def test_a_prefill_worker_gets_no_whole_turn() -> None:
    workers = [one("p", had=512), one("d", load=3, role=Role.DECODE), one("b", load=5, role=Role.BOTH)]
    assert place(Wish(looked_up=True), workers).worker == "d"
    assert place(Wish(bound="p"), workers).why == "moved: its worker computes prompts only; least load"
    assert not place(Wish(bound="p", model="m"), workers).for_once
    assert not must_look(Wish(), [workers[0].view, workers[1].view])
    assert place(Wish(usual="p"), workers).worker == "d"
    assert place(Wish(near="p"), workers).worker == "d"


@pytest.mark.parametrize("model", ["", "m"])
def test_prefill_workers_alone_answer_nobody_and_the_refusal_says_what_to_start(model: str) -> None:
    with pytest.raises(CacheError, match="start one with --role decode, or both") as caught:
        place(Wish(model=model), [one("p"), one("q"), one("d", alive=False, role=Role.DECODE)])
    assert caught.value.kind is Kind.NO_WORKER
    assert caught.value.facts["workers"] == 3


def test_a_request_that_is_pinned_to_a_prefill_worker_is_refused() -> None:
    with pytest.raises(CacheError, match="leave the pin out"):
        place(Wish(pinned="p"), [one("p"), one("d", role=Role.DECODE)])

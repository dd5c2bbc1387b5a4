"""What every session missed, and where prompts changed."""

import random
from collections import Counter

import pytest

from agentcache.replay.lab.cells import score
from agentcache.replay.lab.missed import changed_at, missed
from agentcache.replay.paged import PAGE_TOKENS
from tests.unit.replay.lab.naive import NaiveLru
from tests.unit.replay.lab.test_history import EVERYONE, SECOND, Makes
from tests.worlds import (
    AT_ONCE,
    Says,
    calls_of,
    hits,
    random_script,
    random_workload,
    replayed,
    script,
    workload,
)


def test_a_change_is_told_by_its_first_token_in_whole_pages() -> None:
    paged = workload([Says([1, 2, 3]), Says([1, 2, 3, 4]), Says([1, 9]), Says([1]), Says([7])])
    calls = calls_of(paged)
    assert [changed_at(paged, call) for call in calls] == [None, None, PAGE_TOKENS, PAGE_TOKENS, 0]


def test_misses_are_summed_for_every_session() -> None:
    paged = workload([Says([1, 2, 3]), Says([1, 9, 3])], [Says([7, 8, 6])])
    gaps = [[0, 5], [0]]
    lost, kept = missed(paged, replayed(script(paged, [0, 1], gaps), AT_ONCE, NaiveLru(paged, 3)))
    assert (lost.session, lost.calls, lost.why) == ("0", 2, {"evicted": 1, "never_stored": 1})
    pages = {"evicted": 1, "prefix_changed": 2, "never_stored": 3}
    assert lost.tokens == {why: count * PAGE_TOKENS for why, count in pages.items()}
    assert (lost.again_tokens, lost.changed_at) == (PAGE_TOKENS, [(1, PAGE_TOKENS)])
    assert (kept.session, kept.again_tokens, kept.changed_at) == ("1", 0, [])
    assert kept.as_json()["why"] == {"never_stored": 1}


@pytest.mark.parametrize("replay", EVERYONE)
def test_what_is_computed_again_ends_where_the_path_had_ever_been_computed(replay: Makes) -> None:
    """Of four pages two were there once; of the rewrite one of two, and then the prompt goes its own way."""
    paged = workload(
        [Says([1, 2]), Says([1, 2, 3, 4]), Says([1, 9])], [Says([7, 8, 6, 3])], [Says([7, 5, 6, 3])]
    )
    gaps = [[0, 20 * SECOND, 40 * SECOND], [0], [0]]
    told = script(paged, [0, SECOND, 30 * SECOND], gaps)
    by_name = {one.session: one for one in missed(paged, replay(told, AT_ONCE, 4))}
    page = PAGE_TOKENS
    assert by_name["0"].why == {"never_stored": 1, "evicted": 2}
    assert by_name["0"].tokens == {
        "never_stored": (2 + 2) * page,
        "evicted": (2 + 1) * page,
        "prefix_changed": page,
    }
    assert by_name["0"].again_tokens == 3 * page


@pytest.mark.parametrize("replay", EVERYONE)
def test_again_is_what_an_earlier_call_had_and_this_one_does_not_find(replay: Makes) -> None:
    """Where nothing takes time calls come one after the other, so a set of what was said is enough."""
    lost = 0
    for seed in range(60):
        rng = random.Random(seed)
        paged = random_workload(rng, sessions=5)
        calls = replay(random_script(rng, paged, 50), AT_ONCE, rng.randint(2, 9))
        said: set[int] = set()
        again: Counter[str] = Counter()
        for one in calls:
            rest = one.call.prompt[one.found.pages : one.call.reusable].tolist()
            again[paged.sessions[one.call.session].name] += PAGE_TOKENS * len(said.intersection(rest))
            said.update(one.call.prompt.tolist(), one.call.output.tolist())
        found = missed(paged, calls)
        assert {one.session: one.again_tokens for one in found} == again, seed
        told = sum(sum(one.tokens.values()) for one in found) // PAGE_TOKENS
        assert hits(calls) + told == sum(one.call.reusable for one in calls), seed
        lost += again.total()
    assert lost


def test_a_prompt_with_nothing_to_reuse_is_too_short_and_no_full_hit() -> None:
    paged = workload([Says([1], spare=0), Says([1], spare=0), Says([1])])
    calls = replayed(script(paged, [0], [[0, 5, 5]]), AT_ONCE, NaiveLru(paged, 3))
    (only,) = missed(paged, calls)
    assert only.why == score(calls, PAGE_TOKENS).why == {"too_short": 2, "nothing": 1}
    assert (only.tokens, only.again_tokens) == ({}, 0)

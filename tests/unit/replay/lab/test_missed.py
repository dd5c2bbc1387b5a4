"""What every session missed, and where prompts changed."""

from agentcache.replay.lab.missed import changed_at, missed
from agentcache.replay.paged import PAGE_TOKENS
from tests.unit.replay.lab.naive import NaiveLru
from tests.worlds import AT_ONCE, Says, calls_of, replayed, script, workload


def test_a_change_is_told_by_its_first_token_in_whole_pages() -> None:
    paged = workload([Says([1, 2, 3]), Says([1, 2, 3, 4]), Says([1, 9]), Says([1]), Says([7])])
    calls = calls_of(paged)
    assert [changed_at(paged, call) for call in calls] == [None, None, PAGE_TOKENS, PAGE_TOKENS, 0]


def test_misses_are_summed_for_every_session() -> None:
    paged = workload([Says([1, 2, 3]), Says([1, 9, 3])], [Says([7, 8, 6])])
    gaps = [[0, 5], [0]]
    lost, kept = missed(paged, replayed(script(paged, [0, 1], gaps), AT_ONCE, NaiveLru(paged, 3)))
    assert (lost.session, lost.calls, lost.why) == ("0", 2, {"evicted": 1, "never_stored": 1})
    assert lost.tokens == {"evicted": 3 * PAGE_TOKENS, "never_stored": 3 * PAGE_TOKENS}
    assert (lost.again_tokens, lost.changed_at) == (3 * PAGE_TOKENS, [(1, PAGE_TOKENS)])
    assert (kept.session, kept.again_tokens, kept.changed_at) == ("1", 0, [])
    assert kept.as_json()["why"] == {"never_stored": 1}

"""All that was ever computed."""

from agentcache.replay.lab.serving import Found, Why
from agentcache.replay.lab.unbounded import Unbounded
from tests.worlds import AT_ONCE, Says, replayed, script, workload


def test_what_was_computed_is_found_again_up_to_where_prompts_part() -> None:
    paged = workload([Says([1, 2, 3]), Says([1, 2, 3])], [Says([1, 2, 4])])
    told = script(paged, [0, 5], [[0, 10], [0]])
    found = [one.found for one in replayed(told, AT_ONCE, Unbounded(paged))]
    assert found == [
        Found(0, why=Why.NEVER_STORED, behind=Why.NEVER_STORED),
        Found(2, why=Why.NEVER_STORED, behind=Why.NEVER_STORED),
        Found(3, why=Why.NOTHING),
    ]


def test_answers_are_found_and_one_token_is_always_computed() -> None:
    paged = workload([Says([1], answer=2), Says([1, 2, 3], spare=0), Says([1, 2, 3], spare=1)])
    told = script(paged, [0], [[0, 1, 1]])
    assert [one.found.pages for one in replayed(told, AT_ONCE, Unbounded(paged))] == [0, 2, 3]


def test_a_prompt_is_not_there_before_it_is_computed() -> None:
    paged = workload([Says([1, 2])], [Says([1, 2])])
    first, second = (session.calls[0] for session in paged.sessions)
    served = Unbounded(paged)
    served.start(first, 0, must=True)
    assert served.uncached(second) == 2
    served.computed(first, 0)
    assert served.uncached(second) == 0

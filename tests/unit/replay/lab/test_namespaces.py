"""Models of a trace apart: what one has computed is of no use to another."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from agentcache.replay.lab.missed import changed_at
from agentcache.replay.lab.namespaces import apart
from agentcache.replay.lab.selecting import Selection
from agentcache.replay.lab.serving import Why
from agentcache.replay.paged import PAGE_TOKENS, PagedSession, Workload
from agentcache.replay.trace import Call, Facts, Session
from tests.unit.replay.lab.test_history import ENDLESS, EVERYONE, Makes, one_by_one, told
from tests.worlds import AT_ONCE, Says, calls_of, workload


def named(paged: Workload, *models: Sequence[str]) -> Workload:
    """The same with these models, call by call of every session."""

    def its(session: PagedSession) -> PagedSession:
        pairs = zip(session.calls, models[session.index], strict=True)
        return replace(
            session,
            calls=tuple(replace(call, facts=replace(call.facts, model=model)) for call, model in pairs),
        )

    return replace(paged, sessions=tuple(map(its, paged.sessions)))


def test_a_trace_of_one_model_stays_as_it_is() -> None:
    paged = workload([Says([1, 2]), Says([1, 2, 3])], [Says([1])])
    for models in ((("", ""), ("",)), (("a", ""), ("a",))):
        assert apart(same := named(paged, *models)) is same


def test_every_model_has_pages_of_its_own_that_say_the_same() -> None:
    paged = workload([Says([1, 2], answer=1), Says([1, 2, 3, 4])], [Says([1, 5])])
    split = apart(named(paged, ("a", "b"), ("a",)))
    first, second, other = calls_of(split)
    assert not set(first.prompt.tolist()) & set(second.prompt.tolist())
    assert first.prompt[0] == other.prompt[0]
    for call, before in zip(calls_of(split), calls_of(paged), strict=True):
        assert split.content[call.prompt].tolist() == before.prompt.tolist()
        assert split.content[call.output].tolist() == before.output.tolist()
        path = np.concatenate((call.prompt, call.output))
        assert split.before[path].tolist() == [0, *path[:-1].tolist()]


def test_who_names_no_model_is_of_the_one_before() -> None:
    paged = workload([Says([1]), Says([1]), Says([1])], [Says([1])])
    split = apart(named(paged, ("", "a", ""), ("b",)))
    assert [int(call.prompt[0]) for call in calls_of(split)] == [1, 1, 1, 2]


@pytest.mark.parametrize("replay", [*EVERYONE, pytest.param(ENDLESS, id="unbounded")])
def test_what_another_model_has_is_told_so_and_found_by_its_own(replay: Makes) -> None:
    paged = workload([Says([1, 2, 3]), Says([1, 2, 3, 4]), Says([1, 2, 3, 5])])
    split = apart(named(paged, ("a", "b", "a")))
    assert told(replay(one_by_one(split), AT_ONCE, 20)) == [
        (0, Why.NEVER_STORED),
        (0, Why.NAMESPACE),
        (3, Why.PREFIX_CHANGED),
    ]
    assert [changed_at(split, call) for call in calls_of(split)] == [None, None, 3 * PAGE_TOKENS]


def test_a_selection_keeps_models_apart() -> None:
    calls = [Call(keep=0, blocks=(1, 2), facts=Facts(prompt_tokens=130, model=model)) for model in "ab"]
    told_once = Session("one", tuple(calls), "here", block_tokens=PAGE_TOKENS)
    split = Selection().page([told_once], encode=lambda _: [])
    assert split.content.tolist() == [0, 1, 2, 1, 2]

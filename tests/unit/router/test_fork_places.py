"""Forks go on from what their parent has: where that is, heard of or not, unless that worker is full."""

import pytest

from agentcache.router.place import Candidate, Choice, Wish, place
from tests.choosing import Table, publishing, says, tokens_of
from tests.fleets import view_of

FORK = Wish(near="a", forks=True, looked_up=True)
SYSTEM, JOB = says("You are an agent. " * 40, "system"), says("look for it")


def loaded(a: int, b: int, a_tokens: int = 0, b_tokens: int = 0) -> list[Candidate]:
    return [Candidate(view_of("a", a), a_tokens), Candidate(view_of("b", b), b_tokens)]


def test_a_fork_goes_to_its_parent_before_anybody_has_heard_what_that_left() -> None:
    assert place(FORK, loaded(1, 0)) == Choice("a", "near parent")
    assert place(FORK, loaded(1, 0, 64, 64)) == Choice("a", "near parent", 64, 64)


def test_a_fork_goes_where_more_of_its_prompt_is_and_says_so() -> None:
    assert place(FORK, loaded(0, 0, 64, 128)) == Choice(
        "b", "longest prefix; apart from its parent", 128, 128
    )


def test_a_fork_does_not_queue_behind_its_parent() -> None:
    assert place(FORK, loaded(12, 0)) == Choice("b", "least load; apart from its parent")


def test_a_fork_of_a_parent_whose_worker_is_gone_is_apart_from_it() -> None:
    assert place(FORK, loaded(0, 0)[1:]).why == "only worker; apart from its parent"


def test_a_fork_of_a_parent_that_is_nowhere_goes_as_any_child() -> None:
    assert place(Wish(looked_up=True), loaded(1, 0)) == Choice("b", "least load")


@pytest.mark.asyncio
@pytest.mark.parametrize(("forks", "why"), [(True, "near parent"), (False, "least load")])
async def test_events_that_are_late_part_no_fork_from_its_parent(forks: bool, why: str) -> None:
    """Pages of others are known, so that the prompt is looked up."""
    async with Table(publishing("a"), publishing("b"), publishing("c")) as table:
        table.told("c", tokens_of({"messages": [says("another conversation altogether " * 20)]}))
        table.fleet.begin("b")
        child = await table.serve(SYSTEM, JOB, session="child", parent="p", parent_worker="b", forks=forks)
        assert (child.worker == "b", child.why) == (forks, why)


@pytest.mark.asyncio
async def test_a_family_is_no_parent() -> None:
    async with Table(publishing("a"), publishing("b")) as table:
        table.told("a", tokens_of({"messages": [says("another conversation altogether " * 20)]}))
        first = await table.serve(SYSTEM, session="one", family="key")
        for _ in range(2):
            table.fleet.begin(first.worker)
        second = await table.serve(JOB, session="two", family="key", forks=True)
        assert (second.worker != first.worker, second.why) == (True, "least load")

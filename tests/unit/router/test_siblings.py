"""Siblings that share a prefix go together, before anybody has computed it, too, unless that overloads a worker."""

import asyncio
from collections import Counter

import pytest

from agentcache.router.choosing import Chosen
from agentcache.router.place import Candidate, Choice, Wish, place
from tests.choosing import Table, publishing, says, tokens_of
from tests.fleets import card_of, view_of

ROLE = says("You are a sub-agent. Search the repository and report. " * 12, "system")
OTHER_ROLE = says("You review what others wrote, and nothing else matters. " * 12, "system")
WORKERS = [publishing(name) for name in "abcd"]


async def arrive(table: Table, count: int, parent: str = "p", role: dict[str, str] = ROLE) -> list[Chosen]:
    """Children of a parent on worker a, all at once, before any of them is computed."""
    asked = (
        table.ask(role, says(f"job {number}"), session=f"{parent}/{number}", parent=parent, parent_worker="a")
        for number in range(count)
    )
    return list(await asyncio.gather(*asked))


def where(children: list[Chosen]) -> Counter[str]:
    return Counter(child.worker for child in children)


@pytest.mark.asyncio
async def test_spawned_siblings_that_arrive_together_go_together() -> None:
    """Nobody has their prefix, the parent neither: the first one decides, though it has computed nothing yet."""
    async with Table(*WORKERS) as table:
        children = await arrive(table, 6)
        assert len(where(children)) == 1
        assert [child.why for child in children] == ["least load", *["near siblings"] * 5]


@pytest.mark.asyncio
async def test_siblings_do_not_overload_a_worker() -> None:
    """Eight seats and half as many that wait: twelve, then the next worker."""
    async with Table(*WORKERS) as table:
        assert sorted(where(await arrive(table, 30)).values()) == [6, 12, 12]


@pytest.mark.asyncio
async def test_siblings_with_other_prompts_and_other_parents_are_none() -> None:
    async with Table(*WORKERS) as table:
        placed = [
            *await arrive(table, 1),
            *await arrive(table, 1, role=OTHER_ROLE),
            *await arrive(table, 1, parent="q"),
            *await arrive(table, 1, parent="r"),
        ]
        assert [child.why for child in placed] == ["least load"] * 4
        assert len(where(placed)) == 4


@pytest.mark.asyncio
async def test_forks_go_to_their_parent_while_it_has_room() -> None:
    async with Table(*WORKERS) as table:
        table.told("a", tokens_of({"messages": [ROLE]}))
        children = await arrive(table, 14)
        assert [child.why for child in children[:12]] == ["near parent"] * 12
        assert where(children)["a"] == 12
        assert len(where(children)) == 2


@pytest.mark.asyncio
async def test_siblings_of_a_worker_that_started_anew_are_forgotten() -> None:
    async with Table(card_of("a"), card_of("b")) as table:
        first = (await table.serve(ROLE, session="1", parent="p")).worker
        table.roster.hear(card_of(first, incarnation="another"))
        await table.look()
        again = await table.serve(ROLE, says("more"), session="2", parent="p")
        assert (again.worker != first, again.why) == (True, "least load")


def at(**loads: int) -> list[Candidate]:
    return [Candidate(view_of(name, load)) for name, load in loads.items()]


def test_siblings_on_several_workers_the_least_loaded_takes_the_next() -> None:
    wish = Wish(siblings={"a": 500, "b": 500, "c": 300}, looked_up=True)
    assert place(wish, at(a=5, b=3, c=0)) == Choice("b", "near siblings")


def test_siblings_yield_to_whoever_has_more_of_the_prompt() -> None:
    wish = Wish(siblings={"a": 200}, looked_up=True)
    assert place(wish, [*at(a=0), Candidate(view_of("b", 0), 512)]) == Choice("b", "longest prefix", 512, 512)
    computed = [Candidate(view_of("a", 6), 512), Candidate(view_of("b", 0), 448)]
    assert place(wish, computed) == Choice("a", "near siblings", 512, 512)


def test_siblings_on_a_worker_that_is_full_gone_or_excluded_do_not_count() -> None:
    wish = Wish(siblings={"a": 500}, looked_up=True)
    assert place(wish, at(a=12, b=2)).worker == "b"
    assert place(wish, at(b=2)).worker == "b"
    assert place(Wish(siblings={"a": 500}, exclude=frozenset("a")), at(a=0, b=2)).worker == "b"

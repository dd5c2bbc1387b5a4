"""Choosing with all its sources: what is asked when, what is remembered, and what is told of it."""

import asyncio

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.router.choosing import MODEL_CHARS, MOVE_REST_S, Asked
from agentcache.router.feed import FeedMode
from agentcache.web.fields import Fields
from tests.choosing import CHAT, SALT, Table, publishing, says, tokens_of
from tests.fleets import card_of

SYSTEM = says("You are an agent. " * 40, "system")
FIX, WRITE = says("fix the bug in the parser"), says("write a test for the printer")


def prompt(*messages: dict[str, str]) -> list[int]:
    return tokens_of({"messages": list(messages)})


@pytest.mark.asyncio
async def test_a_new_session_goes_where_most_of_its_prompt_is() -> None:
    async with Table(publishing("a"), publishing("b"), publishing("c")) as table:
        table.told("b", prompt(SYSTEM))
        table.told("c", prompt(SYSTEM, FIX))
        chosen = await table.ask(SYSTEM, FIX, session="s")
        assert (chosen.worker, chosen.why) == ("c", "longest prefix")
        assert chosen.url == card_of("c").url
        whole = len(prompt(SYSTEM, FIX))
        assert chosen.prompt_tokens == whole
        assert chosen.predicted_tokens == chosen.best_tokens == (whole - 1) // 4 * 4


@pytest.mark.asyncio
async def test_another_tenants_salt_finds_nothing() -> None:
    async with Table(publishing("a"), publishing("b")) as table:
        for worker in "ab":
            table.told(worker, prompt(SYSTEM, FIX))
        chosen = await table.ask(SYSTEM, FIX, salt="another")
        assert (chosen.why, chosen.best_tokens) == ("least load", 0)


@pytest.mark.asyncio
async def test_what_is_used_is_remembered_longest() -> None:
    """Room for two prompts: of three that were stored in turn, the one that sessions begin with stays."""
    cards = publishing("a"), publishing("b")
    size = len(prompt(SYSTEM)) // 4
    async with Table(*cards, budget_pages=2 * size + 8) as table:
        other, third = (says(letter * 720, "system") for letter in "yz")
        table.told("a", prompt(SYSTEM))
        table.told("a", prompt(other))
        await table.serve(SYSTEM, FIX, session="one")
        table.told("a", prompt(third))
        assert (await table.serve(SYSTEM, WRITE, session="two")).predicted_tokens >= len(prompt(SYSTEM)) - 8


@pytest.mark.asyncio
async def test_nobody_is_asked_for_tokens_where_they_cannot_matter() -> None:
    async with Table(publishing("a"), publishing("b")) as table:
        await table.ask(SYSTEM, session="nothing is cached anywhere")
        table.told("a", prompt(SYSTEM))
        await table.ask(SYSTEM, session="s", bound="b")
        await table.ask(SYSTEM, pinned="b")
        await table.ask(SYSTEM, exclude=frozenset({"a"}))
        assert table.questions == []
        await table.ask(SYSTEM)
        assert len(table.questions) == 1


@pytest.mark.asyncio
async def test_the_request_counts_from_the_decision_on() -> None:
    async with Table(*(publishing(name) for name in "abcdefgh")) as table:
        for worker in "abcdefgh":
            table.told(worker, prompt(SYSTEM))
        chosen = await asyncio.gather(
            *(table.ask(SYSTEM, says(f"question {number}")) for number in range(50))
        )
        assert max(table.fleet.in_flight.values()) / (50 / 8) < 1.5
        for each in chosen:
            each.flight.end()
        assert table.fleet.in_flight == {}


@pytest.mark.asyncio
async def test_the_router_that_lost_the_race_adopts() -> None:
    async with Table(card_of("a"), card_of("b")) as table:
        mine = await table.ask(session="s")
        other = "b" if mine.worker == "a" else "a"
        assert table.chooser.adopt(mine, mine.worker) is mine
        theirs = table.chooser.adopt(mine, other)
        assert table.fleet.in_flight == {other: 1}
        assert (theirs.worker, theirs.why) == (other, "placed by another router")
        with pytest.raises(CacheError) as caught:
            table.chooser.adopt(theirs, "z")
        assert caught.value.kind is Kind.NO_WORKER
        theirs.flight.end()
        assert table.fleet.in_flight == {}


# conversations without a session


@pytest.mark.asyncio
async def test_a_conversation_stays_without_any_id() -> None:
    async with Table(*(card_of(name) for name in "abcd")) as table:
        messages = [SYSTEM, FIX]
        first = await table.serve(*messages)
        assert first.why == "least load"
        for turn in range(4):
            messages += [says(f"answer {turn}", "assistant"), says(f"go on {turn}")]
            again = await table.serve(*messages)
            assert (again.worker, again.why) == (first.worker, "same conversation")


@pytest.mark.asyncio
async def test_only_what_a_worker_took_is_learned() -> None:
    """A dispatch that failed leaves no trace, so that a retry may go anywhere."""
    async with Table(card_of("a"), card_of("b")) as table:
        failed = await table.ask(SYSTEM, FIX, session="s", family="f")
        failed.flight.end()
        table.fleet.failed(failed.worker)
        other = await table.serve(SYSTEM, FIX, session="s", family="f")
        assert other.worker != failed.worker
        table.roster.hear(card_of("a"), card_of("b"))
        await table.look()
        again = await table.serve(SYSTEM, FIX, session="s", family="f")
        assert (again.worker, again.why) == (other.worker, "same conversation")


@pytest.mark.asyncio
async def test_a_conversation_too_short_to_be_kept_binds_nobody() -> None:
    """The threshold is each worker's chunk, not a number of ours."""
    async with Table(*(card_of(name, grid_tokens=4096) for name in "ab")) as table:
        whys = {(await table.serve(SYSTEM, FIX)).why for _ in range(6)}
        assert whys == {"least load"}
        long = says("words " * 4000)
        workers = {(await table.serve(long, FIX)).worker for _ in range(6)}
        assert len(workers) == 1


@pytest.mark.asyncio
async def test_a_restarted_worker_keeps_no_conversation() -> None:
    async with Table(card_of("a"), card_of("b")) as table:
        first = await table.serve(SYSTEM, FIX)
        table.roster.hear(card_of(first.worker, incarnation="second"))
        await table.look()
        again = await table.serve(SYSTEM, FIX, says("more"))
        assert again.why == "least load"


@pytest.mark.asyncio
async def test_sessions_that_share_a_system_prompt_spread_and_stay() -> None:
    """A thousand agents without ids, one prompt of 8,000 tokens: the shared part is everywhere, the rest stays."""
    system = says("x" * 32_000, "system")
    async with Table(*(card_of(name) for name in "abcdefgh")) as table:
        homes: dict[int, str] = {}
        for session in range(1000):
            chosen = await table.ask(system, says(f"task {session}"))
            table.chooser.learned(chosen)
            homes[session] = chosen.worker
            if session >= 64:
                pass
            chosen.flight.end()
        for session, home in homes.items():
            turn = (system, says(f"task {session}"), says("done", "assistant"), says("go on"))
            again = await table.serve(*turn)
            assert again.worker == home
        counts = [list(homes.values()).count(name) for name in "abcdefgh"]
        assert max(counts) / (1000 / 8) < 1.5


# sessions


@pytest.mark.asyncio
async def test_a_session_is_remembered_where_the_store_is_not_there() -> None:
    async with Table(*(card_of(name) for name in "abcd")) as table:
        first = await table.serve(SYSTEM, FIX, session="s")
        for _ in range(4):
            again = await table.serve(says("nothing alike"), session="s")
            assert (again.worker, again.why) == (first.worker, "same conversation")
        spread = {
            (await table.serve(says("nothing alike"), session="s", tenant=f"t{n}", salt=f"{n}")).worker
            for n in range(4)
        }
        assert len(spread) > 1


@pytest.mark.asyncio
async def test_a_pin_is_for_once_and_not_remembered() -> None:
    async with Table(card_of("a"), card_of("b")) as table:
        assert (await table.serve(session="s", bound="a")).worker == "a"
        pinned = await table.serve(session="s", bound="a", pinned="b")
        assert (pinned.worker, pinned.for_once) == ("b", True)
        assert (await table.serve(session="s")).worker == "a"


@pytest.mark.asyncio
async def test_each_model_of_a_session_has_its_own_worker() -> None:
    cards = [card_of("a", model="large"), *(card_of(name, model="small") for name in "bcd")]
    async with Table(*cards) as table:
        titles = [await table.serve(FIX, session="s", bound="a", body={"model": "small"}) for _ in range(4)]
        assert len({each.worker for each in titles}) == 1
        assert all(each.for_once and each.worker != "a" for each in titles)
        assert not (await table.serve(FIX, session="s", bound="a", body={"model": "large"})).for_once


@pytest.mark.asyncio
async def test_a_session_that_moved_for_load_rests() -> None:
    async with Table(card_of("a"), card_of("b")) as table:
        because = "moved: its worker is overloaded; only worker"
        flights = [table.fleet.begin("a") for _ in range(24)]
        moved = await table.serve(session="s", bound="a")
        assert (moved.worker, moved.why) == ("b", because)
        for flight in flights:
            flight.end()
        for _ in range(24):
            table.fleet.begin("b")
        assert (await table.serve(session="s", bound="b")).worker == "b"
        table.clock.advance(int(MOVE_REST_S * 1e9))
        assert (await table.serve(session="s", bound="b")).worker == "a"


@pytest.mark.asyncio
async def test_the_cold_move_before_the_warm() -> None:
    """Both sessions' worker has a batch waiting; one has its whole prompt there, the other nothing any more."""
    async with Table(publishing("a"), publishing("b")) as table:
        table.told("a", prompt(SYSTEM, FIX))
        for _ in range(16):
            table.fleet.begin("a")
        assert (await table.serve(SYSTEM, FIX, session="warm", bound="a")).worker == "a"
        assert (await table.serve(WRITE, session="cold", bound="a")).worker == "b"


@pytest.mark.asyncio
async def test_a_family_stays_together() -> None:
    """A key for placement only: every sub-agent of Codex sends its root's."""
    async with Table(*(card_of(name) for name in "abcd")) as table:
        root = await table.serve(SYSTEM, FIX, session="root", family="key")
        child = await table.serve(WRITE, session="child", family="key")
        assert (child.worker, child.why) == (root.worker, "near its family")
        near = "b" if root.worker == "a" else "a"
        other = await table.serve(WRITE, session="third", family="key", parent_worker=near)
        assert (other.worker, other.why) == (near, "near parent")


# where nobody can say


@pytest.mark.asyncio
async def test_without_tokens_the_routers_own_decisions_count() -> None:
    async with Table(*(publishing(name) for name in "abcd")) as table:
        table.silent = True
        table.told("a", prompt(WRITE))
        first = await table.serve(SYSTEM, FIX, session="one")
        alike = await table.serve(SYSTEM, WRITE, session="two")
        assert (alike.worker, alike.why) == (first.worker, "longest prefix")
        assert alike.prompt_tokens == 0
        assert alike.predicted_tokens > 0
        assert table.tokenizing.counts.failed == len(table.questions) > 0


@pytest.mark.asyncio
async def test_a_worker_that_publishes_nothing_is_guessed_beside_one_that_does() -> None:
    async with Table(publishing("a"), card_of("b")) as table:
        await table.serve(SYSTEM, FIX, session="one", pinned="b")
        table.told("a", prompt(WRITE))
        learned = await table.ask(SYSTEM, FIX, exclude=frozenset({"a"}))
        table.chooser.learned(learned)
        learned.flight.end()
        alike = await table.serve(SYSTEM, WRITE, session="two")
        assert (alike.worker, alike.why) == ("b", "longest prefix")


@pytest.mark.asyncio
async def test_wrong_tokens_are_the_workers_to_refuse() -> None:
    async with Table(publishing("a"), publishing("b")) as table:
        table.told("a", prompt(SYSTEM))
        asked = Asked("t", SALT, "/v1/completions", Fields({"prompt": [2**31 + 5] * 50}))
        assert (await table.chooser.choose(asked)).why == "least load"


# nobody


@pytest.mark.asyncio
async def test_nobody_alive_is_an_error_and_nothing_is_in_flight() -> None:
    async with Table(card_of("a")) as table:
        table.fleet.failed("a")
        with pytest.raises(CacheError) as caught:
            await table.ask(SYSTEM, session="s", bound="a")
        assert caught.value.kind is Kind.NO_WORKER
        with pytest.raises(CacheError, match="pinned"):
            await table.ask(SYSTEM, pinned="z")
        assert table.fleet.in_flight == {}


# what is told


@pytest.mark.asyncio
async def test_the_mode_is_told() -> None:
    async with Table(card_of("a")) as table:
        assert table.chooser.mode is FeedMode.OWN_DECISIONS
        assert table.chooser.sources.fleet is table.fleet


@pytest.mark.asyncio
async def test_a_model_that_is_no_text_is_none() -> None:
    async with Table(card_of("a")) as table:
        assert (await table.ask(body={"model": 7})).worker == "a"
        assert Asked("t", SALT, CHAT, Fields({})).model == ""


def test_a_model_longer_than_any_is_none_and_nothing_of_it_is_remembered() -> None:
    for length, kept in ((MODEL_CHARS, MODEL_CHARS), (MODEL_CHARS + 1, 0), (10**6, 0)):
        assert len(Asked("t", SALT, CHAT, Fields({"model": "m" * length})).model) == kept

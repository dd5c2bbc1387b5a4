"""A turn from begin to finish: what it matches, leases, publishes and leaves behind."""

from collections.abc import Callable

import numpy as np
import pytest

from agentcache.cache import Prompt
from agentcache.errors import Kind
from agentcache.keys import Namespace
from agentcache.types import (
    FULL,
    MAMBA,
    NO_SLOTS,
    SWA,
    ComponentName,
    MissReason,
    Piece,
    Tokens,
)
from tests.unit.cache.world import HOME, World, refused, text

# begin


def test_begin_of_the_unknown_reuses_nothing(world: World) -> None:
    turn = world.begin(text(1, 20))
    assert (turn.boundary_tokens, turn.cached_tokens, turn.full_tokens) == (0, 0, 0)
    assert turn.miss is not None
    assert turn.miss.reason is MissReason.NOT_CACHED
    world.finish(turn)


def test_begin_reuses_whole_chunks_and_names_their_slots(world: World) -> None:
    world.turn(text(1, 21))
    turn = world.begin(text(1, 30))
    assert (turn.cached_tokens, turn.boundary_tokens) == (16, 16)
    sizes = {piece.component: (piece.start, piece.end, piece.slots.size) for piece in turn.locked.pieces}
    assert sizes == {FULL: (0, 16, 4), SWA: (8, 16, 2), MAMBA: (16, 16, 1)}
    world.finish(turn)


def test_begin_leaves_one_token_to_compute(world: World) -> None:
    world.turn(text(1, 16))
    assert world.turn(text(1, 16)) == 0
    assert world.turn(text(1, 17)) == 16


def test_begin_with_another_namespace_reuses_nothing(world: World) -> None:
    world.turn(text(1, 24))
    turn = world.cache.begin(world.enter(), Prompt(text(1, 24), Namespace(model="m", tenant_salt="x"), 23))
    assert turn.cached_tokens == 0
    world.finish(turn)


@pytest.mark.parametrize("limit", [-5, 0, 7])
def test_begin_with_a_limit_before_the_first_boundary(world: World, limit: int) -> None:
    world.turn(text(1, 24))
    turn = world.cache.begin(world.enter(), Prompt(text(1, 24), HOME, limit))
    assert turn.boundary_tokens == 0
    world.finish(turn)


def test_begin_with_bad_tokens_leaves_the_ticket_queued(world: World) -> None:
    ticket = world.enter("s")
    with refused(Kind.BAD_REQUEST):
        world.cache.begin(ticket, Prompt(np.array([-1], dtype=np.int32), HOME, 0))
    assert world.core.stats().leases == 0
    assert world.cache.session("s").queued == 1
    world.cache.leave(ticket)
    assert world.cache.session("s").queued == 0


def test_ticket_is_used_once(world: World) -> None:
    ticket = world.enter("s")
    turn = world.cache.begin(ticket, Prompt(text(1, 9), HOME, 8))
    for again in (
        lambda: world.cache.begin(ticket, Prompt(text(1, 9), HOME, 8)),
        lambda: world.cache.leave(ticket),
    ):
        with refused(Kind.LEASE_REUSED):
            again()
    assert world.core.stats().leases == 1
    world.finish(turn)


def test_peek_says_what_begin_would_reuse_and_leaves_no_trace(world: World) -> None:
    world.turn(text(1, 24))
    before = world.core.snapshot(), world.cache.stats()
    asked = [Prompt(text(1, 30), HOME, limit) for limit in (29, 23, 7)]
    assert [world.cache.peek(prompt) for prompt in asked] == [24, 0, 0]
    assert world.cache.peek(Prompt(text(1, 30), HOME, 29, reuse=False)) == 0
    assert (world.core.snapshot(), world.cache.stats()) == before


# reserve and return


def test_reserve_leases_all_or_nothing(world: World) -> None:
    turn = world.begin(text(1))
    assert world.cache.reserve(turn, {FULL: 30, SWA: 17}) is None
    assert world.used() == {FULL: 0, SWA: 0, MAMBA: 0}
    leased = world.cache.reserve(turn, {FULL: 30, SWA: 16, MAMBA: 0})
    assert leased is not None
    assert {name: slots.size for name, slots in leased.items()} == {FULL: 30, SWA: 16, MAMBA: 0}
    world.cache.check()
    world.finish(turn)
    assert world.used() == {FULL: 0, SWA: 0, MAMBA: 0}


def test_reserve_evicts_what_is_short_and_no_locked_page(world: World) -> None:
    world.turn(text(1, 64))  # 16 pages
    world.turn(text(2, 64))
    holder = world.begin(text(2))
    asker = world.begin(text(3))
    leased = world.cache.reserve(asker, {FULL: 16})
    assert leased is not None
    world.cache.check()
    assert world.cache.reserve(asker, {FULL: 1}) is None
    assert holder.cached_tokens == 64
    world.finish(asker)
    world.finish(holder)
    assert (world.hit(text(1, 64)), world.hit(text(2, 64))) == (0, 64)


@pytest.mark.parametrize("other", ["locks", "published", "leases"])
def test_reserve_that_cannot_be_met_evicts_nothing(world: World, other: str) -> None:
    """All or nothing holds for the cached data of others too: FULL could be met, SWA could not."""
    world.turn(text(2, 64))
    if other == "locks":
        world.turn(text(1, 64))
    holder = world.begin(text(1))
    if other == "published":
        world.compute(holder, text(1, 64))
    if other == "leases":
        world.cache.reserve(holder, {FULL: 16, SWA: 2})
    asker = world.begin(text(3))
    assert world.cache.reserve(asker, {FULL: 4, SWA: 15}) is None
    world.finish(holder)
    world.finish(asker)
    assert world.hit(text(2, 64)) == 64
    assert world.cache.stats().turns.evicted_slots == {}


def test_reserve_of_an_unknown_component_is_refused(world: World) -> None:
    turn = world.begin(text(1))
    with refused(Kind.UNKNOWN_COMPONENT):
        world.cache.reserve(turn, {FULL: 1, ComponentName("SWA2"): 1})
    with refused(Kind.SLOT_MISUSE):
        world.cache.reserve(turn, {FULL: 1, SWA: -1})
    with refused(Kind.UNKNOWN_COMPONENT):
        world.cache.return_slots(turn, ComponentName("SWA2"), NO_SLOTS)
    assert world.used() == {FULL: 0, SWA: 0, MAMBA: 0}
    world.finish(turn)


def test_return_takes_only_the_turns_own_slots(world: World) -> None:
    mine, other = world.begin(text(1)), world.begin(text(2))
    leased, others = world.reserve(mine, 16), world.reserve(other, 16)
    assert leased is not None
    assert others is not None
    twice = np.concatenate([leased[FULL][:1], leased[FULL][:1]])
    for slots in (others[FULL], twice, np.array([31], dtype=np.int32)):
        with refused(Kind.SLOT_MISUSE):
            world.cache.return_slots(mine, FULL, slots)
    world.cache.return_slots(mine, FULL, leased[FULL][1:])
    world.cache.check()
    with refused(Kind.SLOT_MISUSE):
        world.cache.return_slots(mine, FULL, leased[FULL][1:])
    assert world.used()[FULL] == 5
    world.finish(mine)
    world.finish(other)


# publish


def test_publish_moves_the_lock_forward(world: World) -> None:
    turn = world.begin(text(1, 30))
    world.compute(turn, text(1, 16))
    assert (turn.boundary_tokens, turn.cached_tokens) == (16, 0)
    world.compute(turn, text(1, 24))
    assert turn.boundary_tokens == 24
    assert world.cache.reserve(turn, {SWA: 14}) is not None, (
        "only the last window is locked: two of four pages"
    )
    world.cache.check()
    world.finish(turn)


def test_publish_keeps_what_is_useless_yet_and_takes_it_later(world: World) -> None:
    turn, tokens = world.begin(text(1)), text(1)
    leased = world.cache.reserve(turn, {FULL: 4, SWA: 2, MAMBA: 1})
    assert leased is not None
    half = world.cache.publish(turn, tokens[:8], leased[FULL][:2], ())  # no window, no state: nothing votes
    world.cache.check()
    assert (half.frontier.length, turn.boundary_tokens) == (0, 0)
    assert {piece.component for piece in half.kept} == {FULL}
    world.publish(turn, tokens[:16], leased)
    assert turn.boundary_tokens == 16
    world.finish(turn)
    assert world.used() == {FULL: 4, SWA: 2, MAMBA: 1}


def test_publish_of_what_is_there_already_frees_the_doubles(world: World) -> None:
    first, second = world.begin(text(1)), world.begin(text(1))
    world.compute(first, text(1, 24))
    world.compute(second, text(1, 24))
    assert second.boundary_tokens == 24
    assert world.used() == {FULL: 6, SWA: 2, MAMBA: 1}
    world.finish(first)
    world.finish(second)


def test_publish_of_foreign_or_free_slots_is_refused(world: World) -> None:
    mine, other = world.begin(text(1)), world.begin(text(2))
    leased, others = world.reserve(mine, 8), world.reserve(other, 8)
    assert leased is not None
    assert others is not None
    free = np.array([30, 31], dtype=np.int32)
    for full in (others[FULL], free, np.repeat(leased[FULL][:1], 2)):
        with refused(Kind.SLOT_MISUSE):
            world.cache.publish(mine, text(1, 8), full, ())
    with refused(Kind.SLOT_MISUSE):
        world.cache.publish(mine, text(1, 8), leased[FULL], (Piece(SWA, 0, 8, others[SWA]),))
    world.cache.check()
    world.publish(mine, text(1, 8), leased)
    with refused(Kind.SLOT_MISUSE):
        world.cache.publish(mine, text(1, 16), leased[FULL], ())
    world.finish(mine)
    world.finish(other)


@pytest.mark.parametrize(
    ("kind", "tokens", "pages"),
    [
        (Kind.UNALIGNED, text(1, 18), 1),
        (Kind.BAD_INSERT, text(1, 24), 1),
        (Kind.BAD_INSERT, text(1, 8), 0),
        (Kind.BAD_INSERT, np.append(text(2, 16), text(1, 20)[16:]), 1),
    ],
    ids=["tail", "too few slots", "shorter than the lock", "another path"],
)
def test_publish_refused_leaves_all_as_it_was(world: World, kind: Kind, tokens: Tokens, pages: int) -> None:
    turn = world.begin(text(1))
    world.compute(turn, text(1, 16))
    leased = world.cache.reserve(turn, {FULL: pages})
    assert leased is not None
    before = world.core.snapshot()
    with refused(kind):
        world.cache.publish(turn, tokens, leased[FULL], ())
    assert world.core.snapshot() == before
    world.cache.check()
    world.finish(turn)
    assert world.hit(text(1, 16)) == 16


# finish


@pytest.mark.parametrize("step", ["begun", "reserved", "published", "half published"])
def test_finish_at_any_point_leaves_only_what_votes(world: World, step: str) -> None:
    turn = world.begin(text(1), "s")
    if step == "reserved":
        world.reserve(turn, 24)
    if step == "published":
        world.compute(turn, text(1, 24))
    if step == "half published":
        leased = world.cache.reserve(turn, {FULL: 6, SWA: 2, MAMBA: 1})
        assert leased is not None
        world.cache.publish(turn, text(1, 24), leased[FULL], (Piece(SWA, 16, 24, leased[SWA]),))
    world.finish(turn)
    stats = world.cache.stats()
    assert stats.active_turns == 0
    assert sum(use.leased + use.in_flight for use in stats.pools) == 0
    published = step == "published"
    assert world.used() == ({FULL: 6, SWA: 2, MAMBA: 1} if published else {FULL: 0, SWA: 0, MAMBA: 0})
    assert stats.open_references == published


def test_finished_turn_is_refused_everywhere(world: World) -> None:
    turn = world.begin(text(1))
    world.finish(turn)
    calls: list[Callable[[], object]] = [
        lambda: world.cache.finish(turn, 0),
        lambda: world.cache.reserve(turn, {FULL: 1}),
        lambda: world.cache.return_slots(turn, FULL, NO_SLOTS),
        lambda: world.cache.publish(turn, text(1, 8), NO_SLOTS, ()),
    ]
    for call in calls:
        with refused(Kind.LEASE_REUSED):
            call()
    world.cache.check()


def test_finish_marks_frontier_and_last_user_message(world: World) -> None:
    turn = world.begin(text(1, 45), "s")
    for end in (8, 16, 24, 32, 40):
        world.compute(turn, text(1, end))
    world.finish(turn, user_end=30)
    assert world.frontiers("s") == [(40, 24)]


def test_finish_marks_generated_pages_too(world: World) -> None:
    turn = world.begin(text(1, 20), "s")
    world.compute(turn, text(1, 32))  # twelve tokens more than the prompt had
    world.finish(turn, user_end=20)
    assert world.frontiers("s") == [(32, 0)]


def test_finish_finds_its_frontier_after_evictions_elsewhere(world: World) -> None:
    """Boundaries taken before an eviction are stale; the marker is voted anew."""
    world.turn(text(2, 64))
    turn = world.begin(text(1, 40), "s")
    world.compute(turn, text(1, 32))
    other = world.begin(text(3))
    assert world.cache.reserve(other, {FULL: 20}) is not None
    world.finish(other)
    world.finish(turn)
    assert world.frontiers("s") == [(32, 32)]


def test_finish_of_a_prompt_under_a_page_references_nothing(world: World) -> None:
    """R049: a cacheable length of 0 leaves no reference on the root."""
    world.turn(text(1, 3), "s")
    assert world.cache.stats().open_references == 0
    assert world.cache.session("s").held == ()


# cold turns


def test_cold_turn_neither_reads_nor_writes(world: World) -> None:
    world.turn(text(1, 24), "s")
    before = world.core.snapshot().pages
    turn = world.begin(text(1, 40), "s", reuse=False)
    assert (turn.cached_tokens, turn.miss, turn.locked.pieces[0].slots.size) == (0, None, 0)
    leased = world.cache.reserve(turn, {FULL: 10, SWA: 2, MAMBA: 1})
    assert leased is not None
    assert [slots.size for slots in leased.values()] == [0, 0, 0]
    state = Piece(MAMBA, 8, 8, NO_SLOTS)
    answer = world.cache.publish(turn, text(1, 8), NO_SLOTS, (state,))
    assert [piece.component for piece in answer.kept] == [FULL, MAMBA]
    assert answer.taken == ()
    assert world.cache.session("s").running == 1
    world.finish(turn)
    assert world.core.snapshot().pages == before
    assert world.frontiers("s") == [(24, 24)]
    counts = world.cache.stats().turns
    assert (counts.turns, counts.cold_turns) == (1, 1)


def test_cold_turn_of_a_new_generation_registers_nothing(world: World) -> None:
    world.turn(text(1, 24), "s")
    world.cache.open_session("s", fence=True)
    world.finish(world.begin(text(2, 24), "s", reuse=False))
    assert world.frontiers("s") == [(24, 24)]

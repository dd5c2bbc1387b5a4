"""The arithmetic of publishing: which boundaries, and what each needs."""

import pytest

from agentcache.engine.publish import PublishPolicy, Shortage
from agentcache.types import FULL, MAMBA, SWA, ComponentName, Piece, full_spec, mamba_spec, swa_spec

ALL = (full_spec(), swa_spec(31), mamba_spec(16))


def policy(every_chunks: int = 4) -> PublishPolicy:
    return PublishPolicy(page_tokens=4, grid_tokens=16, specs=ALL, every_chunks=every_chunks)


def test_boundaries_are_the_last_chunk_the_users_end_and_every_kth_chunk() -> None:
    assert policy().full(0, prompt_tokens=210, user_end_tokens=101) == (64, 96, 128, 192, 208)


def test_a_boundary_is_added_where_the_prompt_leaves_what_was_known() -> None:
    assert policy().full(0, 100, 0, 45) == (32, 64, 96)
    assert policy().full(32, 100, 0, 45) == (64, 96)
    assert policy().full(0, 48, 0, 60) == (32, 48)
    roomy = {FULL: 60, SWA: 60, MAMBA: 9}
    assert policy().reservation(0, 100, 0, roomy, 45)[0] == (32, 64, 96)


def test_a_boundary_is_added_below_each_part_that_a_client_marked() -> None:
    assert policy().full(0, 210, 0, 0, 37, 90, 15) == (32, 64, 80, 128, 192, 208)
    assert policy().full(64, 210, 0, 0, 37, 90) == (80, 128, 192, 208)


def test_boundaries_beyond_what_is_restored_only() -> None:
    assert policy().full(128, prompt_tokens=210, user_end_tokens=101) == (192, 208)


def test_prompt_of_whole_chunks_keeps_the_boundary_that_a_resend_can_use() -> None:
    assert policy().full(0, prompt_tokens=48, user_end_tokens=0) == (32, 48)
    assert policy().essential(0, 48) == (32, 48)
    assert policy().essential(0, 49) == (48,)


@pytest.mark.parametrize("prompt", [1, 15, 16])
def test_prompt_without_a_chunk_before_its_last_token(prompt: int) -> None:
    assert policy().essential(0, prompt) == ((16,) if prompt == 16 else ())


def test_users_end_beyond_the_prompt_counts_as_its_end() -> None:
    assert policy(100).full(0, prompt_tokens=40, user_end_tokens=40) == (32,)


def test_pieces_of_a_first_boundary_are_path_window_and_state() -> None:
    assert policy().pieces(0, 64) == (Piece(FULL, 0, 64), Piece(SWA, 32, 64), Piece(MAMBA, 64, 64))


def test_window_pieces_leave_out_what_the_locked_boundary_has() -> None:
    assert policy().pieces(48, 64) == (Piece(FULL, 48, 64), Piece(SWA, 48, 64), Piece(MAMBA, 64, 64))


def test_need_adds_up_over_the_boundaries() -> None:
    assert policy().need(0, (64, 96)) == {FULL: 24, SWA: 16, MAMBA: 2}
    assert policy().need(0, (64, 80)) == {FULL: 20, SWA: 12, MAMBA: 2}
    assert policy().need(0, ()) == {FULL: 0, SWA: 0, MAMBA: 0}


def test_reservation_takes_the_whole_plan_where_it_fits() -> None:
    boundaries, need = policy().reservation(0, 210, 101, {FULL: 60, SWA: 60, MAMBA: 9})
    assert boundaries == (64, 96, 128, 192, 208)
    assert need == policy().need(0, boundaries)


def test_reservation_shrinks_to_what_the_pools_can_ever_hold() -> None:
    assert policy().reservation(0, 192, 101, {FULL: 60, SWA: 60, MAMBA: 2})[0] == (176, 192)
    assert policy().reservation(0, 192, 101, {FULL: 60, SWA: 60, MAMBA: 1})[0] == (192,)


def test_reservation_counts_what_the_turn_itself_has_locked() -> None:
    roomy, tight = {FULL: 52, SWA: 60, MAMBA: 6}, {FULL: 52, SWA: 60, MAMBA: 2}
    assert policy().reservation(64, 210, 101, roomy)[0] == (96, 128, 192, 208)
    assert policy().reservation(64, 210, 101, tight)[0] == (208,)


@pytest.mark.parametrize(
    ("sizes", "short"),
    [
        ({FULL: 52, SWA: 16, MAMBA: 2}, None),
        ({FULL: 51, SWA: 16, MAMBA: 2}, Shortage(FULL, "full_slots", 51, 52)),
        ({FULL: 52, SWA: 15, MAMBA: 2}, Shortage(SWA, "swa_slots", 15, 16)),
        ({FULL: 52, SWA: 16, MAMBA: 1}, Shortage(MAMBA, "mamba_slots", 1, 2)),
    ],
)
def test_over_pool_names_the_pool_that_can_never_hold_the_prompt(
    sizes: dict[ComponentName, int], short: Shortage | None
) -> None:
    assert policy().over_pool(211, sizes) == short


def test_a_prompt_without_a_boundary_needs_no_pool() -> None:
    assert policy().over_pool(15, {FULL: 1, SWA: 1, MAMBA: 1}) is None

"""Keys and values appended in place: what a query sees, what stays readable, and what moves."""

import pytest
import torch

from agentcache.engine.slab import KvSlab

HEADS, DIM = 2, 3


def tokens(start: int, end: int, rows: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys that carry their position (and row) as their value; values are their negatives."""
    positions = torch.arange(start, end, dtype=torch.float32)
    keys = positions[None, None, :, None] + 1000.0 * torch.arange(rows)[:, None, None, None]
    keys = keys.expand(rows, HEADS, end - start, DIM).contiguous()
    return keys, -keys


def positions_of(keys: torch.Tensor) -> list[int]:
    return [int(value) for value in keys[..., 0, :, 0].flatten()]


@pytest.mark.parametrize("steps", [[5, 1, 1, 1], [1] * 300, [64, 64, 3, 200]])
def test_a_full_layer_sees_everything(steps: list[int]) -> None:
    slab, length = KvSlab(), 0
    for count in steps:
        keys, values = slab.append(*tokens(length, length + count))
        length += count
        assert positions_of(keys) == list(range(length))
        assert torch.equal(values, -keys)


@pytest.mark.parametrize("steps", [[5, 1, 1, 1], [1] * 300, [64, 64, 3, 200]])
def test_a_window_sees_its_reach_and_keeps_more(steps: list[int]) -> None:
    reach, keep = 7, 19
    slab, length = KvSlab(reach, keep), 0
    for count in steps:
        keys, values = slab.append(*tokens(length, length + count))
        seen = max(0, length - reach)
        length += count
        assert positions_of(keys) == list(range(seen, length))
        assert torch.equal(values, -keys)
        held = max(0, length - keep)
        assert slab.start <= held
        read, _ = slab.read(0, held, length)
        assert positions_of(read[None]) == list(range(held, length))


def test_a_window_does_not_grow_with_the_text() -> None:
    slab = KvSlab(reach=7, keep=19)
    for position in range(3000):
        slab.append(*tokens(position, position + 1))
    assert slab.keys.shape[2] < 200


def test_a_layer_may_begin_later() -> None:
    slab = KvSlab(reach=7, keep=19)
    slab.start = slab.end = 32
    keys, _ = slab.append(*tokens(32, 40))
    assert positions_of(keys) == list(range(32, 40))
    assert (slab.start, slab.end) == (32, 40)


def test_rows_are_appended_together_and_read_apart() -> None:
    slab = KvSlab()
    slab.append(*tokens(0, 4, rows=3))
    slab.append(*tokens(4, 5, rows=3))
    assert positions_of(slab.read(2, 1, 5)[0][None]) == [2001, 2002, 2003, 2004]


def test_a_placed_row_is_right_aligned_over_zeros() -> None:
    slab = KvSlab()
    slab.open(2, 6, tuple(tensor[0] for tensor in tokens(0, 0)))  # type: ignore[arg-type]
    slab.keys.fill_(float("nan"))
    slab.place(1, *(tensor[0] for tensor in tokens(1, 5)))
    assert positions_of(slab.read(1, 0, 6)[0][None]) == [0, 0, 1, 2, 3, 4]
    assert not slab.keys[1].isnan().any()


def test_a_moved_row_takes_the_place_of_another() -> None:
    slab = KvSlab()
    slab.append(*tokens(0, 3, rows=2))
    slab.move_row(1, 0)
    assert positions_of(slab.read(0, 0, 3)[0][None]) == [1000, 1001, 1002]

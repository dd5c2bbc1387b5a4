"""Bytes by slot: what goes in comes out, as copies, and nothing else changes."""

import numpy as np
import pytest
import torch

from agentcache.errors import CacheError, Kind
from agentcache.pools.buffers import KvLayout, PageBuffers, StateBuffers, TensorLayout

PAGE, SLOTS = 4, 6
WIDE = KvLayout(TensorLayout((2, 8), torch.float32), TensorLayout((2, 8), torch.float32))
LATENT = KvLayout(TensorLayout((1, 6), torch.bfloat16), TensorLayout((1, 3), torch.float32))
CPU = torch.device("cpu")


def pages() -> PageBuffers:
    return PageBuffers(SLOTS, PAGE, [WIDE, LATENT], CPU)


def tokens_of(layout: KvLayout, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    dice = torch.Generator().manual_seed(seed)
    return (
        torch.randn(layout.keys.shape[0], count, layout.keys.shape[1], generator=dice).to(layout.keys.dtype),
        torch.randn(layout.values.shape[0], count, layout.values.shape[1], generator=dice).to(
            layout.values.dtype
        ),
    )


@pytest.mark.parametrize("count", [1 << 50, 1 << 62], ids=["over the memory", "over the arithmetic"])
def test_a_pool_that_the_device_has_no_room_for_is_one_clear_error(count: int) -> None:
    with pytest.raises(CacheError, match=r"slots needs .* GiB .*; lower full_slots") as refused:
        PageBuffers(count, PAGE, [WIDE], CPU)
    assert refused.value.kind is Kind.BAD_CONFIG


def slots(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int32)


@pytest.mark.parametrize(("layer", "layout"), [(0, WIDE), (1, LATENT)])
def test_pages_come_back_in_the_order_of_the_slots(layer: int, layout: KvLayout) -> None:
    buffers = pages()
    keys, values = tokens_of(layout, 3 * PAGE, seed=1)
    buffers.write(layer, slots(4, 0, 5), keys, values)
    read_keys, read_values = buffers.read(layer, slots(4, 0, 5))
    assert torch.equal(read_keys, keys)
    assert torch.equal(read_values, values)
    swapped, _ = buffers.read(layer, slots(5, 4))
    assert torch.equal(swapped, torch.cat([keys[:, 2 * PAGE :], keys[:, :PAGE]], dim=1))


def test_a_slot_that_nobody_wrote_is_nan() -> None:
    buffers = pages()
    buffers.write(0, slots(1), *tokens_of(WIDE, PAGE, seed=1))
    for layer in (0, 1):
        keys, values = buffers.read(layer, slots(2))
        assert keys.isnan().all()
        assert values.isnan().all()
    assert not buffers.read(0, slots(1))[0].isnan().any()
    assert buffers.read(1, slots(1))[0].isnan().all()


def test_reading_copies() -> None:
    buffers = pages()
    buffers.write(0, slots(3), *tokens_of(WIDE, PAGE, seed=1))
    before, _ = buffers.read(0, slots(3))
    buffers.read(0, slots(3))[0].zero_()
    assert torch.equal(buffers.read(0, slots(3))[0], before)


def test_writing_copies() -> None:
    buffers = pages()
    keys, values = tokens_of(WIDE, PAGE, seed=1)
    kept = keys.clone()
    buffers.write(0, slots(3), keys, values)
    keys.zero_()
    assert torch.equal(buffers.read(0, slots(3))[0], kept)


def test_no_slots_read_as_no_tokens() -> None:
    keys, values = pages().read(1, slots())
    assert keys.shape == (1, 0, 6)
    assert values.shape == (1, 0, 3)


def test_a_slot_counts_every_layer_with_its_own_widths_and_types() -> None:
    assert pages().slot_bytes == PAGE * (2 * 8 * 4 * 2 + 6 * 2 + 3 * 4)
    assert PageBuffers(SLOTS, PAGE, [], CPU).slot_bytes == 0


def test_a_state_is_all_of_its_tensors() -> None:
    layouts = [TensorLayout((3, 4), torch.bfloat16), TensorLayout((2, 2, 2), torch.float32)]
    buffers = StateBuffers(SLOTS, layouts, CPU)
    assert buffers.slot_bytes == 3 * 4 * 2 + 8 * 4
    state = [torch.ones(3, 4, dtype=torch.bfloat16), torch.full((2, 2, 2), 7.0)]
    buffers.write(2, state)
    assert all(torch.equal(read, wrote) for read, wrote in zip(buffers.read(2), state, strict=True))
    assert all(tensor.isnan().all() for tensor in buffers.read(1))


def test_a_state_is_copied_in_and_out() -> None:
    buffers = StateBuffers(SLOTS, [TensorLayout((2,), torch.float32)], CPU)
    state = torch.tensor([1.0, 2.0])
    buffers.write(0, [state])
    state.zero_()
    buffers.read(0)[0].zero_()
    assert buffers.read(0)[0].tolist() == [1.0, 2.0]


def test_a_state_with_a_tensor_missing_is_refused() -> None:
    buffers = StateBuffers(SLOTS, [TensorLayout((2,), torch.float32)] * 2, CPU)
    with pytest.raises(ValueError, match="shorter"):
        buffers.write(0, [torch.zeros(2)])

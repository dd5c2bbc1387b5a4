"""The tensors of a pool as bytes by slot: what travels is bits, whatever the type, the order and the runs of slots."""

from itertools import permutations

import numpy as np
import pytest
import torch

from agentcache.errors import CacheError, Kind
from agentcache.pools.buffers import KvLayout, PageBuffers, SlotTensors, StateBuffers, TensorLayout
from agentcache.tiers.api import SlotBytes
from tests.builders import slots_of

CPU = torch.device("cpu")
PAGE, SLOTS = 4, 6
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int8)


def pool(dtype: torch.dtype = torch.float32, slots: int = SLOTS) -> SlotTensors:
    """Two layers of pages whose keys and values differ in width."""
    layer = KvLayout(TensorLayout((2, 8), dtype), TensorLayout((2, 3), dtype))
    return PageBuffers(slots, PAGE, [layer, layer], CPU).slot_tensors()


def filled(tensors: SlotTensors, seed: int = 1) -> list[bytes]:
    """Write random bytes (NaN of every kind among them) into every slot; answers them by slot."""
    dice = np.random.default_rng(seed)
    payloads = [dice.bytes(tensors.slot_bytes) for _ in range(tensors.slots)]
    for slot, payload in enumerate(payloads):
        tensors.write(slot, payload)
    return payloads


def copied(source: SlotTensors, slots: list[int], target: SlotTensors, target_slots: list[int]) -> None:
    for part in range(source.parts):
        source.copy_part(part, slots_of(slots), target, slots_of(target_slots))


def test_it_keeps_the_contract_of_slot_bytes() -> None:
    kept: SlotBytes = pool()
    assert (kept.parts, kept.slot_bytes) == (4, 2 * PAGE * (16 + 6) * 4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_written_is_read(dtype: torch.dtype) -> None:
    tensors = pool(dtype)
    payloads = filled(tensors)
    assert [tensors.read(slot) for slot in range(SLOTS)] == payloads
    tensors.write(2, memoryview(payloads[4]))
    assert tensors.read(2) == payloads[4]
    assert tensors.read(3) == payloads[3]


def test_a_payload_is_keys_then_values_of_each_layer() -> None:
    layer = KvLayout(TensorLayout((1, 2), torch.bfloat16), TensorLayout((1, 1), torch.float32))
    buffers = PageBuffers(3, 1, [layer, layer], CPU)
    for number in range(2):
        keys = torch.tensor([[[1.0, 2.0]]], dtype=torch.bfloat16) + 10 * number
        buffers.write(number, slots_of([1]), keys, torch.tensor([[[3.0]]]) + 10 * number)
    parts = [
        torch.tensor(values, dtype=dtype).view(torch.uint8).numpy().tobytes()
        for values, dtype in (
            ([1.0, 2.0], torch.bfloat16),
            ([3.0], torch.float32),
            ([11.0, 12.0], torch.bfloat16),
            ([13.0], torch.float32),
        )
    ]
    assert buffers.slot_tensors().read(1) == b"".join(parts)


def test_states_are_parts_in_order() -> None:
    buffers = StateBuffers(3, [TensorLayout((2,), torch.float32), TensorLayout((), torch.bfloat16)], CPU)
    buffers.write(1, [torch.tensor([1.0, 2.0]), torch.tensor(3.0, dtype=torch.bfloat16)])
    tensors = buffers.slot_tensors()
    assert tensors.layout == "state.0:float32[2] state.1:bfloat16[]"
    assert tensors.read(1)[:8] == torch.tensor([1.0, 2.0]).numpy().tobytes()
    copied(tensors, [1], tensors, [0])
    assert [part.tolist() for part in buffers.read(0)] == [[1.0, 2.0], 3.0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies_are_equal_bit_by_bit(dtype: torch.dtype) -> None:
    source = pool(dtype)
    target, payloads = source.twin(SLOTS, pinned=False), filled(source)
    copied(source, [0, 1, 2, 5], target, [3, 4, 0, 1])
    assert [target.read(slot) for slot in (3, 4, 0, 1)] == [payloads[slot] for slot in (0, 1, 2, 5)]
    assert target.read(2) == target.read(5) == b"\xff" * target.slot_bytes
    assert [source.read(slot) for slot in range(SLOTS)] == payloads


def test_copies_follow_every_permutation_of_slots() -> None:
    source = pool(torch.bfloat16, 4)
    payloads = filled(source)
    for order in permutations(range(4)):
        for target_order in permutations(range(4)):
            target = source.twin(4, pinned=False)
            copied(source, list(order), target, list(target_order))
            assert [target.read(slot) for slot in target_order] == [payloads[slot] for slot in order]


def test_no_slots_are_no_copy() -> None:
    source = pool()
    copied(source, [], source, [])


def test_one_part_alone_is_copied() -> None:
    source = pool()
    filled(source)
    target = source.twin(2, pinned=False)
    source.copy_part(1, slots_of([3]), target, slots_of([0]))
    came, sent = (
        pool.tensor("values.0")[slot].view(torch.uint8) for pool, slot in ((target, 0), (source, 3))
    )
    assert torch.equal(came, sent)
    assert all(target.tensor(name).isnan().all() for name in ("keys.0", "keys.1", "values.1"))


def test_pools_of_another_layout_are_refused() -> None:
    for other in (pool(torch.bfloat16), object()):
        with pytest.raises(CacheError, match="only pools of one layout") as refused:
            pool(torch.float16).copy_part(0, slots_of([0]), other, slots_of([0]))
        assert refused.value.kind is Kind.BAD_CONFIG


def test_a_layout_names_types_and_shapes_but_no_size() -> None:
    assert pool().layout == (
        "keys.0:float32[4,2,8] values.0:float32[4,2,3] keys.1:float32[4,2,8] values.1:float32[4,2,3]"
    )
    assert pool(slots=3).layout == pool().layout == pool().twin(9, pinned=False).layout
    assert pool(torch.bfloat16).layout != pool(torch.float16).layout


def test_a_twin_has_its_own_size_and_is_nan() -> None:
    twin = pool(torch.float16).twin(9, pinned=False)
    assert twin.slots == 9
    assert all(twin.tensor(name).isnan().all() for name in twin.names)
    assert twin.tensor("keys.1").shape == (9, PAGE, 2, 8)
    assert twin.device == CPU


def test_a_twin_beyond_the_memory_says_what_to_lower() -> None:
    with pytest.raises(
        CacheError, match=r"1,099,511,627,776 host slots .* need .* GiB.*lower host_mib"
    ) as refused:
        pool().twin(1 << 40, pinned=False)
    assert refused.value.kind is Kind.BAD_CONFIG


@pytest.mark.parametrize("bad", [RuntimeError("out of memory"), AssertionError("no CUDA")])
def test_a_twin_that_cannot_be_had_says_so(monkeypatch: pytest.MonkeyPatch, bad: Exception) -> None:
    def refuse() -> None:
        raise bad

    monkeypatch.setattr(torch.cuda, "cudart", refuse)
    with pytest.raises(CacheError, match=rf"cannot be had: {bad}; lower host_mib"):
        pool().twin(2, pinned=True)


def test_pinned_memory_is_registered_for_as_long_as_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole pages of the system, which no other memory shares."""
    calls = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: calls)
    monkeypatch.setattr(torch.cuda, "check_error", lambda _code: None)
    twin = pool().twin(3, pinned=True)
    assert [address for address, _ in calls.registered] == [
        twin.tensor(name).data_ptr() for name in twin.names
    ]
    assert all(address % 4096 == size % 4096 == 0 for address, size in calls.registered)
    assert calls.unregistered == []
    del twin
    assert calls.unregistered == [address for address, _ in calls.registered]


class Runtime:
    """What `torch.cuda.cudart()` answers, as far as it is used."""

    def __init__(self) -> None:
        self.registered: list[tuple[int, int]] = []
        self.unregistered: list[int] = []

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        self.registered.append((address, size))
        return 0

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        self.unregistered.append(address)
        return 0


def test_a_pool_without_tensors_has_no_bytes() -> None:
    empty = PageBuffers(SLOTS, PAGE, [], CPU).slot_tensors()
    empty.write(0, b"")
    twin = empty.twin(3, pinned=False)
    assert (empty.layout, empty.parts, empty.slot_bytes, empty.read(0), twin.parts) == ("", 0, 0, b"", 0)

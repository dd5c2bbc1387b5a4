"""Sidecars: further parts of their source pool's slots, and nothing else."""

import pytest
import torch

from agentcache.errors import CacheError, Kind
from agentcache.pools.buffers import KvLayout, PageBuffers, TensorLayout
from agentcache.pools.sidecars import SidecarPool, followers, with_sidecars
from agentcache.types import FULL, MAMBA, SWA
from tests.builders import slots_of

CPU = torch.device("cpu")
PAIR = KvLayout(TensorLayout((1, 2), torch.float32), TensorLayout((1, 2), torch.float32))
INDEXER = SidecarPool("indexer", FULL, (TensorLayout((3,), torch.bfloat16), TensorLayout((), torch.float32)))
SCALES = SidecarPool("scales", FULL, (TensorLayout((4,), torch.uint8),))


def pages(slots: int = 5) -> PageBuffers:
    return PageBuffers(slots, 2, [PAIR], CPU)


def test_their_tensors_are_the_last_parts() -> None:
    source = pages()
    pool = with_sidecars(source.slot_tensors(), 5, [INDEXER, SCALES])
    assert pool.names == ("keys.0", "values.0", "indexer.0", "indexer.1", "scales.0")
    assert pool.layout.endswith("indexer.0:bfloat16[3] indexer.1:float32[] scales.0:uint8[4]")
    assert pool.slot_bytes == source.slot_bytes + INDEXER.slot_bytes + SCALES.slot_bytes
    assert pool.tensor("keys.0") is source.keys[0]
    assert pool.tensor("indexer.0").isnan().all()


def test_they_are_in_the_payload_and_in_the_twin() -> None:
    pool = with_sidecars(pages().slot_tensors(), 5, [INDEXER])
    pool.tensor("indexer.0")[2] = torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16)
    twin = pool.twin(2, pinned=False)
    twin.write(1, pool.read(2))
    assert twin.tensor("indexer.0")[1].tolist() == [1.0, 2.0, 3.0]
    pool.copy_part(2, slots_of([2]), twin, slots_of([0]))
    assert twin.tensor("indexer.0")[0].tolist() == [1.0, 2.0, 3.0]


def test_a_pool_with_them_is_another_layout() -> None:
    layouts = {with_sidecars(pages().slot_tensors(), 5, some).layout for some in ([], [INDEXER], [SCALES])}
    assert len(layouts) == 3


def test_a_source_pool_without_tensors_of_its_own_may_be_followed() -> None:
    bare = PageBuffers(5, 2, [], CPU).slot_tensors()
    assert with_sidecars(bare, 5, [SCALES]).tensor("scales.0").shape == (5, 4)


@pytest.mark.parametrize("named", ["indexer", "keys"])
def test_a_name_twice_is_refused(named: str) -> None:
    again = SidecarPool(named, FULL, (TensorLayout((1,), torch.float32),))
    with pytest.raises(CacheError, match="names of their own") as refused:
        with_sidecars(pages().slot_tensors(), 5, [INDEXER, again])
    assert refused.value.kind is Kind.BAD_CONFIG


def test_who_follows_whom() -> None:
    state = SidecarPool("compressor", SWA, (TensorLayout((1,), torch.float32),))
    assert followers([INDEXER, state, SCALES], [FULL, SWA]) == {FULL: (INDEXER, SCALES), SWA: (state,)}
    with pytest.raises(CacheError, match="sidecar compressor follows a pool") as refused:
        followers([state], [FULL, MAMBA])
    assert refused.value.kind is Kind.UNKNOWN_COMPONENT

"""The tiers on a CUDA device: pinned host pools, copies on a stream of their own. Runs with GPU=1 on such a machine.

Bits are equal, and whatever has ended has arrived.
"""

# torch has no types for streams and events.
# mypy: disable-error-code="no-untyped-call"

from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest
import torch

from agentcache.clock import SystemClock
from agentcache.pools.buffers import KvLayout, PageBuffers, SlotTensors, StateBuffers, TensorLayout
from agentcache.tiers.api import JobResult, Transfer
from agentcache.tiers.cuda import CudaLane
from agentcache.tiers.external import StoredTier
from agentcache.tiers.host import HostTier
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.types import FULL, MAMBA, SWA, Job, Piece, PoolName, TierName
from tests.builders import piece, slots_of, state

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

DEVICE, HOST, EXTERNAL = TierName.DEVICE, TierName.HOST, TierName.EXTERNAL
PAGE, SLOTS = 16, 8
CUDA = torch.device("cuda")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
STORED = (piece(FULL, 0, 64, [6, 1, 2, 7]), piece(SWA, 32, 64, [0, 5]), state(64, 3))
ON_HOST = (piece(FULL, 0, 64, [0, 1, 2, 3]), piece(SWA, 32, 64, [7, 6]), state(64, 5))
BACK = (piece(FULL, 0, 64, [3, 5, 4, 0]), piece(SWA, 32, 64, [2, 3]), state(64, 0))
Pools = Mapping[PoolName, SlotTensors]


def pages(dtype: torch.dtype, layers: int, slots: int = SLOTS, width: int = 8) -> PageBuffers:
    layer = KvLayout(TensorLayout((2, width), dtype), TensorLayout((2, width), dtype))
    return PageBuffers(slots, PAGE, [layer] * layers, CUDA)


def fill(tensors: SlotTensors) -> list[bytes]:
    dice = np.random.default_rng(5)
    payloads = [dice.bytes(tensors.slot_bytes) for _ in range(tensors.slots)]
    for slot, payload in enumerate(payloads):
        tensors.write(slot, payload)
    return payloads


def device_pools(dtype: torch.dtype) -> dict[PoolName, SlotTensors]:
    states = StateBuffers(SLOTS, [TensorLayout((5,), dtype), TensorLayout((2,), torch.float32)], CUDA)
    made = {
        FULL: pages(dtype, 3).slot_tensors(),
        SWA: pages(dtype, 2).slot_tensors(),
        MAMBA: states.slot_tensors(),
    }
    for tensors in made.values():
        fill(tensors)
    return {PoolName(name, DEVICE): tensors for name, tensors in made.items()}


def payloads(pools: Pools, tier: TierName, pieces: tuple[Piece, ...]) -> list[bytes]:
    return [
        pools[PoolName(part.component, tier)].read(slot) for part in pieces for slot in part.slots.tolist()
    ]


def copied(lane: CudaLane, source: SlotTensors, slots: list[int], target: SlotTensors, to: list[int]) -> None:
    def copy(part: int) -> None:
        source.copy_part(part, slots_of(slots), target, slots_of(to))

    copying = lane.run([partial(copy, part) for part in range(source.parts)])
    lane.drain()
    assert (copying.ended, copying.completed, copying.fault) == (True, source.parts, "")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_written_to_the_device_is_read(dtype: torch.dtype) -> None:
    tensors = pages(dtype, 2).slot_tensors()
    assert tensors.device.type == "cuda"
    written = fill(tensors)
    assert [tensors.read(slot) for slot in range(SLOTS)] == written


def test_a_twin_is_pinned_and_nan() -> None:
    twin = pages(torch.bfloat16, 2).slot_tensors().twin(SLOTS, pinned=True)
    assert all(twin.tensor(name).is_pinned() for name in twin.names)
    assert all(twin.tensor(name).isnan().all() for name in twin.names)
    assert twin.device.type == "cpu"


def test_twins_come_and_go() -> None:
    """Memory that was given back can be pinned again."""
    tensors = pages(torch.bfloat16, 2).slot_tensors()
    for _ in range(20):
        assert tensors.twin(SLOTS, pinned=True).tensor("keys.0").is_pinned()


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies_there_and_back_are_equal_bit_by_bit(dtype: torch.dtype, pinned: bool) -> None:
    device = pages(dtype, 2).slot_tensors()
    written, host = fill(device), device.twin(SLOTS, pinned=pinned)
    lane = CudaLane("cuda")
    copied(lane, device, [0, 1, 2, 5, 7], host, [3, 4, 0, 1, 6])
    assert [host.read(slot) for slot in (3, 4, 0, 1, 6)] == [written[slot] for slot in (0, 1, 2, 5, 7)]
    copied(lane, host, [3, 4, 0, 1, 6], device, [7, 6, 5, 4, 3])
    assert [device.read(slot) for slot in (7, 6, 5, 4, 3)] == [written[slot] for slot in (0, 1, 2, 5, 7)]
    lane.close()


def compute() -> None:
    """A little, on the stream that computes, to its end."""
    done = torch.cuda.Event()
    torch.ones(16, device=CUDA).add_(1.0)
    done.record()
    done.synchronize()


def test_copies_run_beside_the_computing() -> None:
    """A large copy has not ended when `run` returns, its stream is not the one that computes, and computing that is
    queued after it does not wait for it. Once it has ended its bytes are there."""
    device = pages(torch.bfloat16, 16, slots=512, width=1024).slot_tensors()  # 1 GiB in 32 parts
    host = device.twin(512, pinned=True)
    for name in device.names:
        device.tensor(name).fill_(3.0)
    every = slots_of(range(512))
    compute()  # loads its kernels
    lane = CudaLane("cuda")
    streams: list[torch.cuda.Stream] = []

    def copy(part: int) -> None:
        streams.append(torch.cuda.current_stream())
        device.copy_part(part, every, host, every)

    copying = lane.run([partial(copy, part) for part in range(device.parts)])
    assert not copying.ended
    compute()
    assert not copying.ended
    lane.drain()
    assert (copying.ended, copying.completed) == (True, device.parts)
    assert all(stream != torch.cuda.default_stream() for stream in streams)
    assert all(bool((host.tensor(name) == 3.0).all()) for name in host.names)
    lane.close()


def test_a_copy_sees_what_was_computed_before_it() -> None:
    """Pages written by kernels that still run when the copy is queued."""
    device = pages(torch.float32, 1, slots=2, width=64).slot_tensors()
    host = device.twin(2, pinned=True)
    weights = torch.randn(4096, 4096, device=CUDA)
    product = weights
    for _ in range(20):
        product = (product @ weights).tanh()
    device.tensor("keys.0").fill_(1.0)
    device.tensor("keys.0").mul_(product.isfinite().all().float() + 1.0)
    lane = CudaLane("cuda")
    lane.run([lambda: device.copy_part(0, slots_of([0, 1]), host, slots_of([1, 0]))])
    lane.drain()
    assert host.tensor("keys.0").unique().tolist() == [2.0]
    lane.close()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_host_tier_round_trip(dtype: torch.dtype) -> None:
    device = device_pools(dtype)
    pools = {
        **device,
        **{PoolName(name.component, HOST): pool.twin(SLOTS, pinned=True) for name, pool in device.items()},
    }
    tier = HostTier(CudaLane("cuda"), pools)
    sent = payloads(pools, DEVICE, STORED)
    store = Job(1, DEVICE, HOST, STORED)
    tier.submit_store(Transfer(store, ON_HOST))
    tier.drain()
    assert tier.poll() == (JobResult(store, ON_HOST),)
    assert payloads(pools, HOST, ON_HOST) == sent
    load = Job(2, HOST, DEVICE, ON_HOST)
    tier.submit_load(Transfer(load, BACK))
    tier.drain()
    assert tier.poll() == (JobResult(load, BACK),)
    assert payloads(pools, DEVICE, BACK) == sent
    tier.close()


def placed(pieces: tuple[Piece, ...]) -> list[tuple[str, int, int, list[int]]]:
    return [(part.component, part.start, part.end, part.slots.tolist()) for part in pieces]


def landed(results: tuple[JobResult, ...]) -> list[tuple[str, int, int, list[int]]]:
    (result,) = results
    return placed(result.landed)


def test_the_external_tier_reads_and_writes_the_device_itself() -> None:
    """Direct mode: no host tier between the device and the store."""
    pools = device_pools(torch.bfloat16)
    tier = StoredTier(MemoryStore(1 << 30), pools, PAGE, SystemClock())
    hashes = tuple(bytes([number]) * 32 for number in range(4))
    sent = payloads(pools, DEVICE, STORED)
    store = Job(1, DEVICE, EXTERNAL, STORED)
    tier.submit_store(Transfer(store, STORED, hashes))
    tier.drain()
    assert landed(tier.poll()) == placed(STORED)
    load = Job(-1, EXTERNAL, DEVICE, STORED)
    tier.submit_load(Transfer(load, BACK, hashes))
    tier.drain()
    assert landed(tier.poll()) == placed(BACK)
    assert payloads(pools, DEVICE, BACK) == sent
    tier.close()

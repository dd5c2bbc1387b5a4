"""The format of placement events: strict readers of vLLM and SGLang take ours, we take theirs, old and new."""

from typing import Any

import msgspec
import pytest

from agentcache.errors import CacheError, Kind
from agentcache.kv_events import (
    END_SEQ,
    AllBlocksCleared,
    Batch,
    BlockEvent,
    BlockRemoved,
    BlockStored,
    Groups,
    component_card,
    decode_batch,
    encode_batch,
    hash_bytes,
    incarnation_of,
    pack_seq,
    topic_of,
    unpack_seq,
)
from agentcache.types import (
    FULL,
    MAMBA,
    SWA,
    ComponentName,
    Event,
    EventKind,
    TierName,
    full_spec,
    mamba_spec,
    swa_spec,
)

ONE, TWO, THREE = (bytes([number]) * 32 for number in (1, 2, 3))
GROUPS = Groups([component_card(spec) for spec in (full_spec(), swa_spec(31), mamba_spec(16))], 4)
STORED = BlockStored([TWO, THREE], ONE, [*range(8)], 4, medium="GPU", group=0)


class StrictStored(msgspec.Struct, tag="BlockStored"):
    """As vLLM declares it: no default for the first seven."""

    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group: int | None = msgspec.field(default=None, name="group_idx")
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None


class StrictRemoved(msgspec.Struct, tag="BlockRemoved"):
    block_hashes: list[bytes | int]
    medium: str | None
    group: int | None = msgspec.field(default=None, name="group_idx")


class StrictCleared(msgspec.Struct, tag="AllBlocksCleared"):
    pass


class StrictBatch(msgspec.Struct, array_like=True):
    """One unknown event type or a wrong field, and the whole batch is refused."""

    ts: float
    events: list[StrictStored | StrictRemoved | StrictCleared]
    data_parallel_rank: int | None = None


class OlderStored(msgspec.Struct, tag="BlockStored"):
    """Fields that came later are not there; maps may have more than a reader knows."""

    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None


class OlderBatch(msgspec.Struct, array_like=True):
    ts: float
    events: list[OlderStored]


def sent(*events: object, rank: int | None = 0) -> bytes:
    """A batch of somebody else."""
    return msgspec.msgpack.encode([1.5, list(events), rank])


def test_a_strict_reader_takes_every_event_that_we_send() -> None:
    events = [
        Event(EventKind.STORED, tier, (ONE, TWO), None, (*range(8),), component)
        for component in (FULL, SWA, MAMBA)
        for tier in (TierName.DEVICE, TierName.HOST)
    ]
    events += [Event(EventKind.REMOVED, TierName.HOST, (TWO,)), Event(EventKind.CLEARED, TierName.DEVICE)]
    payload = encode_batch(Batch(2.5, [GROUPS.told(event) for event in events]))
    read = msgspec.msgpack.decode(payload, type=StrictBatch)
    assert (read.ts, read.data_parallel_rank, len(read.events)) == (2.5, 0, 8)
    stored = [event for event in read.events if isinstance(event, StrictStored)]
    assert [event.group for event in stored] == [0, 0, 1, 1, 2, 2]
    assert [event.medium for event in stored] == ["GPU", "CPU_PINNED"] * 3
    assert [event.kv_cache_spec_kind for event in stored[::2]] == [
        "full_attention",
        "sliding_window",
        "mamba",
    ]
    assert [event.kv_cache_spec_sliding_window for event in stored[::2]] == [None, 32, None]
    assert isinstance(read.events[-1], StrictCleared)


def test_a_reader_of_three_elements_finds_three() -> None:
    """Readers in Rust refuse a batch with one more, so nothing of ours may stand behind the rank."""
    assert len(msgspec.msgpack.decode(encode_batch(Batch(0.0, [STORED])))) == 3


def test_an_older_reader_ignores_what_it_does_not_know() -> None:
    read = msgspec.msgpack.decode(encode_batch(Batch(0.0, [STORED])), type=OlderBatch)
    assert read.events == [OlderStored([TWO, THREE], ONE, [*range(8)], 4, None)]


@pytest.mark.parametrize("event", [STORED, BlockRemoved([ONE], "GPU", 1), AllBlocksCleared()])
def test_what_is_encoded_is_decoded(event: BlockEvent) -> None:
    batch = Batch(1.5, [event], None)
    decoded = decode_batch(encode_batch(batch))
    assert (decoded.batch, decoded.ignored) == (batch, 0)


def test_maps_of_both_engines() -> None:
    """SGLang leaves out what is None, vLLM sends fields that we have no use for."""
    sglang = {
        "type": "BlockStored",
        "block_hashes": [-5],
        "parent_block_hash": None,
        "token_ids": [1, 2],
        "block_size": 2,
        "lora_id": None,
        "cache_salt": "s",
        "session_id": "a",
    }
    vllm = {"type": "BlockRemoved", "block_hashes": [ONE], "medium": "CPU", "locality": "x", "ownership": "y"}
    decoded = decode_batch(sent(sglang, vllm, {"type": "AllBlocksCleared"}, rank=3))
    assert decoded.batch.data_parallel_rank == 3
    assert decoded.batch.events == [
        BlockStored([-5], None, [1, 2], 2),
        BlockRemoved([ONE], "CPU"),
        AllBlocksCleared(),
    ]


def test_arrays_of_older_releases() -> None:
    short = ["BlockStored", [7], 6, [1, 2], 2, None]
    long = ["BlockStored", [8], 7, [3, 4], 2, None, "GPU", "adapter", [["salt"]], 1]
    events = decode_batch(
        sent(short, long, ["BlockRemoved", [8], "GPU", 1], ["AllBlocksCleared"])
    ).batch.events
    assert events == [
        BlockStored([7], 6, [1, 2], 2),
        BlockStored([8], 7, [3, 4], 2, None, "GPU", "adapter", 1),
        BlockRemoved([8], "GPU", 1),
        AllBlocksCleared(),
    ]


def test_a_batch_of_two_elements_and_one_of_four() -> None:
    for more in ([], [0, "incarnation"]):
        payload = msgspec.msgpack.encode([1.0, [["AllBlocksCleared"]], *more])
        assert decode_batch(payload).batch.events == [AllBlocksCleared()]


def test_unknown_types_are_counted_and_the_rest_is_read() -> None:
    decoded = decode_batch(sent({"type": "BlockMigrated", "to": 1}, ["LoadReport", 5], ["AllBlocksCleared"]))
    assert (decoded.batch.events, decoded.ignored) == ([AllBlocksCleared()], 2)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"ts": 1.0}),
        msgspec.msgpack.encode([1.0]),
        msgspec.msgpack.encode(["now", []]),
        msgspec.msgpack.encode([1.0, {}]),
        sent(5),
        sent([]),
        sent({"block_hashes": [ONE]}),
        sent({"type": "BlockStored"}),
        sent({"type": "BlockRemoved", "block_hashes": [1.5]}),
        sent(["BlockRemoved", "abc"]),
        sent([["a"], 1]),
    ],
)
def test_what_is_no_batch_is_refused(payload: bytes) -> None:
    with pytest.raises(CacheError) as refused:
        decode_batch(payload)
    assert refused.value.kind is Kind.BAD_REQUEST


@pytest.mark.parametrize("component", [FULL, SWA, MAMBA])
@pytest.mark.parametrize("tier", list(TierName))
def test_our_events_come_back_as_they_were(component: ComponentName, tier: TierName) -> None:
    """Report R081: component and tier are in every event."""
    for event in (
        Event(EventKind.STORED, tier, (TWO, THREE), ONE, (*range(8),), component),
        Event(EventKind.STORED, tier, (ONE,), None, (), component),
        Event(EventKind.REMOVED, tier, (TWO,), component=component),
    ):
        assert GROUPS.events(GROUPS.told(event)) == (event,)


def test_a_clear_is_one_for_all_tiers() -> None:
    told = GROUPS.told(Event(EventKind.CLEARED, TierName.HOST))
    assert [(event.kind, event.tier) for event in GROUPS.events(told)] == [
        (EventKind.CLEARED, tier) for tier in TierName
    ]


def test_unknown_groups_and_media_say_nothing() -> None:
    assert GROUPS.events(BlockRemoved([ONE], "GPU", 3)) == ()
    assert GROUPS.events(BlockRemoved([ONE], "GPU", -1)) == ()
    assert GROUPS.events(BlockStored([ONE], medium="TAPE")) == ()
    assert GROUPS.events(BlockRemoved([ONE])) == (Event(EventKind.REMOVED, TierName.DEVICE, (ONE,)),)


def test_hashes_may_be_numbers() -> None:
    assert hash_bytes(ONE) == ONE
    assert hash_bytes(-1) == hash_bytes(2**64 - 1) == b"\xff" * 8
    (event,) = GROUPS.events(BlockStored([5], 4, [1], 1))
    assert (event.hashes, event.parent) == ((hash_bytes(5),), hash_bytes(4))


def test_the_topic_names_the_incarnation() -> None:
    assert incarnation_of(topic_of("a1b2")) == "a1b2"
    assert incarnation_of(b"") == incarnation_of(b"kv@pod@model") == ""


def test_sequence_numbers_are_eight_bytes_with_a_sign() -> None:
    assert pack_seq(1) == b"\0\0\0\0\0\0\0\1"
    assert pack_seq(END_SEQ) == b"\xff" * 8
    assert [unpack_seq(pack_seq(seq)) for seq in (0, 9_431, END_SEQ)] == [0, 9_431, END_SEQ]
    with pytest.raises(CacheError, match="8 bytes"):
        unpack_seq(b"\0")

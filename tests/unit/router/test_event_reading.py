"""What an index reads of placement events: all but the tokens, whoever wrote them."""

import msgspec
import pytest

from agentcache.errors import CacheError, Kind
from agentcache.kv_events import (
    AllBlocksCleared,
    Batch,
    BlockEvent,
    BlockRemoved,
    BlockStored,
    decode_batch,
    encode_batch,
)
from agentcache.router.event_reading import read_places

STORED = BlockStored([b"b", 7], b"a", [1, 2, 3, 4], 2, 1, "GPU", "lora", 1, "mamba", 9)
EVENTS: list[BlockEvent] = [AllBlocksCleared(), STORED, BlockRemoved([b"b"], "CPU", 1)]


def test_all_is_there_but_the_tokens() -> None:
    placed = BlockStored([b"b", 7], b"a", medium="GPU", group=1)
    assert read_places(encode_batch(Batch(1.5, EVENTS))) == Batch(1.5, [EVENTS[0], placed, EVENTS[2]])


@pytest.mark.parametrize(
    "said",
    [
        [1.5, [["BlockStored", [b"b"], None, [1, 2], 2, None, "GPU"], ["BlockRemoved", [b"b"], "GPU"]], 0],
        [1.5, [{"type": "SessionOpened"}, {"type": "BlockRemoved", "block_hashes": [b"b"]}]],
        [1.5, []],
        [1.5, [], 0, "more"],
    ],
)
def test_what_others_or_older_ones_write_is_read_as_before(said: object) -> None:
    payload = msgspec.msgpack.encode(said)
    read, whole = read_places(payload), decode_batch(payload).batch
    assert (read.ts, len(read.events)) == (whole.ts, len(whole.events))
    assert [type(event) for event in read.events] == [type(event) for event in whole.events]


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x90", msgspec.msgpack.encode([1.0, [{"type": 3}]])])
def test_what_is_no_batch_is_refused(payload: bytes) -> None:
    with pytest.raises(CacheError) as caught:
        read_places(payload)
    assert caught.value.kind is Kind.BAD_REQUEST

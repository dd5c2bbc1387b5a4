"""Snapshots in parts: all of it, in order, and no more of them than there are numbers."""

import pytest

from agentcache.kv_events import AllBlocksCleared, BlockEvent, BlockStored, decode_batch
from agentcache.worker.kv_parts import PART_PAGES, in_parts


def stored(number: int, pages: int) -> BlockStored:
    return BlockStored([number.to_bytes(8, "big")] * pages, None, [number] * pages, 1, medium="GPU")


EVENTS: list[BlockEvent] = [AllBlocksCleared(), *(stored(number, 300) for number in range(100))]


@pytest.mark.parametrize(("most", "parts"), [(1000, 25), (5, 5), (1, 1)])
def test_parts_tell_everything_in_order_and_are_not_more_than_there_may_be(most: int, parts: int) -> None:
    payloads = in_parts(7.0, iter(EVENTS), most)
    batches = [decode_batch(payload).batch for payload in payloads]
    assert len(batches) == parts
    assert [event for batch in batches for event in batch.events] == EVENTS
    assert {(batch.ts, batch.data_parallel_rank) for batch in batches} == {(7.0, 0)}


def test_a_part_has_about_so_many_pages() -> None:
    for payload in in_parts(7.0, EVENTS, 1000):
        events = decode_batch(payload).batch.events
        pages = sum(len(event.block_hashes) for event in events if isinstance(event, BlockStored))
        assert pages <= PART_PAGES + 300


def test_nothing_is_one_message() -> None:
    (payload,) = in_parts(7.0, [AllBlocksCleared()], 1)
    assert decode_batch(payload).batch.events == [AllBlocksCleared()]

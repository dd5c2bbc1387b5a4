"""The reference store beyond its contract."""

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.tiers.api import Keep
from agentcache.tiers.stores.memory import MemoryStore


@pytest.mark.parametrize("capacity_bytes", [0, -5])
def test_memory_store_without_room_is_refused(capacity_bytes: int) -> None:
    with pytest.raises(CacheError, match="give more bytes") as caught:
        MemoryStore(capacity_bytes)
    assert caught.value.kind is Kind.BAD_CONFIG


def test_memory_store_counts_bytes_to_the_last_one() -> None:
    store = MemoryStore(100)
    assert store.put([("a", bytes(60)), ("b", bytes(40))], Keep.LOOSE) == [True, True]
    assert store.exists(["a", "b"]) == [True, True]
    assert store.put([("c", bytes(101)), ("d", bytes(1))], Keep.LOOSE) == [False, True]
    assert store.exists(["a", "b", "d"]) == [False, True, True]
    store.remove(["b", "unknown"])
    assert (store.status().objects, store.status().used_bytes) == (1, 1)


def test_memory_store_a_second_put_is_a_use() -> None:
    store = MemoryStore(100)
    store.put([("a", bytes(50)), ("b", bytes(50)), ("a", bytes(50)), ("c", bytes(50))], Keep.LOOSE)
    assert store.exists(["a", "b", "c"]) == [True, False, True]


def test_memory_store_keeps_what_it_has_for_the_next_who_has_it() -> None:
    store = MemoryStore(100)
    store.put([("a", b"data")], Keep.LOOSE)
    store.close()
    assert store.get(["a"]) == [b"data"]

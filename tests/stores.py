"""Every store, for tests that hold for all of them. A new one is a line in STORES."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentcache.keys import object_name
from agentcache.tiers.stores.api import BlobStore
from agentcache.tiers.stores.faulty import FaultyStore
from agentcache.tiers.stores.file import open_file_store
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.tiers.stores.mooncake import open_mooncake_store
from agentcache.tiers.stores.redis import open_redis_store
from agentcache.types import FULL

MakeStore = Callable[[Path, int], BlobStore]


@dataclass(frozen=True)
class StoreCase:
    """How to make one store, and what it can do.

    `make(folder, capacity_bytes)` answers an empty store; the test closes it. `smallest_bytes` is a cap under which
    the backend has no room to work in. A store without `classes` ignores them; one without `exact_order` lets old
    objects go, but not the very oldest first.
    """

    make: MakeStore
    smallest_bytes: int = 1 << 20
    classes: bool = True
    exact_order: bool = True
    marks: tuple[pytest.MarkDecorator, ...] = ()


def memory(_: Path, capacity_bytes: int) -> BlobStore:
    return MemoryStore(capacity_bytes)


def faultless(_: Path, capacity_bytes: int) -> BlobStore:
    return FaultyStore(MemoryStore(capacity_bytes), random.Random(0))


def redis(folder: Path, capacity_bytes: int) -> BlobStore:
    return open_redis_store("", capacity_bytes, folder / "valkey")


def mooncake(folder: Path, capacity_bytes: int) -> BlobStore:
    return open_mooncake_store("", capacity_bytes, folder / "mooncake")


STORES: dict[str, StoreCase] = {
    "memory": StoreCase(memory),
    "faulty": StoreCase(faultless),
    "file": StoreCase(lambda folder, capacity_bytes: open_file_store(folder / "store", capacity_bytes)),
    "redis": StoreCase(redis, smallest_bytes=2 << 20),
    "mooncake": StoreCase(
        mooncake, smallest_bytes=16 << 20, classes=False, exact_order=False, marks=(pytest.mark.system,)
    ),
}


def store_cases(wanted: Callable[[StoreCase], bool] = bool) -> list[object]:
    """Parameters for `pytest.mark.parametrize("case", store_cases())`, each with its markers."""
    return [pytest.param(case, id=name, marks=case.marks) for name, case in STORES.items() if wanted(case)]


def name_of(number: int) -> str:
    """The name of a page's object, as the tier makes them."""
    return object_name(number.to_bytes(32, "little"), FULL)


def data_of(name: str, size: int) -> bytes:
    """Bytes that belong to one name and one size."""
    return random.Random(f"{name} {size}").randbytes(size)

"""The contract of a store, over every backend."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agentcache.tiers.api import Keep
from agentcache.tiers.stores.api import BlobStore
from tests.stores import StoreCase, data_of, name_of, store_cases

OBJECT_BYTES = 40_000
NAMES = [name_of(number) for number in range(1200)]

every_store = pytest.mark.parametrize("case", store_cases())
ordered_stores = pytest.mark.parametrize("case", store_cases(lambda case: case.exact_order))
classed_stores = pytest.mark.parametrize("case", store_cases(lambda case: case.classes and case.exact_order))


@pytest.fixture
def store(case: StoreCase, tmp_path: Path) -> Iterator[BlobStore]:
    with closing(case.make(tmp_path, case.smallest_bytes)) as made:
        yield made


def keep(store: BlobStore, *names: str, size: int = OBJECT_BYTES, keep: Keep = Keep.LOOSE) -> None:
    assert all(store.put([(name, data_of(name, size)) for name in names], keep))


def fits(case: StoreCase) -> int:
    """How many objects go into the smallest store without one of them leaving, with room for what they cost beside."""
    return case.smallest_bytes // (OBJECT_BYTES + 8192)


@every_store
def test_put_objects_come_back_as_they_were(store: BlobStore) -> None:
    objects = [(name, data_of(name, size)) for name, size in zip(NAMES, (1, 100, 4096, 70_001), strict=False)]
    assert store.put(objects, Keep.LOOSE) == [True] * 4
    assert store.get([name for name, _ in objects]) == [data for _, data in objects]


@every_store
def test_answers_are_in_the_order_of_the_names(store: BlobStore) -> None:
    keep(store, NAMES[2], NAMES[0], size=10)
    assert store.exists(NAMES[:4]) == [True, False, True, False]
    assert store.exists([NAMES[2], NAMES[1]]) == [True, False]
    assert store.get(NAMES[:3]) == [data_of(NAMES[0], 10), None, data_of(NAMES[2], 10)]
    assert store.get([NAMES[0], NAMES[0]]) == [data_of(NAMES[0], 10)] * 2


@every_store
def test_nothing_asked_is_nothing_answered(store: BlobStore) -> None:
    assert (store.exists([]), store.get([]), store.put([], Keep.LOOSE)) == ([], [], [])
    store.retain([], Keep.REFERENCED)
    store.retain([], None)
    store.remove([])


@every_store
def test_an_object_that_is_there_stays_as_it_is(store: BlobStore) -> None:
    keep(store, NAMES[0], size=100)
    assert store.put([(NAMES[0], b"something else")], Keep.LOOSE) == [True]
    assert store.get(NAMES[:1]) == [data_of(NAMES[0], 100)]


@every_store
def test_one_put_may_name_an_object_twice(store: BlobStore) -> None:
    keep(store, NAMES[0], NAMES[1], NAMES[0], size=100)
    assert store.get(NAMES[:2]) == [data_of(NAMES[0], 100), data_of(NAMES[1], 100)]


@every_store
def test_removed_objects_are_gone_and_may_come_again(store: BlobStore) -> None:
    keep(store, *NAMES[:3], size=100)
    store.remove([NAMES[1], NAMES[9], NAMES[1]])
    assert store.exists(NAMES[:3]) == [True, False, True]
    assert store.get([NAMES[1]]) == [None]
    keep(store, NAMES[1], size=200)
    assert store.get([NAMES[1]]) == [data_of(NAMES[1], 200)]


@every_store
def test_retain_of_unknown_objects_makes_none(store: BlobStore) -> None:
    store.retain(NAMES[:2], Keep.REFERENCED)
    store.retain(NAMES[:2], None)
    assert store.exists(NAMES[:2]) == [False, False]


@every_store
def test_beyond_the_cap_old_objects_leave_and_new_ones_are_kept(store: BlobStore, case: StoreCase) -> None:
    many = NAMES[: 3 * fits(case)]
    for name in many:
        keep(store, name)
    there = store.exists(many)
    assert there[-1]
    assert not all(there)
    assert sum(there) * OBJECT_BYTES <= case.smallest_bytes
    found = store.get(many)
    assert all(data in (None, data_of(name, OBJECT_BYTES)) for name, data in zip(many, found, strict=True))


@every_store
def test_a_store_has_room_for_what_it_says(store: BlobStore, case: StoreCase) -> None:
    few = NAMES[: fits(case) // 2]
    keep(store, *few)
    assert all(store.exists(few))


@every_store
def test_status_says_who_and_never_more_than_the_cap(store: BlobStore, case: StoreCase) -> None:
    few = NAMES[: fits(case) // 2]
    keep(store, *few)
    status = store.status()
    assert status.address
    assert status.objects in (None, len(few))
    assert status.capacity_bytes in (None, case.smallest_bytes)
    used_bytes, capacity_bytes = status.used_bytes or 0, status.capacity_bytes or case.smallest_bytes
    assert used_bytes == 0 or OBJECT_BYTES * len(few) <= used_bytes <= capacity_bytes


@every_store
def test_name_is_one_word(store: BlobStore) -> None:
    assert store.name.isidentifier()


@every_store
def test_an_object_larger_than_the_store_finds_no_room(store: BlobStore, case: StoreCase) -> None:
    keep(store, NAMES[0], size=100)
    large = bytes(case.smallest_bytes + 1)
    assert store.put([(NAMES[1], large), (NAMES[2], b"small")], Keep.LOOSE) == [False, True]
    assert store.exists(NAMES[:3]) == [True, False, True]


@every_store
def test_several_threads_may_call_at_once(store: BlobStore, case: StoreCase) -> None:
    """Each reads its own writes and the others', in a store too small for all: whole or not at all."""
    wrong: list[str] = []
    start = threading.Barrier(4)

    def work(number: int) -> None:
        start.wait()
        for turn in range(30):
            mine = NAMES[(7 * turn + 11 * number) % 60]
            store.put([(mine, data_of(mine, OBJECT_BYTES))], list(Keep)[turn % 2])
            asked = NAMES[turn % 60 : turn % 60 + 3]
            for name, data in zip(asked, store.get(asked), strict=True):
                if data not in (None, data_of(name, OBJECT_BYTES)):
                    wrong.append(name)
            store.retain(asked, list(Keep)[number % 2])
            store.retain(asked, None)
            store.remove([NAMES[(turn * number) % 60]])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(store.exists(NAMES)) * OBJECT_BYTES <= case.smallest_bytes


@every_store
def test_close_may_be_called_again(store: BlobStore) -> None:
    keep(store, NAMES[0], size=100)
    store.close()
    store.close()


@ordered_stores
def test_the_least_recently_used_leaves_first_and_reading_is_use(store: BlobStore, case: StoreCase) -> None:
    old = NAMES[: fits(case)]
    keep(store, *old)
    store.get(old[:2])
    keep(store, *NAMES[100 : 100 + fits(case) // 2])
    there = store.exists(old)
    assert there[:2] == [True, True]
    assert there[2] is False
    assert there[2:] == sorted(there[2:])


@ordered_stores
def test_asking_is_no_use(store: BlobStore, case: StoreCase) -> None:
    old = NAMES[: fits(case)]
    keep(store, *old)
    store.exists(old[:1])
    keep(store, *NAMES[100 : 100 + fits(case) // 2])
    assert store.exists(old[:1]) == [False]


@classed_stores
def test_loose_objects_leave_before_referenced_ones(store: BlobStore, case: StoreCase) -> None:
    half = fits(case) // 2
    referenced, loose = NAMES[:half], NAMES[half : 2 * half]
    keep(store, *referenced, keep=Keep.REFERENCED)
    keep(store, *loose)
    keep(store, *NAMES[100 : 100 + 2 * fits(case)])
    assert all(store.exists(referenced))
    assert not any(store.exists(loose))


@classed_stores
def test_referenced_objects_leave_when_nothing_else_is_left(store: BlobStore, case: StoreCase) -> None:
    keep(store, *NAMES[: 2 * fits(case)], keep=Keep.REFERENCED)
    assert store.exists(NAMES[:1]) == [False]
    keep(store, NAMES[100])
    assert store.exists([NAMES[100]]) == [True]


@classed_stores
def test_retain_moves_objects_between_the_classes(store: BlobStore, case: StoreCase) -> None:
    half = fits(case) // 2
    opened, closed = NAMES[:half], NAMES[half : 2 * half]
    keep(store, *opened)
    keep(store, *closed, keep=Keep.REFERENCED)
    store.retain(opened, Keep.REFERENCED)
    store.retain(closed, Keep.LOOSE)
    keep(store, *NAMES[100 : 100 + 2 * fits(case)])
    assert all(store.exists(opened))
    assert not any(store.exists(closed))


@classed_stores
def test_a_second_put_leaves_the_class_alone(store: BlobStore, case: StoreCase) -> None:
    half = fits(case) // 2
    keep(store, *NAMES[:half], keep=Keep.REFERENCED)
    keep(store, *NAMES[:half], keep=Keep.LOOSE)
    keep(store, *NAMES[100 : 100 + 2 * fits(case)])
    assert all(store.exists(NAMES[:half]))


@ordered_stores
def test_retain_without_a_class_is_use_and_the_first_one_named_leaves_first(
    store: BlobStore, case: StoreCase
) -> None:
    old = NAMES[: fits(case)]
    keep(store, *old)
    store.retain([NAMES[1000], *reversed(old), NAMES[1001]], None)
    keep(store, *NAMES[100 : 100 + fits(case) // 2])
    there = store.exists(old)
    assert 0 < sum(there) < len(old)
    assert there == sorted(there, reverse=True)


@classed_stores
def test_retain_without_a_class_leaves_the_classes_alone(store: BlobStore, case: StoreCase) -> None:
    half = fits(case) // 2
    referenced, loose = NAMES[:half], NAMES[half : 2 * half]
    keep(store, *referenced, keep=Keep.REFERENCED)
    keep(store, *loose)
    store.retain([*referenced, *loose], None)
    keep(store, *NAMES[100 : 100 + 2 * fits(case)])
    assert all(store.exists(referenced))
    assert not any(store.exists(loose))


@classed_stores
def test_retain_without_a_class_is_use_among_referenced_objects_too(
    store: BlobStore, case: StoreCase
) -> None:
    old = NAMES[: fits(case)]
    keep(store, *old, keep=Keep.REFERENCED)
    store.retain([*reversed(old)], None)
    keep(store, *NAMES[100 : 100 + fits(case) // 2], keep=Keep.REFERENCED)
    there = store.exists(old)
    assert 0 < sum(there) < len(old)
    assert there == sorted(there, reverse=True)

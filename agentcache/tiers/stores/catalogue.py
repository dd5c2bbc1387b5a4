"""What an lmdb store holds and in which order it leaves: tables that each write changes together.

    objects  key → the object
    entries  key → class u8, place u64, footprint u64
    order    class u8, place u64 → key; big-endian, as lmdb sorts bytes: the first one leaves next
    totals   (in lmdb's own table) → used bytes, next place

The order lies in the store and not in a process, so processes that share it cannot disagree about what is there, how
much it is, or what leaves next, and it survives all of them. Recency is a place in a queue: a use takes the next one.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import lmdb

from agentcache.tiers.api import Keep

TABLES = (b"objects", b"entries", b"order")
TOTALS_KEY = b"totals"
TOTALS = struct.Struct(">QQ")
ENTRY = struct.Struct(">BQQ")
PLACE = struct.Struct(">BQ")
RANKS = {keep: rank for rank, keep in enumerate(Keep)}  # LOOSE leaves first
PAGE_HEADER_BYTES = 16
# What an object costs beside its bytes: its key, its entry and its place, in tables that are half full at worst.
OVERHEAD_BYTES = 512


class Entry(NamedTuple):
    """Where an object stands in the order, and the room that it takes."""

    rank: int
    place: int
    footprint: int


def key_of(name: str) -> bytes:
    """A name as lmdb takes it: never empty, never too long."""
    return hashlib.sha256(name.encode(), usedforsecurity=False).digest()


def footprint_bytes(size: int, page_bytes: int) -> int:
    """What an object of this size takes up on the disk at most.

    Large ones have whole pages of their own; small ones share pages that may be half empty.
    """
    if size > page_bytes // 4:
        return -(-(size + PAGE_HEADER_BYTES) // page_bytes) * page_bytes + OVERHEAD_BYTES
    return 2 * size + OVERHEAD_BYTES


class Catalogue:
    """The tables of one environment. `page_bytes` is lmdb's page."""

    def __init__(self, environment: lmdb.Environment) -> None:
        self._environment = environment
        self.objects, self.entries, self.order = (environment.open_db(name) for name in TABLES)
        self.page_bytes: int = environment.stat()["psize"]

    def has(self, reading: lmdb.Transaction, key: bytes) -> bool:
        return bool(reading.get(key, b"", self.entries))

    def figures(self, reading: lmdb.Transaction) -> tuple[int, int]:
        """How many objects there are, and the bytes that they take up."""
        used_bytes, _ = _totals(reading)
        return reading.stat(self.entries)["entries"], used_bytes

    @contextmanager
    def change(self) -> Iterator["Change"]:
        """A write: whole, or, after an exception, not at all.

        Cost  waits for the writes of other processes; one write at a time in this one is the caller's to see to
        """
        with self._environment.begin(write=True) as writing:
            change = Change(self, writing)
            yield change
            change.finish()


class Change:
    """One write on the tables."""

    def __init__(self, tables: Catalogue, writing: lmdb.Transaction) -> None:
        self._tables = tables
        self._writing = writing
        self.used_bytes, self._next_place = _totals(writing)

    def add(self, key: bytes, data: bytes, keep: Keep) -> None:
        """Caller: the key is new, and there is room."""
        footprint = footprint_bytes(len(data), self._tables.page_bytes)
        self._writing.put(key, data, db=self._tables.objects)
        self._stand(key, RANKS[keep], footprint)
        self.used_bytes += footprint

    def has(self, key: bytes) -> bool:
        return self._tables.has(self._writing, key)

    def touch(self, keys: Iterable[bytes]) -> None:
        """These were used last; unknown ones have left."""
        for key, entry in self._known(keys):
            self._writing.delete(PLACE.pack(entry.rank, entry.place), db=self._tables.order)
            self._stand(key, entry.rank, entry.footprint)

    def retain(self, keys: Iterable[bytes], keep: Keep) -> None:
        """Move these to a class, as used last in it; unknown ones have left."""
        for key, entry in self._known(keys):
            if entry.rank != RANKS[keep]:
                self._writing.delete(PLACE.pack(entry.rank, entry.place), db=self._tables.order)
                self._stand(key, RANKS[keep], entry.footprint)

    def remove(self, keys: Iterable[bytes]) -> None:
        for key, entry in self._known(keys):
            self._drop(key, entry)

    def evict_to(self, limit_bytes: int) -> None:
        """Let objects go, in order, until no more than `limit_bytes` are taken."""
        with self._writing.cursor(self._tables.order) as cursor:
            while self.used_bytes > limit_bytes and cursor.first():
                key = bytes(cursor.value())
                cursor.delete()
                self.remove([key])

    def forget_references(self, count: int) -> bool:
        """Make up to `count` objects LOOSE; whether there were any."""
        with self._writing.cursor(self._tables.order) as cursor:
            if not cursor.set_range(PLACE.pack(RANKS[Keep.REFERENCED], 0)):
                return False
            keys = [bytes(key) for key, _ in zip(cursor.iternext(keys=False), range(count), strict=False)]
        self.retain(keys, Keep.LOOSE)
        return True

    def finish(self) -> None:
        """Write the totals. Changes at least those: the pages that a change frees are free two changes later."""
        self._next_place += 1
        self._writing.put(TOTALS_KEY, TOTALS.pack(self.used_bytes, self._next_place))

    def _known(self, keys: Iterable[bytes]) -> Iterator[tuple[bytes, Entry]]:
        for key in keys:
            found = self._writing.get(key, b"", self._tables.entries)
            if found:
                yield key, Entry(*ENTRY.unpack(found))

    def _stand(self, key: bytes, rank: int, footprint: int) -> None:
        place = self._next_place
        self._next_place += 1
        self._writing.put(key, ENTRY.pack(rank, place, footprint), db=self._tables.entries)
        self._writing.put(PLACE.pack(rank, place), key, db=self._tables.order)

    def _drop(self, key: bytes, entry: Entry) -> None:
        self._writing.delete(key, db=self._tables.objects)
        self._writing.delete(key, db=self._tables.entries)
        self._writing.delete(PLACE.pack(entry.rank, entry.place), db=self._tables.order)
        self.used_bytes -= entry.footprint


def _totals(reading: lmdb.Transaction) -> tuple[int, int]:
    used_bytes, next_place = TOTALS.unpack(reading.get(TOTALS_KEY, bytes(TOTALS.size)))
    return used_bytes, next_place

"""The reference store: objects in this process's memory."""

import threading
from collections import OrderedDict
from collections.abc import Sequence

from agentcache.errors import CacheError, Kind
from agentcache.tiers.api import Keep
from agentcache.tiers.stores.api import StoreStatus


class MemoryStore:
    """Objects in a dict under a cap, counted in their bytes. LOOSE ones leave first, least recently used first.

    Errors  CacheError(BAD_CONFIG) for a cap under one byte
    """

    name = "memory"

    def __init__(self, capacity_bytes: int) -> None:
        if capacity_bytes < 1:
            raise CacheError(
                Kind.BAD_CONFIG,
                "an external store needs room: give more bytes",
                capacity_bytes=capacity_bytes,
            )
        self._capacity_bytes = capacity_bytes
        self._used_bytes = 0
        self._lock = threading.Lock()
        # The order of the classes is the order in which they leave.
        self._classes: dict[Keep, OrderedDict[str, bytes]] = {keep: OrderedDict() for keep in Keep}

    def exists(self, names: Sequence[str]) -> list[bool]:
        with self._lock:
            return [any(name in held for held in self._classes.values()) for name in names]

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        with self._lock:
            return [self._use(name) for name in names]

    def put(self, objects: Sequence[tuple[str, bytes]], keep: Keep) -> list[bool]:
        with self._lock:
            return [self._put(name, data, keep) for name, data in objects]

    def retain(self, names: Sequence[str], keep: Keep | None) -> None:
        with self._lock:
            for name in names:
                if keep is None:
                    self._use(name)
                else:
                    self._move(name, self._classes[keep])

    def remove(self, names: Sequence[str]) -> None:
        with self._lock:
            for name in names:
                for held in self._classes.values():
                    self._used_bytes -= len(held.pop(name, b""))

    def status(self) -> StoreStatus:
        with self._lock:
            objects = sum(len(held) for held in self._classes.values())
            return StoreStatus("this process's memory", objects, self._used_bytes, self._capacity_bytes)

    def close(self) -> None:
        """Nothing is open. What is held stays for whoever else has this store."""

    def _move(self, name: str, to: OrderedDict[str, bytes]) -> None:
        for held in self._classes.values():
            if name in held and held is not to:
                to[name] = held.pop(name)
                break

    def _use(self, name: str) -> bytes | None:
        for held in self._classes.values():
            if name in held:
                held.move_to_end(name)
                return held[name]
        return None

    def _put(self, name: str, data: bytes, keep: Keep) -> bool:
        if any(name in held for held in self._classes.values()):
            self._use(name)
            return True
        if len(data) > self._capacity_bytes:
            return False
        while self._used_bytes + len(data) > self._capacity_bytes:
            self._evict()
        self._classes[keep][name] = data
        self._used_bytes += len(data)
        return True

    def _evict(self) -> None:
        held = next(held for held in self._classes.values() if held)
        _, data = held.popitem(last=False)
        self._used_bytes -= len(data)

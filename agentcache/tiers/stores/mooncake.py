"""A store in a Mooncake Store, over TCP: its master alone knows what is where, its clients lend the memory.

The client lives in a process of its own (`mooncake_process.py` says why), which ends with us, as a master of our own
does. What is stored ends with the master and, object by object, with the process that lends the memory. Mooncake has
no classes that could be changed later; REFERENCED objects are put with its soft pin, which keeps them for 30 minutes.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentcache.clock import Clock, SystemClock
from agentcache.errors import CacheError, Kind
from agentcache.tiers.api import Keep
from agentcache.tiers.stores.api import StoreStatus
from agentcache.tiers.stores.batches import Objects, put_in_batches
from agentcache.tiers.stores.mooncake_servers import Line, Servers

READ_OBJECTS = 16
NAMES = 512
MISSING, UNFINISHED, NO_ROOM = -704, -703, -200
CLOCK = SystemClock()


def open_mooncake_store(
    address: str, capacity_bytes: int, folder: Path, clock: Clock = CLOCK
) -> "MooncakeStore":
    """A store in the Mooncake whose master is at `address` (HOST:PORT) or, where that is empty, in one of our own.

    `capacity_bytes` is the memory that this process lends to the store; none with an address is enough. `folder` is for
    logs. Mooncake's clients talk to each other without any check of who they are, on ports of all interfaces: it is for
    networks where every machine is trusted.

    Errors  CacheError(BAD_CONFIG): Mooncake, or the system library libibverbs, is not installed; no HOST:PORT; nothing
            answers there, or no master; too little, or more than the machine's memory; a folder that is not writable
    """
    servers = Servers(address, capacity_bytes, folder.absolute(), clock)
    try:
        servers.check()
        servers.start()
    except CacheError:
        servers.close()
        raise
    return MooncakeStore(servers)


class MooncakeStore:
    """Objects in a Mooncake. Made by `open_mooncake_store`.

    A process of ours that died is started again by the next call; with the master, everything stored is gone.
    """

    name = "mooncake"

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._turn = threading.Lock()  # guards what follows, and the servers
        self._idle: list[Line] = []
        self._closed = False

    def exists(self, names: Sequence[str]) -> list[bool]:
        return [code == 1 for code in self._codes("exists", names, {0, 1})]

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """Errors  CacheError(STORE_FAILED). Cost: a trip and at most 16 objects at a time; two copies of each."""
        found: list[bytes | None] = []
        for at in range(0, len(names), READ_OBJECTS):
            codes, objects = self._ask({"do": "get", "names": names[at : at + READ_OBJECTS]})
            self._expect(codes, {MISSING, UNFINISHED})
            data = iter(objects)
            found += [next(data) if code > 0 else None for code in codes]
        return found

    def put(self, objects: Sequence[tuple[str, bytes]], keep: Keep) -> list[bool]:
        """Errors  CacheError(STORE_FAILED). Cost: a trip for each 8 MiB; two copies; up to 0.2 s where it is full."""
        return put_in_batches(objects, self._servers.largest_bytes, lambda some: self._put(some, keep))

    def retain(self, names: Sequence[str], keep: Keep | None) -> None:
        """Uses them or does nothing: Mooncake cannot change what was put.

        Objects leave in the order of their last lease, by and large, and who asks for one gets a lease.
        """
        if keep is None:
            self.exists(names)

    def remove(self, names: Sequence[str]) -> None:
        self._codes("remove", names, {MISSING, UNFINISHED})

    def status(self) -> StoreStatus:
        """What a master of our own counts; of another one only what this process lends is known."""
        counts = self._servers.counts()
        return StoreStatus(
            self._servers.address,
            counts.get("master_key_count"),
            counts.get("master_allocated_bytes"),
            self._servers.capacity_bytes or None,
        )

    def close(self) -> None:
        with self._turn:
            self._closed = True
            while self._idle:
                self._idle.pop().close()
            self._servers.close()

    def _put(self, objects: Objects, keep: Keep) -> list[bool]:
        asked = {
            "do": "put",
            "names": [name for name, _ in objects],
            "sizes": [len(data) for _, data in objects],
            "soft": keep is Keep.REFERENCED,
        }
        codes, _ = self._ask(asked, [data for _, data in objects])
        self._expect(codes, {NO_ROOM})
        return [code >= 0 for code in codes]

    def _codes(self, verb: str, names: Sequence[str], known: set[int]) -> list[int]:
        codes: list[int] = []
        for at in range(0, len(names), NAMES):
            codes += self._ask({"do": verb, "names": names[at : at + NAMES]})[0]
        self._expect(codes, known)
        return codes

    def _expect(self, codes: Sequence[int], known: set[int]) -> None:
        for code in codes:
            if code < 0 and code not in known:
                raise self._failure(f"code {code}")

    def _ask(self, asked: dict[str, Any], objects: Sequence[bytes] = ()) -> tuple[list[int], list[bytes]]:
        """Errors  CacheError(STORE_FAILED); a line on which anything went wrong is dropped."""
        with self._line() as line:
            return line.ask(asked, objects)

    @contextmanager
    def _line(self) -> Iterator[Line]:
        try:
            line = self._free_line()
        except (OSError, CacheError) as bad:
            raise self._failure(str(bad)) from bad
        try:
            yield line
        except BaseException as bad:
            line.close()
            if isinstance(bad, OSError):
                raise self._failure(str(bad)) from bad
            raise
        with self._turn:
            self._idle.append(line)

    def _free_line(self) -> Line:
        with self._turn:
            if self._closed:
                raise OSError("it is closed")
            if not self._servers.alive:
                while self._idle:
                    self._idle.pop().close()
                self._servers.stop()
                self._servers.start()
            return self._idle.pop() if self._idle else self._servers.connect()

    def _failure(self, why: str) -> CacheError:
        return CacheError(Kind.STORE_FAILED, f"the Mooncake at {self._servers.address} failed: {why}")

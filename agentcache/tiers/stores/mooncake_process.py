"""The process in which a Mooncake client lives: it owns the memory that is lent, and answers on a unix socket.

The client starts threads, writes to stderr, listens on all interfaces, and holds Python's lock while it starts (a
minute where nobody answers) and while it ends (15 s once its master is dead). None of that belongs into a worker; this
process can be killed at any time.

A message, both ways, is a line of JSON and then bytes. Asked: {"do": verb, "names": [...], "sizes": [...]}, then the
objects of a put. Answered: {"codes": [...]}, then the objects of a get. A code is a size, 0, or an error of Mooncake's.

Run as  python -m agentcache.tiers.stores.mooncake_process LISTENING_DESCRIPTOR OWN_HOST MASTER SEGMENT_BYTES FAREWELL
"""

import ctypes
import json
import mmap
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

from mooncake import store as mooncake  # type: ignore[import-not-found,import-untyped,unused-ignore]

NO_ROOM = -200
TOO_SMALL = -600
FIRST_OBJECT_BYTES = 64 << 10
ROOM_TRIES = 20
ROOM_PAUSE_S = 0.01  # the master makes room in the background, once it has said that there is none
FAREWELL_S = 3
ERRORS_ONLY = 2


class Buffer:
    """Registered memory of one connection, which grows."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._room = memoryview(b"")
        self._start = 0

    def of(self, size_bytes: int) -> memoryview:
        """At least so many bytes. What was there before is gone when they are more than before."""
        if size_bytes > len(self._room):
            self.close()
            pages = mmap.mmap(-1, 1 << (size_bytes - 1).bit_length())
            self._start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
            self._room = memoryview(pages)
            self._client.register_buffer(self._start, len(self._room))
        return self._room

    def places(self, sizes: Sequence[int]) -> list[int]:
        """Addresses of pieces of these sizes that lie one behind the other."""
        return [self._start + end for end in accumulate(sizes[:-1], initial=0)]

    def close(self) -> None:
        if self._room:
            self._client.unregister_buffer(self._start)


class Answers:
    """What one connection asks, answered by the shared client."""

    largest_bytes = FIRST_OBJECT_BYTES  # of all objects that were read by any connection

    def __init__(self, client: Any, line: socket.socket) -> None:
        self._client = client
        self._line = line
        self._stream: BinaryIO = line.makefile("rb")
        self._buffer = Buffer(client)
        self._soft = mooncake.ReplicateConfig()
        self._soft.soft_pin_action = mooncake.SoftPinAction.ENABLE
        self._verbs: dict[str, Callable[[dict[str, Any]], tuple[list[int], list[memoryview]]]] = {
            "hello": lambda _: ([0], []),
            "exists": lambda asked: (list(self._client.batch_is_exist(asked["names"])), []),
            "remove": lambda asked: (list(self._client.batch_remove(asked["names"], True)), []),
            "put": self._put,
            "get": self._get,
        }

    def run(self) -> None:
        """Until the other side hangs up."""
        with self._line, self._stream:
            for head in self._stream:
                asked = json.loads(head)
                codes, objects = self._verbs[asked["do"]](asked)
                self._line.sendall(json.dumps({"codes": codes}).encode() + b"\n")
                for data in objects:
                    self._line.sendall(data)
        self._buffer.close()

    def _put(self, asked: dict[str, Any]) -> tuple[list[int], list[memoryview]]:
        names, sizes = asked["names"], asked["sizes"]
        room = self._buffer.of(sum(sizes))[: sum(sizes)]
        at = 0
        while at < len(room):
            got = self._stream.readinto(room[at:])  # type: ignore[attr-defined]
            if not got:
                raise EOFError("the other side hung up in the middle of an object")
            at += got
        places = self._buffer.places(sizes)
        config = self._soft if asked["soft"] else mooncake.ReplicateConfig()
        codes = self._client.batch_put_from(names, places, sizes, config)
        for _ in range(ROOM_TRIES):
            left = [k for k, code in enumerate(codes) if code == NO_ROOM]
            if not left:
                break
            time.sleep(ROOM_PAUSE_S)
            wanted = ([values[k] for k in left] for values in (names, places, sizes))
            for k, code in zip(left, self._client.batch_put_from(*wanted, config), strict=True):
                codes[k] = code
        return codes, []

    def _get(self, asked: dict[str, Any]) -> tuple[list[int], list[memoryview]]:
        """Sizes are not known before, so each object gets the room of the largest seen, and a second try."""
        names = asked["names"]
        codes = self._read(names)
        if TOO_SMALL in codes:
            sizes = (
                self._client.get_size(name)
                for name, code in zip(names, codes, strict=True)
                if code == TOO_SMALL
            )
            Answers.largest_bytes = max(Answers.largest_bytes, *sizes)
            codes = self._read(names)
        room = self._buffer.of(0)
        step = Answers.largest_bytes
        return codes, [room[k * step : k * step + code] for k, code in enumerate(codes) if code > 0]

    def _read(self, names: Sequence[str]) -> list[int]:
        sizes = [Answers.largest_bytes] * len(names)
        self._buffer.of(sum(sizes))
        return list(self._client.batch_get_into(names, self._buffer.places(sizes), sizes))


def silence() -> None:
    """Keep the library to its errors; its notes would fill the log."""
    (package,) = map(Path, sys.modules["mooncake"].__path__)
    for library in package.parent.glob("mooncake_transfer_engine*.libs/libglog*"):
        ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "_ZN3fLI17FLAGS_minloglevelE").value = ERRORS_ONLY


def main(descriptor: int, host: str, master: str, segment_bytes: int, takes_leave: bool) -> None:
    """Serve until killed. One that takes leave of its master first takes back the memory that it lent."""
    client = mooncake.MooncakeDistributedStore()
    code = client.setup(host, "P2PHANDSHAKE", segment_bytes, 0, "tcp", "", master)
    if code:
        sys.exit(f"Mooncake's setup failed with code {code}")
    silence()

    def farewell(*_: object) -> None:
        signal.alarm(FAREWELL_S)  # the master may not answer
        client.close()
        os._exit(0)

    if takes_leave:
        signal.signal(signal.SIGTERM, farewell)
    with socket.socket(fileno=descriptor) as listener:
        while True:
            answers = Answers(client, listener.accept()[0])
            threading.Thread(target=answers.run, daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5] == "farewell")

"""A store in a Redis or Valkey of its own: one that runs already, or an embedded one that ends with its owner.

Objects are plain strings under their names. The classes are times to live: under the policy `volatile-ttl` LOOSE
objects leave first, and in a class those that were not used for longest; under other policies the server chooses. With
`noeviction` a full server keeps what it has, and new objects find no room.
"""

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import redis
from redis.backoff import NoBackoff
from redis.connection import PythonRespSerializer
from redis.exceptions import AuthenticationWrongNumberOfArgsError, NoPermissionError, OutOfMemoryError
from redis.retry import Retry

from agentcache.clock import Clock, SystemClock
from agentcache.embedded import EmbeddedServer, ServerOptions, open_embedded, require_memory
from agentcache.errors import CacheError, Kind
from agentcache.keys import FORMAT_VERSION
from agentcache.tiers.api import Keep
from agentcache.tiers.stores.api import StoreStatus
from agentcache.tiers.stores.batches import Objects, put_in_batches

MARKER = "agentcache/l3"
OURS = re.compile(rb"agentcache/(l3$|%d/)" % FORMAT_VERSION)
DAY_MS = 86_400_000
LIFE_MS = {Keep.LOOSE: DAY_MS, Keep.REFERENCED: 8 * DAY_MS}
STEP_MS = 2
AHEAD_MS = 60_000
CONNECT_S = 1.0
ANSWER_S = 2.0
CONNECTIONS = 64
READ_OBJECTS = 16
COMMANDS = 512
LARGEST_BYTES = 512_000_000  # Redis takes 512 MiB
COPIED_BYTES = 6000  # values above are sent from where they lie
OLDEST = (7, 0)  # the first with PEXPIRE ... GT
POLICY = "volatile-ttl"
SAMPLES = (
    "64"  # of an eviction; with Redis's own 5 the last LOOSE objects would not be found among the others
)
CLOCK = SystemClock()
NO_URL = "no URL of a Redis; one is redis://HOST:PORT/DB, rediss://HOST:PORT/DB or unix://PATH?db=DB"

REFUSALS: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    (
        (redis.AuthenticationError, AuthenticationWrongNumberOfArgsError),
        "wrong user or password: write them into the URL, redis://USER:PASSWORD@HOST:PORT/DB",
    ),
    (
        (NoPermissionError,),
        "this user may not do what a store needs: allow it INFO, and all keys to read and write",
    ),
    ((redis.TimeoutError, redis.ConnectionError, OSError), "no Redis answers: start it, or correct the URL"),
    ((redis.RedisError,), "what answers is no Redis, or none that a store can use: correct the URL"),
)

Command = tuple[str | int | bytes, ...]


def open_redis_store(url: str, capacity_bytes: int, folder: Path, clock: Clock = CLOCK) -> "RedisStore":
    """A store in the Redis at `url` or, where that is empty, in an embedded Valkey that lives in `folder`.

    `capacity_bytes` is for the process that starts the embedded one; a server that runs already has its own cap, its
    `maxmemory`. What an embedded one holds ends with it.

    Errors  CacheError(BAD_CONFIG): no URL of a Redis; nothing answers there, or something else does; wrong user or
            password; a replica, a cluster, too old; a database that is not empty and not ours, or of another format;
            more than the machine's memory; what `open_embedded` says
    """
    if url:
        return RedisStore(Place.of(url), clock)
    require_memory(capacity_bytes, "an embedded Valkey")
    server = open_embedded(folder, ServerOptions(policy=POLICY), clock)
    try:
        return RedisStore(Place.of(f"unix://{quote(str(server.socket))}"), clock, server, capacity_bytes)
    except CacheError:
        server.close()
        raise


@dataclass(frozen=True, slots=True)
class Place:
    """Where a Redis is: its URL, and what may be said of it, without a password."""

    url: str
    address: str

    @classmethod
    def of(cls, url: str) -> "Place":
        """Errors  CacheError(BAD_CONFIG)"""
        scheme, _, rest = url.partition("://")
        place = cls(url, f"{scheme}://{rest.rpartition('@')[2]}")
        options = parse_qs(place.address.partition("?")[2])
        if scheme not in ("redis", "rediss", "unix") or not options.keys() <= {"db"}:
            raise cls(url, place.address.partition("?")[0]).refusal(NO_URL)
        return place

    def refusal(self, why: str, **facts: object) -> CacheError:
        return CacheError(Kind.BAD_CONFIG, f"{self.address}: {why}", **facts)

    def connect(self) -> redis.Redis:
        """A client, for several threads. A connection on which anything went wrong is dropped, with its answers.

        A lost connection is made again once, since all that is asked here may be asked twice; a late one is not.
        """
        try:
            return redis.Redis.from_url(
                self.url,
                protocol=2,
                socket_connect_timeout=CONNECT_S,
                socket_timeout=ANSWER_S,
                max_connections=CONNECTIONS,
                retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
                command_packer=PythonRespSerializer(COPIED_BYTES, _encode),
            )
        except ValueError as bad:
            raise self.refusal(NO_URL) from bad

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Failures at the start, as the one error that says what to do."""
        try:
            yield
        except (redis.RedisError, OSError) as bad:
            why = next(why for kinds, why in REFUSALS if isinstance(bad, kinds))
            raise self.refusal(f"{why} ({bad})") from bad

    def check(self, info: dict[str, Any]) -> None:
        """Refuse a server that no store can use.

        Errors  CacheError(BAD_CONFIG)
        """
        version = str(info.get("redis_version", "0"))
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST:
            raise self.refusal("a Redis before 7.0 is too old: use a later one, or a Valkey", version=version)
        if info.get("role") != "master":
            master = f"{info.get('master_host')}:{info.get('master_port')}"
            raise self.refusal(f"this is a read-only replica: name its master, {master}")
        if info.get("cluster_enabled"):
            raise self.refusal("this is a node of a cluster: use a Redis that stands alone")


class Lives:
    """Times to live that rise from one object to the next, so that the order of use is the order of expiry.

    Beyond 500 objects a second, kept up for a minute, those of one moment are equal.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = threading.Lock()
        self.last_ms = 0

    @property
    def now_ms(self) -> int:
        return self._clock.now_ns() // 1_000_000

    def next_ms(self, keep: Keep) -> int:
        with self._turn:
            now_ms = self.now_ms
            self.last_ms = min(max(self.last_ms + STEP_MS, now_ms), now_ms + AHEAD_MS)
            return LIFE_MS[keep] + self.last_ms - now_ms

    def answered(self, last_ms: int, began_ms: int) -> None:
        """What was named since `began_ms`, `last_ms` last, is with the server. It may have taken it as late as now, and
        then it lives that much longer; what is used from here on outlives it.
        """
        with self._turn:
            self.last_ms = max(self.last_ms, last_ms + self.now_ms - began_ms)


class RedisStore:
    """Objects in a database that holds nothing else. Made by `open_redis_store`.

    An embedded server that is gone, by a crash or with the process that owned it, is started again by the next call;
    it is empty then.
    """

    name = "redis"

    def __init__(
        self, place: Place, clock: Clock, server: EmbeddedServer | None = None, capacity_bytes: int = 0
    ) -> None:
        self._place = place
        self._server = server
        self._capacity_bytes = capacity_bytes
        self._lives = Lives(clock)
        self._closed = False
        self._client = place.connect()
        with place.refusing():
            self._move_in()

    def exists(self, names: Sequence[str]) -> list[bool]:
        return [bool(answer) for answer in self._ask([("EXISTS", name) for name in names])]

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """Errors  CacheError(STORE_FAILED). Cost: a round trip and at most 16 objects at a time; two copies of each.

        A read makes a LOOSE object the newest of its class; GT leaves a REFERENCED one, which lives longer, alone. That
        comes first, as a full server drops its oldest objects to make room for the answer.
        """
        found: list[bytes | None] = []
        for at in range(0, len(names), READ_OBJECTS):
            some = names[at : at + READ_OBJECTS]
            use = (("PEXPIRE", name, self._lives.next_ms(Keep.LOOSE), "GT") for name in some)
            found += self._use(use, ("MGET", *some))[-1]
        return found

    def put(self, objects: Sequence[tuple[str, bytes]], keep: Keep) -> list[bool]:
        """One SET an object: MSET is 3 to 6 times slower. Cost: a round trip for each 8 MiB."""
        largest_bytes = min(self._capacity_bytes or LARGEST_BYTES, LARGEST_BYTES)
        return put_in_batches(objects, largest_bytes, lambda some: self._put(some, keep))

    def retain(self, names: Sequence[str], keep: Keep | None) -> None:
        """Errors  CacheError(STORE_FAILED). Cost: a trip for each 512 objects, two where they stay in their class.

        A class that another worker changes between those two is changed back.
        """
        keeps = [keep] * len(names) if keep else self._classes(names)
        ours = ((name, kept) for name, kept in zip(names, keeps, strict=True) if kept)
        self._use(("PEXPIRE", name, self._lives.next_ms(kept)) for name, kept in ours)

    def remove(self, names: Sequence[str]) -> None:
        self._ask([("UNLINK", name) for name in names])

    def status(self) -> StoreStatus:
        memory, keys = self._ask([("INFO", "memory"), ("DBSIZE",)])
        used_bytes = memory["used_memory"] - memory.get("used_memory_startup", 0)
        return StoreStatus(self._place.address, max(0, keys - 1), used_bytes, self._capacity_bytes or None)

    def close(self) -> None:
        self._closed = True
        self._client.close()
        if self._server:
            self._server.close()

    def _classes(self, names: Sequence[str]) -> list[Keep | None]:
        """The class of each object, by how long it has left; None for what is not there."""
        lives_ms = self._ask([("PTTL", name) for name in names])
        classes = (Keep.REFERENCED if life_ms > DAY_MS + AHEAD_MS else Keep.LOOSE for life_ms in lives_ms)
        return [keep if life_ms > 0 else None for keep, life_ms in zip(classes, lives_ms, strict=True)]

    def _put(self, objects: Objects, keep: Keep) -> list[bool]:
        sets = (("SET", name, data, "NX", "PX", self._lives.next_ms(keep)) for name, data in objects)
        return [not isinstance(answer, OutOfMemoryError) for answer in self._use(sets)]

    def _use(self, commands: Iterable[Command], *then: Command) -> list[Any]:
        """As `_ask`, of commands that name times to live, which they must not do before they are asked for here."""
        began_ms = self._lives.now_ms
        named = [*commands, *then]
        last_ms = self._lives.last_ms
        answers = self._ask(named)
        self._lives.answered(last_ms, began_ms)
        return answers

    def _ask(self, commands: Sequence[Command]) -> list[Any]:
        """The answers, in order; of what was refused, only for want of memory.

        Errors  CacheError(STORE_FAILED)
        """
        answers: list[Any] = []
        try:
            for at in range(0, len(commands), COMMANDS):
                answers += self._send(commands[at : at + COMMANDS])
        except (redis.RedisError, OSError, CacheError) as bad:
            raise CacheError(Kind.STORE_FAILED, f"the store at {self._place.address} failed: {bad}") from bad
        return answers

    def _send(self, commands: Sequence[Command]) -> list[Any]:
        if self._closed:
            raise CacheError(Kind.STORE_FAILED, "it is closed")
        try:
            return self._round_trip(commands)
        except redis.ConnectionError:
            if not self._server:
                raise
            self._server.ensure()
            self._move_in()
            return self._round_trip(commands)

    def _round_trip(self, commands: Sequence[Command]) -> list[Any]:
        with self._client.pipeline(transaction=False) as line:
            for command in commands:
                line.execute_command(*command)  # type: ignore[no-untyped-call]
            answers = line.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception) and not isinstance(answer, OutOfMemoryError):
                raise answer
        return answers

    def _move_in(self) -> None:
        """Make sure that this is a server for us, and mark the database as ours."""
        info = self._client.info()
        self._place.check(info)
        self._claim()
        if not self._server:
            self._capacity_bytes = info["maxmemory"]
        elif self._server.owned:
            cap = {
                "maxmemory": self._capacity_bytes + info["used_memory_startup"],
                "maxmemory-samples": SAMPLES,
            }
            self._client.config_set(*[word for pair in cap.items() for word in pair])
            self._client.hset(MARKER, "capacity_bytes", str(self._capacity_bytes))
        else:
            self._capacity_bytes = int(self._client.hget(MARKER, "capacity_bytes") or self._capacity_bytes)

    def _claim(self) -> None:
        if not self._client.exists(MARKER):
            some = islice(self._client.scan_iter(count=COMMANDS), COMMANDS)
            foreign = [key for key in map(_encode, some) if not OURS.match(key)]
            if foreign:
                raise self._place.refusal(
                    "this database holds what is not ours; name an empty one (the number at the end of the URL), or, "
                    "if nobody needs what is in it, empty it with FLUSHDB",
                    found=foreign[0].decode(errors="replace"),
                )
        self._client.hsetnx(MARKER, "format", str(FORMAT_VERSION))
        found = self._client.hget(MARKER, "format")
        if found != str(FORMAT_VERSION).encode():
            raise self._place.refusal(
                f"this database holds objects of format {found!r}, and ours is {FORMAT_VERSION}; name another one (the "
                "number at the end of the URL), or empty it with FLUSHDB"
            )


def _encode(word: str | int | bytes) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()

"""Every session store, for tests that hold for all of them. A new one is a line in `STORES`."""

import contextlib
import itertools
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, aclosing, asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import redis

from agentcache.clock import SystemClock
from agentcache.embedded import GuardedProcess, ServerOptions, open_embedded
from agentcache.store.api import Beat, Done, Mail, SessionRef, Store, StoreRules, Tagged, Use
from agentcache.store.connect import connect
from agentcache.store.memory import MemoryStore
from agentcache.wire import Notice, Outcome, Receipt, WorkerCard, WorkerLoad
from tests.ports import free_ports

CLOCK = SystemClock()
PATIENCE_NS = 60_000_000_000
START_MS = 1_800_000_000_000
CLUSTER_SLOTS = 16384
PATIENT_S = (
    60.0  # a call, where a test is not about how long one waits: the machine may stand still for a while
)
NODES = 3
A, B, C, D = (SessionRef("t", name) for name in "abcd")


class Servers:
    """Servers of a folder, started when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self._urls: dict[str, str] = {}
        self._nodes: dict[int, tuple[GuardedProcess, Path]] = {}

    def url(self, kind: str) -> str:
        """Where a server of that kind is."""
        if kind not in self._urls:
            self._urls[kind] = getattr(self, f"_{kind}")(self._folder / kind)
        return self._urls[kind]

    def stop_nodes(self) -> None:
        """End every node of the cluster."""
        for process, _ in self._nodes.values():
            process.stop()

    def start_nodes(self) -> None:
        """Start them again, where they were and without sessions."""
        for port, (_, folder) in list(self._nodes.items()):
            self._start_node(port, folder)
        for port in self._nodes:
            with redis.Redis(port=port, decode_responses=True) as client:
                until_it_answers(client)
                until(partial(_is_whole, client))

    def count(self, section: str, name: str) -> int:
        """A number of INFO, over all nodes of the cluster."""
        total = 0
        for port in self._nodes:
            with redis.Redis(port=port) as client:
                information: Any = client.info(section)
            total += int(information[name])
        return total

    def close(self) -> None:
        self._running.close()

    def _valkey(self, folder: Path) -> str:
        server = open_embedded(folder, ServerOptions(append_only=True), CLOCK)
        self._running.callback(server.close)
        return f"unix://{server.socket}"

    def _redis7(self, folder: Path) -> str:
        folder.mkdir()
        socket = folder / "s.sock"
        self._start(folder, "--port", "0", "--unixsocket", str(socket), "--dir", str(folder))
        with redis.Redis(unix_socket_path=str(socket)) as client:
            until_it_answers(client)
        return f"unix://{socket}"

    def _cluster(self, folder: Path) -> str:
        ports = [self._node(folder / str(number)) for number in range(NODES)]
        clients: list[Any] = [redis.Redis(port=port, decode_responses=True) for port in ports]
        for number, client in enumerate(clients):
            until_it_answers(client)
            first, end = (CLUSTER_SLOTS * at // NODES for at in (number, number + 1))
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", ports[0], ports[0] + 1)
        for client in clients:
            until(partial(_is_whole, client))
            client.close()
        return f"redis+cluster://127.0.0.1:{ports[0]}"

    def _node(self, folder: Path) -> int:
        folder.mkdir(parents=True)
        port, _ = free_ports(2)  # a node and its bus
        self._start_node(port, folder)
        return port

    def _start_node(self, port: int, folder: Path) -> None:
        bus = ("--cluster-enabled", "yes", "--cluster-port", str(port + 1), "--bind", "127.0.0.1")
        process = self._start(folder, "--port", str(port), *bus, "--dir", str(folder))
        self._nodes[port] = (process, folder)

    def _start(self, folder: Path, *options: str) -> GuardedProcess:
        binary = shutil.which("redis-server")
        assert binary, "apt-get install redis-server"
        process = GuardedProcess([binary, "--save", "", "--daemonize", "no", *options], folder / "log")
        self._running.callback(process.stop)
        return process


def _is_whole(client: Any) -> bool:
    """Whether a node knows all nodes of its cluster, and every slot has one."""
    info = str(client.execute_command("CLUSTER", "INFO"))
    return "cluster_state:ok" in info and f"cluster_known_nodes:{NODES}" in info


def until(happened: Callable[[], bool]) -> None:
    deadline = CLOCK.now_ns() + PATIENCE_NS
    while not happened():
        assert CLOCK.now_ns() < deadline, "it did not happen in time"


def until_it_answers(client: redis.Redis) -> None:
    def answers() -> bool:
        with contextlib.suppress(redis.ConnectionError):
            return bool(client.ping())
        return False

    until(answers)


class Scene:
    """A store, its time, and what tests do often."""

    def __init__(self, store: Store, hours: "Hours") -> None:
        self.store = store
        self.hours = hours
        self._numbers = itertools.count(1)

    async def worker(self, name: str, incarnation: str = "1") -> "Worker":
        """A worker that is registered, and reads its streams from now on."""
        await self.store.register(card(name, incarnation))
        cursors = [(await self.store.mail(name, shard, "", 0)).cursor for shard in range(self.store.shards)]
        return Worker(self.store, name, incarnation, cursors)

    async def tag(self, ref: SessionRef, worker: str = "", **more: Any) -> Tagged:
        """A request of its own."""
        return await self.store.tag(ref, Use(f"r{next(self._numbers)}", worker, **more))

    async def turn(self, ref: SessionRef, worker: str = "") -> Tagged:
        """A request that ends, and registers where the session is."""
        request = f"r{next(self._numbers)}"
        tagged = await self.store.tag(ref, Use(request, worker))
        done = Done(request, tagged.generation, tagged.worker, tagged.placement, registered=True)
        assert await self.store.done(ref, done)
        return tagged

    async def state(self, ref: SessionRef) -> str:
        return (await self.store.look(ref)).state


@dataclass
class Worker:
    """A worker's side of a store."""

    store: Store
    name: str
    incarnation: str
    cursors: list[str]

    async def notices(self, wait_s: float = 0) -> list[Notice]:
        """New ones, of every shard."""
        mails = [await self.mail(shard, wait_s) for shard in range(len(self.cursors))]
        assert not any(mail.gap for mail in mails)
        return [notice for mail in mails for notice in mail.notices]

    async def mail(self, shard: int = 0, wait_s: float = 0) -> Mail:
        mail = await self.store.mail(self.name, shard, self.cursors[shard], wait_s)
        self.cursors[shard] = mail.cursor
        return mail

    async def answer(self, notice: Notice, outcome: Outcome = Outcome.RELEASED) -> None:
        await self.store.receipt(receipt(notice, self.name, outcome))

    async def beat(self, highest: int = 0) -> Beat:
        return await self.store.heartbeat(self.name, self.incarnation, highest, WorkerLoad())


class Hours:
    """Unix milliseconds that pass when told."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += round(seconds * 1000)


def card(name: str, incarnation: str = "1") -> WorkerCard:
    return WorkerCard(name, incarnation, f"http://127.0.0.1/{name}", "tiny-all", 4096, 16, 64, 4, 100)


def receipt(notice: Notice, worker: str, outcome: Outcome = Outcome.RELEASED) -> Receipt:
    """A worker's answer to a notice."""
    return Receipt(
        notice.order,
        notice.tenant,
        notice.session,
        notice.generation,
        worker,
        outcome,
        notice.operation,
        notice.reply_to,
        mode=notice.mode,
    )


@dataclass(frozen=True)
class StoreCase:
    """How to make one store, empty."""

    make: Callable[[Servers, StoreRules, Hours], AbstractAsyncContextManager[Store]]
    marks: tuple[pytest.MarkDecorator, ...] = ()


@asynccontextmanager
async def memory(_: Servers, rules: StoreRules, hours: Hours) -> AsyncIterator[Store]:
    epochs = (f"epoch {number}" for number in itertools.count(1))
    yield MemoryStore(rules, hours.now_ms, lambda: next(epochs))


def served(kind: str) -> Callable[[Servers, StoreRules, Hours], AbstractAsyncContextManager[Store]]:
    """A store on a server of that kind, whose time is the test's."""

    @asynccontextmanager
    async def make(servers: Servers, rules: StoreRules, hours: Hours) -> AsyncIterator[Store]:
        store = await connect(servers.url(kind), rules, now_ms=hours.now_ms, call_s=PATIENT_S)
        async with aclosing(store):
            await store.forget()
            await store.prepare()
            yield store

    return make


STORES: dict[str, StoreCase] = {
    "memory": StoreCase(memory),
    "valkey": StoreCase(served("valkey")),
    "redis7": StoreCase(served("redis7"), (pytest.mark.system,)),
    "cluster": StoreCase(served("cluster"), (pytest.mark.system,)),
}


def store_cases() -> list[object]:
    """Parameters for `pytest.mark.parametrize("case", store_cases())`, each with its markers."""
    return [pytest.param(case, id=name, marks=case.marks) for name, case in STORES.items()]


every_store = pytest.mark.parametrize("case", store_cases())
RULES = StoreRules(
    ttl_s=100,
    reopen_after_s=20,
    tombstone_s=200,
    tombstones=8,
    in_flight_s=50,
    worker_s=30,
    close_limit=4,
    stream_length=120,
)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with closing(Servers(tmp_path_factory.mktemp("servers"))) as made:
        yield made


@pytest_asyncio.fixture
async def scene(case: StoreCase, servers: Servers) -> AsyncIterator[Scene]:
    """A store that is empty, under `RULES`."""
    hours = Hours()
    async with case.make(servers, RULES, hours) as store:
        yield Scene(store, hours)

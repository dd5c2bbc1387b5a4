"""Servers that answer and take no writes: replicas after a fail-over, full ones. They are as good as away."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from agentcache.embedded import EmbeddedServer, ServerOptions, open_embedded
from agentcache.errors import CacheError, Kind
from agentcache.router.fleet import FleetView
from agentcache.store.api import Closing, Opening, OpenVerdict, Store, Use
from agentcache.wire import WorkerLoad
from tests.addresses import Address, Serve, served_by
from tests.sessionstores import CLOCK, A, B, card, until

pytestmark = pytest.mark.asyncio
NOBODY = ("127.0.0.1", 1)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Sequence[EmbeddedServer]]:
    """Two servers of their own."""
    first = open_embedded(tmp_path / "first", ServerOptions(), CLOCK)
    second = open_embedded(tmp_path / "second", ServerOptions(), CLOCK)
    with closing(first), closing(second):
        yield first, second


def client(server: EmbeddedServer) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(server.socket))


async def refusals(store: Store) -> list[str]:
    """What a router and a worker are told by a store that takes no writes."""
    asked = (
        store.tag(B, Use("r1")),
        store.workers(),
        store.heartbeat("w1", "1", 0, WorkerLoad()),
        store.sweep(10),
    )
    said = await asyncio.gather(*asked, return_exceptions=True)
    refused = [one for one in said if isinstance(one, CacheError)]
    assert [one.kind for one in refused] == [Kind.STORE_FAILED] * len(asked)
    return [one.message for one in refused]


async def test_after_a_fail_over_the_next_call_goes_to_the_new_master(
    two: Sequence[EmbeddedServer], tmp_path: Path
) -> None:
    """Nobody closes the connections to the old one, which is a replica now and answers reads for ever."""
    first, second = two
    address = Address(first.socket)
    async with served_by(address.serve, tmp_path / "s") as store:
        await store.register(card("w1"))
        assert address.connections == 1
        with client(first) as line:
            line.replicaof(*NOBODY)
        for said in await refusals(store):
            assert "read only replica" in said
            assert said.endswith("replica.")
        address.behind = second.socket
        before = address.connections
        opened = await asyncio.gather(*(store.open(one, Opening()) for one in (A, B)))
        assert {one.verdict for one in opened} == {OpenVerdict.CREATED}
        assert address.connections == before + 1


async def test_calls_that_meet_the_replica_are_sent_once_more_to_the_new_master(
    two: Sequence[EmbeddedServer], tmp_path: Path
) -> None:
    first, second = two
    address = Address(first.socket)
    async with served_by(address.serve, tmp_path / "s") as store:
        await store.open(A, Opening())
        with client(first) as line:
            line.replicaof(*NOBODY)
        address.behind = second.socket
        opened, tagged = await asyncio.gather(store.open(B, Opening()), store.tag(B, Use("r1")))
        assert (opened.verdict, tagged.generation) == (OpenVerdict.CREATED, opened.generation)
        assert address.connections == 2


async def test_a_store_that_is_full_takes_nobody_for_dead(
    two: Sequence[EmbeddedServer], tmp_path: Path
) -> None:
    """Heartbeats are writes: without them every worker would look dead while reads are answered."""
    full, _ = two
    fleet = FleetView()
    async with served_by(Address(full.socket).serve, tmp_path / "s") as store:
        await store.register(card("w1"))
        await fleet.refresh(store)
        with client(full) as line:
            line.config_set("maxmemory", "1mb")
            for said in await refusals(store):
                assert "maxmemory" in said
            await fleet.refresh(store)
            assert fleet.store_down
            assert [view.alive for view in fleet.views()] == [True]
            line.config_set("maxmemory", "0")
        assert await store.heartbeat("w1", "1", 0, WorkerLoad())
        await fleet.refresh(store)
        assert not fleet.store_down


async def test_who_waits_for_mail_waits_at_the_new_master(
    two: Sequence[EmbeddedServer], tmp_path: Path
) -> None:
    """Its own connection to the old one is alive, too, and nothing would ever come there."""
    first, second = two
    address = Address(first.socket)
    async with served_by(address.serve, tmp_path / "s") as store:
        before = await store.mail("w1", 0, "", 0)
        assert not (await store.mail("w1", 0, before.cursor, 0.01)).notices
        with client(first) as line:
            line.replicaof(*NOBODY)
        address.behind = second.socket
        await store.register(card("w1"))
        await store.tag(A, Use("r1", "w1"))
        begin = await store.mail("w1", 0, "", 0)
        waits = asyncio.create_task(store.mail("w1", 0, begin.cursor, 20))
        with client(second) as line:
            await asyncio.to_thread(until, lambda: blocked(line) == 1)
        await store.close(A, Closing())
        assert [notice.session for notice in (await waits).notices] == ["a"]


def blocked(line: redis.Redis) -> int:
    information: Any = line.info("clients")
    return int(information["blocked_clients"])


REFUSALS = (
    "-READONLY You can't write against a read only replica.",
    "-ERR Error running script (call to f_0): @user_script:3: @user_script: 3: -READONLY You can't write against a "
    "read only replica. ",
    "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "-LOADING Redis is loading the dataset in memory",
    "-CLUSTERDOWN The cluster is down",
    "-TRYAGAIN Multiple keys request during rehashing of slot",
)


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_whoever_is_no_master_now_is_asked_over_a_new_connection(tmp_path: Path, refusal: str) -> None:
    refusing = [refusal, refusal, refusal]
    async with served_by(saying(refusing), tmp_path / "s") as store:
        with pytest.raises(CacheError) as refused:
            await store.look(A)
        assert refused.value.kind is Kind.STORE_FAILED
        assert len(refusing) == 1, "once more, and then it is told"
        assert (await store.look(A)).state == "none"


def saying(refusing: list[str]) -> Serve:
    """A server that answers commands with these refusals, last first, and then that there is no such session."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            said = refusing.pop() if refusing else "*1\r\n*2\r\n$4\r\nnone\r\n$1\r\n0"
            writer.write(f"{said}\r\n".encode())
        writer.close()
        await writer.wait_closed()

    return serve

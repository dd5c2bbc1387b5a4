"""Where a session store is, and what survives whom."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path

import pytest
import redis

from agentcache.clock import SystemClock
from agentcache.embedded import ServerOptions, open_embedded
from agentcache.errors import CacheError, Kind
from agentcache.store.api import Opening, StoreRules, TagVerdict, Use
from agentcache.store.calls import Calls
from agentcache.store.connect import connect
from agentcache.store.lines import ServerLine
from agentcache.store.pipe import Pipe
from agentcache.store.redis import RedisStore
from tests.patience import pass_time, until
from tests.sessionstores import PATIENT_S, A, Servers, card

RULES = StoreRules()


def client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True)


@asynccontextmanager
async def stored(url: str) -> AsyncIterator[RedisStore]:
    async with aclosing(await connect(url, RULES, call_s=PATIENT_S)) as store:
        yield store


@asynccontextmanager
async def fresh(servers: Servers) -> AsyncIterator[RedisStore]:
    async with stored(servers.url("valkey")) as store:
        await store.forget()
        await store.prepare()
        yield store


async def refusal(url: str) -> CacheError:
    """Of a server or a URL that no store can use."""
    with pytest.raises(CacheError) as refused:
        async with stored(url) as store:
            await store.prepare()
    return refused.value


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "url",
    ["", "store", "http://127.0.0.1/0", "redis://127.0.0.1:port", "redis://127.0.0.1/0?ssl_ca_certs=x"],
)
async def test_what_is_no_url_of_a_store_is_refused_without_its_password(url: str) -> None:
    refused = await refusal(url.replace("://", "://me:sesame@"))
    assert refused.kind is Kind.BAD_CONFIG
    assert "redis://HOST:PORT/DB" in refused.message
    assert "sesame" not in str(refused)


@pytest.mark.asyncio
async def test_keys_of_another_format_are_refused_with_the_command_to_run(servers: Servers) -> None:
    async with fresh(servers) as store:
        with client(servers.url("valkey")) as line:
            line.set("ac:{0}:format", "0/1")
        with pytest.raises(CacheError) as refused:
            await store.prepare()
        assert refused.value.kind is Kind.BAD_CONFIG
        assert "agentcache router --forget-sessions" in refused.value.message
        await store.forget()
        assert await store.prepare()


@pytest.mark.asyncio
async def test_another_number_of_shards_is_another_format(servers: Servers) -> None:
    async with fresh(servers) as store:
        other = RedisStore(Calls(store.calls.line, RULES, 2, None))
        with pytest.raises(CacheError, match="another number of shards"):
            await other.prepare()


@pytest.mark.asyncio
async def test_servers_that_no_store_can_use_are_refused(servers: Servers) -> None:
    url = servers.url("valkey")
    with client(url) as line:
        line.config_set("maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
        evicting = await refusal(url)
        line.config_set("maxmemory", "0", "maxmemory-policy", "noeviction")
        line.config_set("requirepass", "sesame")
        locked = await refusal(url)
        wrong = await refusal(url.replace("://", "://:wrong@"))
        line.config_set("requirepass", "")
    assert evicting.kind is locked.kind is wrong.kind is Kind.BAD_CONFIG
    assert "noeviction" in evicting.message
    assert "wrong user or password" in locked.message
    assert "wrong user or password" in wrong.message


@pytest.mark.system
@pytest.mark.asyncio
async def test_a_node_of_a_cluster_is_refused_with_the_url_to_write(servers: Servers) -> None:
    refused = await refusal(servers.url("cluster").replace("+cluster", ""))
    assert refused.kind is Kind.BAD_CONFIG
    assert "redis+cluster://" in refused.message


@pytest.mark.asyncio
async def test_forget_leaves_what_is_not_ours(servers: Servers) -> None:
    async with fresh(servers) as store:
        with client(servers.url("valkey")) as line:
            line.set("somebody else's", "yes")
            await store.open(A, Opening())
            await store.forget()
            assert line.keys() == ["somebody else's"]
            line.flushall()


@pytest.mark.asyncio
@pytest.mark.parametrize("field", ["g", "u", "ttl", "tool"])
async def test_a_record_that_is_there_in_part_is_not_there(servers: Servers, field: str) -> None:
    """R211: half a session is never served, and nothing of it is left once the name is used again."""
    async with fresh(servers) as store:
        before = await store.tag(A, Use("r1", "w1"))
        with client(servers.url("valkey")) as line:
            line.hdel("ac:{0}:s:t/a", field)
            assert (await store.look(A)).state == "none"
            assert (await store.list("t", "", 10)).records == ()
            after = await store.tag(A, Use("r2"))
            assert (after.verdict, after.worker) == (TagVerdict.OPENED, "")
            assert after.generation > before.generation
            assert line.zrange("ac:{0}:f:t/a", 0, -1) == ["r2"]
            line.hdel("ac:{0}:s:t/a", field)
            line.zadd("ac:{0}:idle", {"t/a": 0})
            await store.sweep(10)
            assert line.keys("ac:{0}:[sfc]:*") == []


@pytest.mark.asyncio
async def test_a_server_that_lost_everything_is_another_epoch_with_higher_generations(
    servers: Servers,
) -> None:
    async with fresh(servers) as store:
        before = await store.tag(A, Use("r1"))
        with client(servers.url("valkey")) as line:
            line.flushall()
        after = await store.tag(A, Use("r2"))
        assert after.epoch != before.epoch
        assert after.generation > before.generation
        assert await store.prepare() == after.epoch
        with client(servers.url("valkey")) as line:
            assert line.get("ac:{0}:format") == "1/1"


@pytest.mark.asyncio
async def test_of_a_worker_that_left_nothing_stays(servers: Servers) -> None:
    """And what one begins that never registers goes by itself."""
    async with fresh(servers) as store:
        with client(servers.url("valkey")) as line:
            stream = "ac:{0}:m:w1"
            await store.mail("w1", 0, "", 0)
            assert 0 < line.pttl(stream) <= 600_000
            await store.register(card("w1"))
            assert line.pttl(stream) == -1
            await store.leave("w1", "1")
            assert line.keys("*w1*") == []


@pytest.mark.asyncio
async def test_the_servers_own_clock_counts_where_none_is_given(servers: Servers) -> None:
    async with fresh(servers) as store:
        with client(servers.url("valkey")) as line:
            seconds, microseconds = line.time()
        generation = (await store.open(A, Opening())).generation
        assert 0 <= generation - (seconds * 1_000_000 + microseconds) < 60_000_000


@pytest.mark.asyncio
async def test_a_reader_that_is_cancelled_takes_nobodys_entries(servers: Servers) -> None:
    async with fresh(servers) as store:
        start = await store.mail("w1", 0, "", 0)
        for _ in range(3):
            waits = asyncio.create_task(store.mail("w1", 0, start.cursor, 20))
            for _ in range(50):
                await asyncio.sleep(0)
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)
            assert (await store.mail("w1", 0, start.cursor, 0.01)).notices == ()
            assert (await store.receipts("r1", "", 0.01)) == ()


async def silence_passes(pipe: Pipe) -> None:
    """Until a ping has gone out that is answered or late; one is on its way when its task has taken some turns."""
    await until(lambda: pipe._sender and not pipe._sender.done())
    for _ in range(5):
        await asyncio.sleep(0)
    pass_time(PATIENT_S)
    await until(lambda: not pipe._sender or pipe._sender.done())


@pytest.mark.asyncio
async def test_a_connection_that_died_in_silence_is_found_before_a_caller_does(tmp_path: Path) -> None:
    """R147: nobody asks, and a ping finds that the server does not answer on this connection any more."""
    server = open_embedded(tmp_path, ServerOptions(), SystemClock())
    with closing(server):
        line = ServerLine(f"unix://{server.socket}", "here", ping_s=0.02, call_s=PATIENT_S)
        try:
            first, number = await line.command("CLIENT", "ID"), (await line.info())["process_id"]
            os.kill(number, signal.SIGSTOP)
            while line._pipe._line:
                await silence_passes(line._pipe)
            os.kill(number, signal.SIGCONT)
            assert await line.command("CLIENT", "ID") != first
        finally:
            await line.close()


@pytest.mark.asyncio
async def test_a_server_that_hangs_costs_those_who_come_meanwhile_no_more(servers: Servers) -> None:
    """R147: who waits behind a silence is told with the others, not after a silence of his own."""
    async with fresh(servers) as store:
        with client(servers.url("valkey")) as line:
            number = line.info("server")["process_id"]
        os.kill(number, signal.SIGSTOP)
        try:
            first = asyncio.create_task(store.look(A))
            for _ in range(5):
                await asyncio.sleep(0)
            meanwhile = [asyncio.create_task(store.tag(A, Use(f"r{number}"))) for number in range(20)]
            for _ in range(5):
                await asyncio.sleep(0)
            pass_time(PATIENT_S)
            async with asyncio.timeout(PATIENT_S / 2):
                outcomes = await asyncio.gather(first, *meanwhile, return_exceptions=True)
        finally:
            os.kill(number, signal.SIGCONT)
        assert {one.kind for one in outcomes if isinstance(one, CacheError)} == {Kind.STORE_FAILED}
        assert all(isinstance(one, CacheError) for one in outcomes)
        assert (await store.look(A)).in_flight in (0, 1), "one that is late is not sent again"


@pytest.mark.asyncio
async def test_a_store_that_was_let_go_answers_nobody(servers: Servers) -> None:
    async with fresh(servers) as store:
        waiting = asyncio.create_task(store.look(A))
        await asyncio.sleep(0)
        await store.aclose()
        (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(outcome, CacheError)
        with pytest.raises(CacheError, match="closed"):
            await store.look(A)

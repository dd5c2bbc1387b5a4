"""What is said of a server that started anew: that it lost data where it did, and else only that it started."""

import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from agentcache.embedded import EmbeddedServer, ServerOptions, open_embedded
from agentcache.errors import CacheError, Kind
from agentcache.store.api import Opening
from agentcache.store.redis import RedisStore
from agentcache.wire import WorkerLoad
from tests.sessionstores import CLOCK, A, Servers, card
from tests.unit.store.test_connect import client, fresh, stored

pytestmark = pytest.mark.asyncio
STARTED = "store_restarted"
LOST = "store_lost_data"


async def said(store: RedisStore) -> list[str]:
    with capture_logs() as lines:
        await store.prepare()
    return [line["event"] for line in lines]


def killed(server: EmbeddedServer) -> None:
    with client(f"unix://{server.socket}") as line:
        information: Any = line.info("server")
    os.kill(int(information["process_id"]), signal.SIGKILL)
    server.close()


@pytest.mark.parametrize(("kept", "event"), [(True, STARTED), (False, LOST)])
async def test_a_server_that_was_killed_is_told_by_what_it_kept(
    tmp_path: Path, kept: bool, event: str
) -> None:
    options = ServerOptions(append_only=kept)
    with closing(open_embedded(tmp_path, options, CLOCK)) as server:
        async with stored(f"unix://{server.socket}") as store, stored(f"unix://{server.socket}") as other:
            assert await said(store) == await said(other) == []
            await store.open(A, Opening())
            epoch = await store.prepare()
            killed(server)
            with closing(open_embedded(tmp_path, options, CLOCK)):
                assert await said(store) == [event]
                assert await store.prepare() != epoch
                assert await said(other) == [event], "whoever looks first tells the others what was kept"
                assert await said(store) == []
                assert ((await store.look(A)).state == "open") == kept


async def test_a_server_that_kept_an_old_state_has_lost_data(servers: Servers) -> None:
    async with fresh(servers) as store:
        with client(servers.url("valkey")) as line:
            line.set("ac:{0}:asked", 0)
            line.set("ac:{0}:run", "another start")
        assert await said(store) == [LOST]


async def test_data_that_was_flushed_is_lost(servers: Servers) -> None:
    async with fresh(servers) as store:
        with client(servers.url("valkey")) as line:
            line.flushall()
        assert await said(store) == [LOST]


async def test_a_worker_whose_card_alone_was_forgotten_has_to_register(servers: Servers) -> None:
    """Forgetting goes key by key, and workers register meanwhile."""
    async with fresh(servers) as store:
        await store.register(card("w1"))
        assert (await store.heartbeat("w1", card("w1").incarnation, 0, WorkerLoad())).known
        with client(servers.url("valkey")) as line:
            assert line.hdel("ac:{0}:card", "w1") == 1
        assert not (await store.heartbeat("w1", card("w1").incarnation, 0, WorkerLoad())).known
        await store.register(card("w1"))
        assert [entry.card for entry in await store.workers()] == [card("w1")]


async def test_a_server_is_looked_at_when_it_starts_and_not_each_time(servers: Servers) -> None:
    """INFO of everything costs a server as much as twenty requests."""
    async with fresh(servers) as store:
        with client(servers.url("valkey")) as line:

            def asked() -> int:
                statistics: Any = line.info("commandstats")
                return int(statistics["cmdstat_info"]["calls"])

            once = asked()
            await store.prepare()
            scripts = asked() - once - 1
            assert scripts == 1, "the script's own"
            line.config_set("maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
            line.set("ac:{0}:run", "another start")
            try:
                with pytest.raises(CacheError) as refused:
                    await store.prepare()
            finally:
                line.config_set("maxmemory", "0", "maxmemory-policy", "noeviction")
            assert refused.value.kind is Kind.BAD_CONFIG

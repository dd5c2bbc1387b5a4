"""A cluster that is away is a store that is away: every call says so, and the next one after it is back is answered."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.store.api import (
    Closing,
    Opening,
    OpenVerdict,
    SessionRef,
    Store,
    StoreRules,
    Tagged,
    Use,
)
from agentcache.store.connect import connect
from agentcache.wire import Notice, WorkerLoad
from tests.sessionstores import PATIENT_S, A, Servers, card, until

pytestmark = [pytest.mark.asyncio, pytest.mark.system]
CALLS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "prepare": lambda store: store.prepare(),
    "open": lambda store: store.open(A, Opening()),
    "tag": lambda store: store.tag(A, Use("r1")),
    "close": lambda store: store.close(A, Closing()),
    "workers": lambda store: store.workers(),
    "sweep": lambda store: store.sweep(10),
    "receipts": lambda store: store.receipts("r1", "", 0),
    "register": lambda store: store.register(card("w1")),
    "heartbeat": lambda store: store.heartbeat("w1", "1", 0, WorkerLoad()),
    "mail": lambda store: store.mail("w1", 0, "", 0),
    "forget": lambda store: store.forget(),
}


@asynccontextmanager
async def stored(url: str) -> AsyncIterator[Store]:
    async with aclosing(await connect(url, StoreRules(), call_s=PATIENT_S)) as store:
        yield store


async def test_a_cluster_goes_away_and_comes_back(tmp_path: Path) -> None:
    """Also for a router and a worker that start while it is away: they ask `prepare`, and go on."""
    with closing(Servers(tmp_path)) as servers:
        url = servers.url("cluster")
        async with stored(url) as known, stored(url) as new:
            before = await known.prepare()
            assert (await known.open(A, Opening())).verdict is OpenVerdict.CREATED
            assert await waited(known) == ()
            servers.stop_nodes()
            asked = [(name, ask(store)) for store in (known, new) for name, ask in CALLS.items()]
            said = await asyncio.gather(*(call for _, call in asked), return_exceptions=True)
            for (name, _), answer in zip(asked, said, strict=True):
                assert isinstance(answer, CacheError), (name, answer)
                assert answer.kind is Kind.STORE_FAILED, (name, answer)
            servers.start_nodes()
            assert await known.prepare() != before
            assert await new.prepare()
            for store in (known, new):
                assert (await store.open(A, Opening())).generation
                await store.register(card("w1"))
                assert [entry.card for entry in await store.workers()] == [card("w1")]
                assert await waited(store) == ()


async def waited(store: Store) -> tuple[Notice, ...]:
    """For mail, a short while."""
    begin = await store.mail("w1", 0, "", 0)
    return (await store.mail("w1", 0, begin.cursor, 0.01)).notices


async def test_calls_while_a_cluster_goes_and_comes_are_answered_or_fail_as_ever(tmp_path: Path) -> None:
    with closing(Servers(tmp_path)) as servers:
        async with stored(servers.url("cluster")) as store:
            said: list[object] = []
            over = asyncio.Event()

            async def ask() -> None:
                while not over.is_set():
                    for batch in range(10):
                        tags = (store.tag(SessionRef(f"t{at}", "a"), Use(f"r{batch}")) for at in range(20))
                        said.extend(await asyncio.gather(*tags, return_exceptions=True))

            asking = [asyncio.create_task(ask()) for _ in range(2)]
            await asyncio.to_thread(servers.stop_nodes)
            await asyncio.to_thread(servers.start_nodes)
            over.set()
            await asyncio.gather(*asking)
            assert (await store.tag(A, Use("last"))).referenced
    failed = [one for one in said if not isinstance(one, Tagged)]
    assert {type(one) for one in failed} == {CacheError}
    assert {one.kind for one in failed if isinstance(one, CacheError)} == {Kind.STORE_FAILED}


async def test_a_worker_waits_in_every_shard_without_asking_again_and_again(tmp_path: Path) -> None:
    """100 workers would ask 16,000 times a second."""
    with closing(Servers(tmp_path)) as servers:
        async with stored(servers.url("cluster")) as store:
            await store.register(card("w1"))
            shards = range(store.shards)
            ends = await asyncio.gather(*(store.mail("w1", shard, "", 0) for shard in shards))
            waiting = [asyncio.create_task(store.mail("w1", at, ends[at].cursor, 20)) for at in shards]
            await asyncio.to_thread(until, lambda: servers.count("clients", "blocked_clients") == len(shards))
            await store.tag(A, Use("r1", "w1"))
            await store.close(A, Closing())
            done, others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert [notice.session for mail in done for notice in mail.result().notices] == ["a"]
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)

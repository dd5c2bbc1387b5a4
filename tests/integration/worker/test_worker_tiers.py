"""Host memory and an external store under a real worker: where hits come from, and stores that come and go."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agentcache.errors import CacheError, Kind
from agentcache.tiers.api import Keep
from agentcache.tiers.stores.api import BlobStore
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.worker import cache_routes
from agentcache.worker.context import Worker
from tests.patience import PATIENCE_S
from tests.serving import client_of, own_worker

pytestmark = pytest.mark.asyncio
STORE = "/v1/cache/external"
BASE = list(range(100, 300))
"""200 tokens: 192 of them end on a chunk of the grid."""
OTHERS = [[number, *range(1000, 1199)] for number in (11, 12, 13, 14)]
NOTHING = {"device": 0, "host": 0, "external": 0}


async def turn(client: httpx2.AsyncClient, prompt: list[int]) -> dict[str, int]:
    """One greedy turn; its cached tokens by tier, which both places of the answer and our own object agree on."""
    answer = await client.post(
        "/v1/completions", json={"prompt": prompt, "max_tokens": 3, "temperature": 0, "ignore_eos": True}
    )
    assert answer.status_code == 200, answer.text
    said = answer.json()
    by_tier: dict[str, int] = said["usage"]["cached_tokens_details"]
    details = said["usage"]["prompt_tokens_details"]
    assert details.pop("cache_write_tokens") >= 0
    assert details == {"cached_tokens": sum(by_tier.values()), "cached_tokens_details": by_tier}
    assert said["agentcache"]["cached_tokens_details"] == by_tier
    return by_tier


async def settled(client: httpx2.AsyncClient) -> dict[str, Any]:
    """The cache once no transfer is out."""
    while True:
        said = (await client.get("/v1/cache")).json()
        if not said["jobs_in_flight"]:
            return dict(said)
        await asyncio.sleep(0)


async def flushed(client: httpx2.AsyncClient) -> None:
    """Nothing on the device or in host memory; what a store holds stays."""
    await settled(client)
    answer = await client.post("/flush_cache")
    assert answer.status_code == 200, answer.text


async def put(client: httpx2.AsyncClient, **body: object) -> httpx2.Response:
    return await client.put(STORE, json=body)


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_worker_without_tiers_says_so(client: httpx2.AsyncClient) -> None:
    said = (await client.get("/v1/cache")).json()
    assert said["object"] == "cache"
    assert (said["page_tokens"], said["grid_tokens"]) == (4, 32)
    assert (said["eviction_policy"], said["write_policy"]) == ("ert", "write_through")
    assert list(said["tiers"]["device"]) == ["FULL", "SWA", "MAMBA"]
    assert said["tiers"]["host"] == {}
    assert said["external"]["state"] == "absent"
    assert said["external"] == (await client.get(STORE)).json()
    assert said["core"] in ("native", "reference")


async def test_residency_is_what_was_published(client: httpx2.AsyncClient) -> None:
    before = await settled(client)
    assert await turn(client, BASE) == NOTHING
    assert await turn(client, BASE) == {**NOTHING, "device": 192}
    said = await settled(client)
    full = said["tiers"]["device"]["FULL"]
    assert full["slots"]["size"] == full["slots"]["free"] + full["slots"]["cached"]
    assert full["cached_tokens"] == full["slots"]["cached"] * 4 >= 192
    assert full["cached_bytes"] == full["slots"]["cached"] * full["slot_bytes"] > 0
    assert said["tiers"]["device"]["MAMBA"]["slot_tokens"] == 0
    assert said["cached_tokens"]["device"] - before["cached_tokens"]["device"] == 192


async def test_what_the_device_had_to_give_up_comes_back_from_the_host(checkpoint: Path) -> None:
    small = {"full_slots": 80, "swa_slots": 80, "mamba_slots": 16}
    async with own_worker(checkpoint, host_mib=16, **small) as worker, client_of(worker) as client:
        await turn(client, BASE)
        for other in OTHERS:
            await settled(client)
            await turn(client, other)
        cached = await turn(client, BASE)
        assert cached["host"] > 0
        assert cached["external"] == 0
        said = await settled(client)
        assert said["tiers"]["host"]["FULL"]["cached_tokens"] >= 192
        assert said["cached_tokens"]["host"] == cached["host"]
        assert said["jobs_in_flight"] == 0


@pytest.mark.parametrize("host_mib", [None, 16])
async def test_a_store_is_attached_used_and_detached_at_run_time(
    checkpoint: Path, host_mib: float | None
) -> None:
    tiers = {"host_mib": host_mib, "prefetch": "wait_complete"}
    async with own_worker(checkpoint, **tiers) as worker, client_of(worker) as client:
        status = await put(client, backend="memory", mib=64)
        assert (status.status_code, status.json()["state"], status.json()["backend"]) == (200, "up", "memory")
        assert code(await put(client, backend="memory")) == (409, "in_use")
        await turn(client, BASE)
        assert await turn(client, BASE) == {**NOTHING, "device": 192}
        await flushed(client)
        assert await turn(client, BASE) == {**NOTHING, "external": 192}
        said = await settled(client)
        assert said["external"]["stored"] > 0 < said["external"]["loaded"]
        assert said["cached_tokens"]["external"] == 192 == said["prefetched_tokens"]
        for _ in range(2):  # the second time there is none
            detached = await client.delete(STORE)
            assert (detached.status_code, detached.json()["state"]) == (200, "absent")
        await flushed(client)
        assert await turn(client, BASE) == NOTHING
        await settled(client)


async def test_what_a_folder_holds_is_there_when_it_is_attached_again(
    checkpoint: Path, tmp_path: Path
) -> None:
    folder = {"backend": "file", "path": str(tmp_path / "store"), "mib": 64}
    async with own_worker(checkpoint, prefetch="wait_complete") as worker, client_of(worker) as client:
        assert (await put(client, **folder)).status_code == 200
        await turn(client, BASE)
        await flushed(client)
        await client.delete(STORE)
        assert await turn(client, BASE) == NOTHING
        await flushed(client)
        assert (await put(client, **folder)).status_code == 200
        assert await turn(client, BASE) == {**NOTHING, "external": 192}
        await settled(client)


async def test_two_workers_share_a_store(checkpoint: Path, tmp_path: Path) -> None:
    store = {"l3": "file", "l3_path": str(tmp_path / "store"), "l3_mib": 64, "prefetch": "wait_complete"}
    async with own_worker(checkpoint, **store) as first, client_of(first) as client:
        await turn(client, BASE)
        await settled(client)
    async with own_worker(checkpoint, **store) as second, client_of(second) as client:
        assert await turn(client, BASE) == {**NOTHING, "external": 192}
        await settled(client)
    other = {**store, "dtype": "bfloat16"}
    async with own_worker(checkpoint, **other) as third, client_of(third) as client:
        assert await turn(client, BASE) == NOTHING
        await settled(client)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "backend must name a store: file, redis, mooncake or memory"),
        ({"backend": "s3"}, "'backend' of the request"),
        ({"backend": "memory", "mib": 0}, "'mib' of the request"),
        ({"backend": "memory", "path": "x"}, "l3 is memory; leave l3_path out"),
        ({"backend": "file", "folder": "x"}, "folder is no field of a store"),
        ({"backend": "redis", "url": "redis://:sesame@127.0.0.1:1"}, "127.0.0.1:1"),
        ({"backend": "file", "path": "a\0b"}, "printable characters"),
        ({"backend": "file", "path": "a" * 300}, "File name too long"),
    ],
)
async def test_a_store_that_cannot_be_had_is_the_requests_fault(
    client: httpx2.AsyncClient, body: dict[str, object], said: str
) -> None:
    answer = await put(client, **body)
    assert code(answer) == (400, "bad_request")
    assert said in answer.json()["error"]["message"]
    assert "sesame" not in answer.text
    assert (await client.get(STORE)).json()["state"] == "absent"


async def test_a_folder_that_is_not_ours_is_refused_and_left_alone(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    answer = await put(client, backend="file", path=str(tmp_path))
    assert code(answer) == (400, "bad_request")
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


async def test_a_draining_worker_attaches_nothing(checkpoint: Path) -> None:
    async with own_worker(checkpoint) as worker, client_of(worker) as client:
        worker.draining = True
        assert code(await put(client, backend="memory")) == (503, "shutting_down")
        assert (await client.delete(STORE)).status_code == 200


async def test_a_store_that_the_engine_refuses_is_closed_again(
    worker: Worker, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    monkeypatch.setattr(cache_routes, "open_store", lambda _tiers: Watched(closed.append))
    engine = await worker.thread.call(lambda engine: engine)

    def refuse(_store: BlobStore) -> None:
        raise CacheError(Kind.IN_USE, "taken")

    monkeypatch.setattr(engine, "attach", refuse)
    assert code(await put(client, backend="memory")) == (409, "in_use")
    assert closed == ["closed"]


async def test_one_of_two_requests_at_once_attaches(client: httpx2.AsyncClient, tmp_path: Path) -> None:
    """The other one does not even open the store: its folder is in use by then."""
    folder = str(tmp_path / "store")
    answers = await asyncio.gather(*(put(client, backend="file", path=folder, mib=8) for _ in range(2)))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    assert (await client.delete(STORE)).json()["state"] == "absent"


async def test_a_store_that_hangs_costs_hits_and_keeps_neither_requests_nor_the_worker(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is asked, its end included; its calls are late after 0.2 s, and nobody waits for them."""
    store = Hanging()
    monkeypatch.setattr(cache_routes, "open_store", lambda _tiers: store)
    patience = {"l3_deadline_s": 0.2, "prefetch_timeout_s": 0.1}
    try:
        async with (
            asyncio.timeout(PATIENCE_S),
            own_worker(checkpoint, **patience) as worker,
            client_of(worker) as client,
        ):
            assert (await put(client, backend="memory")).status_code == 200
            assert await turn(client, BASE) == NOTHING
            assert await turn(client, BASE) == {**NOTHING, "device": 192}
            said = await settled(client)
            assert said["external"]["failed"] > 0 == said["external"]["stored"]
    finally:
        store.freed.set()


class Hanging(MemoryStore):
    """A store that answers nothing until it is `freed`."""

    def __init__(self) -> None:
        super().__init__(1 << 20)
        self.freed = threading.Event()

    def exists(self, names: Sequence[str]) -> list[bool]:
        self.freed.wait()
        return super().exists(names)

    def put(self, objects: Sequence[tuple[str, bytes]], keep: Keep) -> list[bool]:
        self.freed.wait()
        return super().put(objects, keep)

    def close(self) -> None:
        self.freed.wait()


class Watched(MemoryStore):
    """A store that tells when it is closed."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(1 << 20)
        self._tell = tell

    def close(self) -> None:
        self._tell("closed")

"""What is asked when somebody looks, of whom, how often, and what is shown of those who do not answer."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentcache.clock import ManualClock
from agentcache.errors import CacheError, Kind
from agentcache.router.dashboard.sight import ASK_S, BRANCHES, FRESH_S, READ, TENANTS, WORKERS, Sight, Sources
from agentcache.router.fleet import WorkerView
from agentcache.router.upstream import Reply
from agentcache.store.api import Opening, SessionRef, StoreRules
from tests.routing import FailingStore, now_ms

pytestmark = pytest.mark.asyncio
FRESH_NS = round(FRESH_S * 1e9)
CACHE: dict[str, Any] = {
    "page_tokens": 16,
    "tiers": {"device": {"FULL": {"slots": {"size": 8, "free": 2, "cached": 6}, "slot_bytes": 4}}},
    "prompt_tokens": 100,
    "cached_tokens": {"device": 50},
}
TREE = {"branches": [{"parent": None, "start": 0, "end": 16, "reusable": 16}], "more": False}
SESSION = {"state": "open", "markers": 2, "turns": [{"prompt_tokens": 30, "cached_tokens": {"host": 16}}]}


@dataclass
class Workers:
    """Workers that answer what they are told to, a status, or nothing."""

    views: list[WorkerView]
    says: dict[str, bytes | int] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    waits: set[float] = field(default_factory=set)

    async def get(self, url: str, headers: Mapping[str, str], wait_s: float) -> Reply:
        worker, _, path = url.removeprefix("http://").partition("/")
        assert headers == {"authorization": f"Bearer {worker} at http://{worker}"}
        self.asked[f"{worker}/{path}"] += 1
        self.waits.add(wait_s)
        await asyncio.sleep(0)
        said = self.says.get(worker, b"")
        if said == 0:
            raise CacheError(Kind.UPSTREAM_FAILED, "gave no answer within 1 s")
        if isinstance(said, int):
            return Reply(said, b"{}")
        usual = CACHE if path == "v1/cache" else TREE if path.startswith("v1/cache/tree") else SESSION
        return Reply(200, said or json.dumps(usual).encode())


@dataclass
class Looked:
    sight: Sight
    store: FailingStore
    workers: Workers
    clock: ManualClock

    async def open(self, *names: str, tenant: str = "default") -> None:
        for name in names:
            await self.store.open(SessionRef(tenant, name), Opening())

    def later(self) -> None:
        self.clock.advance(FRESH_NS)


async def looking(*views: WorkerView, tenants: tuple[str, ...] = ("default",)) -> Looked:
    clock, workers = ManualClock(1), Workers(list(views))
    store = FailingStore(StoreRules(), now_ms, lambda: "epoch")
    await store.prepare()
    sight = Sight(
        Sources(
            store,
            tenants,
            lambda: tuple(workers.views),
            workers.get,
            "{} at {}".format,
            clock,
            now_ms,
            lambda: not store.down,
        )
    )
    return Looked(sight, store, workers, clock)


def worker(name: str, **more: Any) -> WorkerView:
    return WorkerView(name, f"http://{name}", **more)


async def test_each_thing_is_asked_once_however_many_look_and_again_after_a_while() -> None:
    looked = await looking(worker("w1"), worker("w2"))
    tree = f"w1/v1/cache/tree?limit={BRANCHES}"
    for wait_ns, asked in ((0, 1), (FRESH_NS - 1, 1), (1, 2)):
        looked.clock.advance(wait_ns)
        await asyncio.gather(*(looked.sight.overview() for _ in range(20)))
        await asyncio.gather(*(looked.sight.tree(name) for _ in range(20) for name in ("", "w1")))
        assert looked.workers.asked == {"w1/v1/cache": asked, "w2/v1/cache": asked, tree: asked}


async def test_nothing_is_asked_while_nobody_looks() -> None:
    looked = await looking(worker("w1"))
    looked.clock.advance(100 * FRESH_NS)
    await asyncio.sleep(0)
    assert not looked.workers.asked


async def test_every_question_has_a_second() -> None:
    looked = await looking(worker("w1"))
    await looked.sight.overview()
    await looked.sight.tree("w1")
    assert looked.workers.waits == {ASK_S}


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (0, "gave no answer within 1 s"),
        (503, "it answered 503"),
        (b"<html>", "its answer makes no sense"),
        (b'{"tiers": [], "branches": 1}', "its answer makes no sense"),
        (b'{"prompt_tokens": -1, "branches": [{"end": -1}]}', "its answer makes no sense"),
        (b'{"tiers": ' + b"[" * 100_000, "its answer makes no sense"),
        (b'"' + b"x" * (5 << 20) + b'"', "its answer is too long"),
    ],
)
async def test_a_worker_that_does_not_answer_is_shown_with_what_it_last_said(
    said: bytes | int, shown: str
) -> None:
    looked = await looking(worker("w1"), worker("w2"))
    looked.workers.says["w2"] = said
    first, second = (await looked.sight.overview()).workers
    assert (first.said, first.as_of_s, first.cache.prompt_tokens) == ("", 0, 100)
    assert (second.said, second.as_of_s) == (shown, -1)
    assert (await looked.sight.tree("w2")).said == shown
    looked.workers.says["w1"] = said
    looked.later()
    first, _ = (await looked.sight.overview()).workers
    assert (first.said, first.as_of_s, first.cache.prompt_tokens) == (shown, FRESH_S, 100)


async def test_who_is_not_alive_or_no_worker_of_ours_is_not_asked() -> None:
    looked = await looking(worker("dead", alive=False), worker("plain", kind="sglang"))
    dead, plain = (await looked.sight.overview()).workers
    assert (dead.said, plain.said) == ("it is not alive", "it does not say what it has")
    assert (await looked.sight.tree("")).said == "there is no worker"
    assert (await looked.sight.tree("gone")).said == "no worker has this name now"
    assert not looked.workers.asked


async def test_of_very_many_workers_some_are_asked() -> None:
    looked = await looking(*(worker(f"w{number:03}") for number in range(WORKERS + 5)))
    overview = await looked.sight.overview()
    assert (len(overview.workers), overview.more_workers) == (WORKERS, 5)
    assert sum(looked.workers.asked.values()) == WORKERS


async def test_sessions_of_all_tenants_are_read_some_of_very_many() -> None:
    looked = await looking(tenants=("a", "b"))
    await looked.open(*(f"s{number}" for number in range(READ // 2 + 3)), tenant="a")
    await looked.open("own", tenant="b")
    found = (await looked.sight.overview()).families
    assert (found.open, found.unread) == (READ // 2 + 4, 3)
    assert found.rows[0].record.ref == SessionRef("b", "own")


async def test_of_very_many_sessions_those_used_last_are_read() -> None:
    looked = await looking()
    await looked.open("oldest", *(f"s{number:04}" for number in range(READ)))
    for ref, session in looked.store.books.open.items():
        if ref.session != "oldest":
            session.used_ms, session.deadline_ms = session.used_ms - 5000, session.deadline_ms - 5000
    found = (await looked.sight.overview()).families
    assert (found.open, found.unread) == (READ + 1, 1)
    assert "oldest" in {row.record.ref.session for row in found.rows}


async def test_of_very_many_tenants_some_are_read() -> None:
    looked = await looking(tenants=tuple(f"t{number:03}" for number in range(TENANTS + 1)))
    await looked.open("first", tenant="t000")
    await looked.open("last", tenant=f"t{TENANTS:03}")
    found = (await looked.sight.overview()).families
    assert (found.open, found.said) == (1, f"{TENANTS + 1} tenants; shown are {TENANTS}")


async def test_a_store_that_is_away_is_shown_as_away() -> None:
    looked = await looking(worker("w1"))
    looked.store.down = True
    overview = await looked.sight.overview()
    assert "did not answer" in overview.families.said
    assert not overview.store_up
    assert overview.workers[0].cache.prompt_tokens == 100
    assert "did not answer" in (await looked.sight.session(SessionRef("default", "a"))).said


async def test_a_session_is_asked_from_who_holds_it() -> None:
    looked = await looking(worker("w1"), worker("w2"))
    ref = SessionRef("default", "a/b ü")
    await looked.open(ref.session)
    generation = (await looked.store.look(ref)).generation
    await looked.store.assign(ref, generation, 0, "w2")
    seen = await looked.sight.session(ref)
    assert looked.workers.asked == {"w2/v1/sessions/default%2Fa%2Fb%20%C3%BC": 1}
    assert [(held.worker, held.session.turns[0].prompt_tokens) for held in seen.held] == [("w2", 30)]


async def test_a_session_of_a_tenant_that_there_is_not_is_unknown() -> None:
    looked = await looking()
    assert (await looked.sight.session(SessionRef("other", "a"))).record.state == "none"


async def test_what_is_kept_of_workers_goes_with_them() -> None:
    looked = await looking(worker("w1"))
    await looked.sight.overview()
    looked.workers.views = [worker("w2")]
    looked.later()
    await looked.sight.overview()
    looked.workers.views, looked.workers.says = [worker("w1")], {"w1": 0}
    looked.later()
    assert (await looked.sight.overview()).workers[0].as_of_s == -1


async def test_rates_are_of_what_was_counted_since_the_first_look() -> None:
    looked = await looking(worker("w1"))
    await looked.sight.overview()
    looked.workers.says["w1"] = json.dumps(
        {**CACHE, "prompt_tokens": 300, "cached_tokens": {"device": 150}}
    ).encode()
    looked.later()
    first, last = (await looked.sight.overview()).moments
    assert (first.prompt, last.prompt, last.cached) == (0, 200, (100, 0, 0))

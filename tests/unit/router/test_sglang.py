"""Closes at servers that are no workers of ours: a few at a time, and again until they are taken."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
import structlog

from agentcache.errors import CacheError, Kind
from agentcache.router import sglang
from agentcache.router.fleet import WorkerView
from agentcache.router.sglang import AT_ONCE, FIRST_PAUSE_S, LONGEST_PAUSE_S, REFUSALS, PlainServers
from agentcache.router.upstream import Reply
from agentcache.store.api import SessionRef
from agentcache.wire import Outcome, Receipt

pytestmark = pytest.mark.asyncio
ONE = WorkerView("one:1", "http://127.0.0.1:1", "sglang")
TWO = WorkerView("two:2", "http://127.0.0.1:2", "sglang")
OTHER = WorkerView("other:3", "http://127.0.0.1:3", "openai")
OURS = WorkerView("w1", "http://127.0.0.1:4")


@dataclass
class Servers:
    """What calls the servers get, how they answer (0: not at all), and what came of each close."""

    statuses: list[int] = field(default_factory=lambda: [200])
    """In turn; the last one stays."""
    silent: set[str] = field(default_factory=set)
    """URLs of servers that do not answer while they are in it."""
    held: asyncio.Event = field(default_factory=asyncio.Event)
    told: list[str] = field(default_factory=list)
    running: Counter[str] = field(default_factory=Counter)
    most: int = 0
    paused: list[float] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held.set()
        known = {view.id: view for view in (ONE, TWO, OTHER, OURS)}
        self.plain = PlainServers(known.get, self.post, self.pause)

    async def post(self, url: str, body: bytes, _headers: Mapping[str, str], _timeout_s: float) -> Reply:
        self.running[url] += 1
        self.most = max(self.most, self.running[url])
        try:
            self.told.append(json.loads(body)["session_id"])
            await self.held.wait()
            await asyncio.sleep(0)
        finally:
            self.running[url] -= 1
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if not status or url.removesuffix("/close_session") in self.silent:
            raise CacheError(Kind.UPSTREAM_FAILED, "gave no answer")
        return Reply(status, b"")

    async def pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        await asyncio.sleep(0)

    def close(self, *sessions: str, worker: str = ONE.id) -> None:
        for session in sessions:
            self.plain.tell(SessionRef("t", session), 7, worker, self.receipts.append)

    async def ended(self, count: int) -> list[tuple[str, Outcome]]:
        async with asyncio.timeout(60):
            while len(self.receipts) < count:
                await asyncio.sleep(0)
        return [(receipt.session, receipt.outcome) for receipt in self.receipts]


@pytest.fixture
def servers() -> Servers:
    return Servers()


async def test_a_family_is_told_a_few_at_a_time(servers: Servers) -> None:
    names = [f"s{number}" for number in range(500)]
    servers.close(*names)
    ended = await servers.ended(500)
    assert servers.most == AT_ONCE
    assert sorted(servers.told) == sorted(f"t/{name}" for name in names)
    assert {outcome for _, outcome in ended} == {Outcome.RELEASED}
    servers.close("later")
    assert (await servers.ended(501))[-1] == ("later", Outcome.RELEASED)


@pytest.mark.parametrize("failing", [0, 500, 503, 408, 429])
async def test_a_server_is_told_until_it_takes_it(servers: Servers, failing: int) -> None:
    """Ever more slowly; of its whole outage the log says one line."""
    servers.statuses = [*[failing] * 20, 200]
    with structlog.testing.capture_logs() as lines:
        servers.close("s")
        assert await servers.ended(1) == [("s", Outcome.RELEASED)]
    assert len(servers.told) == 21
    assert servers.paused == [min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**number) for number in range(20)]
    assert [(line["event"], line["server"], line["sessions"]) for line in lines] == [
        ("closes_wait", ONE.id, 1)
    ]


async def test_what_a_server_refuses_has_failed_and_holds_nobody_up(servers: Servers) -> None:
    servers.statuses = [404]
    servers.close("s")
    assert await servers.ended(1) == [("s", Outcome.FAILED)]
    assert (len(servers.told), servers.receipts[0].said) == (REFUSALS, "/close_session answered 404")


async def test_a_server_that_is_away_holds_up_no_other(servers: Servers) -> None:
    servers.silent.add(ONE.url)
    servers.close(*map(str, range(50)))
    servers.close("a", "b", worker=TWO.id)
    assert sorted(await servers.ended(2)) == [("a", Outcome.RELEASED), ("b", Outcome.RELEASED)]
    servers.silent.clear()
    assert len(await servers.ended(52)) == 52


async def test_others_hold_nothing_by_session(servers: Servers) -> None:
    servers.close("s", worker=OTHER.id)
    servers.close("s", worker="gone")
    assert [receipt.outcome for receipt in servers.receipts] == [Outcome.UNKNOWN] * 2
    assert [servers.plain.has(name) for name in (ONE.id, OTHER.id, OURS.id, "gone")] == [
        True,
        True,
        False,
        False,
    ]


async def test_a_queue_has_an_end(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang, "WAITING", 3)
    servers.held.clear()
    servers.close(*"abcd")
    assert [(receipt.session, receipt.outcome) for receipt in servers.receipts] == [("d", Outcome.FAILED)]
    servers.held.set()
    await servers.ended(4)


async def test_what_is_untold_in_the_end_is_said(servers: Servers) -> None:
    servers.held.clear()
    servers.close(*map(str, range(20)))
    while len(servers.told) < AT_ONCE:
        await asyncio.sleep(0)
    with structlog.testing.capture_logs() as lines:
        await servers.plain.stop()
    assert [(line["event"], line["server"], line["sessions"]) for line in lines] == [
        ("closes_untold", ONE.id, 20)
    ]

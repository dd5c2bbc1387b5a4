"""A link that runs by itself: its loops, what it says in the log, and how it ends."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from structlog.testing import capture_logs

from agentcache.clock import ManualClock
from agentcache.errors import CacheError, Kind
from agentcache.worker.link import NO_LINK
from agentcache.worker.link_standing import STUCK_BEATS, Contact, Pace, Pulse
from tests.linking import LinkWorld, OnEngine

pytestmark = pytest.mark.asyncio


class Pauses:
    """Pauses that end at once, and are remembered; the loop turns once in each."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._passed = asyncio.Condition()

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        async with self._passed:
            self._passed.notify_all()
        await asyncio.sleep(0)

    async def until(self, so: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self._passed:
            await self._passed.wait_for(so)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def world(pauses: Pauses) -> LinkWorld:
    return LinkWorld(Pace(mail_s=0.0, pause=pauses))


@pytest.fixture
def said() -> Iterator[list[str]]:
    """The events of the log of this package, as they come."""
    with capture_logs() as entries:
        yield entries  # type: ignore[misc]


async def test_a_link_that_runs_follows_what_comes(world: LinkWorld, pauses: Pauses) -> None:
    await world.link.start()
    await world.turn("s")
    await world.close("s")
    await pauses.until(lambda: bool(world.desk.told("receipt")))
    assert world.referenced == set()
    await world.link.stop()
    assert await world.store.workers() == ()
    assert len(await world.answers()) == 1


async def test_a_store_that_is_away_is_tried_ever_more_slowly_and_the_log_says_it_once(
    world: LinkWorld, pauses: Pauses, said: list[dict[str, object]]
) -> None:
    """R147."""
    await world.link.start()
    world.desk.away = True
    pauses.seconds.clear()
    await pauses.until(lambda: pauses.seconds.count(5.0) >= 4)
    assert {0.5, 1.0, 2.0, 4.0, 5.0} <= set(pauses.seconds)
    assert max(pauses.seconds) == 5.0
    world.desk.away = False
    world.desk.told("heartbeat")
    await pauses.until(lambda: bool(world.desk.told("heartbeat")))
    await world.link.stop()
    told = [entry["event"] for entry in said if str(entry["event"]).startswith("router.")]
    assert told == ["router.store_is_away", "router.store_is_back"]


async def test_a_worker_starts_without_a_store_and_registers_when_it_comes(
    world: LinkWorld, pauses: Pauses
) -> None:
    world.desk.away = True
    starting = asyncio.ensure_future(world.link.start())
    await pauses.until(lambda: pauses.seconds.count(5.0) >= 2)
    world.desk.away = False
    await starting
    assert [entry.card.worker for entry in await world.store.workers()] == ["w1"]
    await world.link.stop()


async def test_a_store_that_is_away_in_the_end_keeps_nobody(world: LinkWorld) -> None:
    await world.link.start()
    world.desk.away = True
    await world.link.drain()
    await world.link.stop()
    world.desk.away = False
    assert len(await world.store.workers()) == 1


async def test_nothing_that_fails_in_the_end_keeps_anybody(
    world: LinkWorld, said: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_asked: object) -> None:
        raise ZeroDivisionError

    await world.link.start()
    monkeypatch.setattr(world.desk, "heartbeat", fails)
    monkeypatch.setattr(world.desk, "leave", fails)
    await world.link.drain()
    await world.link.stop()
    assert any(entry["event"] == "router.link_failed" for entry in said)


async def test_a_fault_of_ours_is_logged_and_the_link_goes_on(
    world: LinkWorld, pauses: Pauses, said: list[dict[str, object]]
) -> None:
    await world.link.start()
    world.thread.ended = ZeroDivisionError("a fault")  # type: ignore[assignment]
    await pauses.until(lambda: any(entry["event"] == "router.link_failed" for entry in said))
    world.thread.ended = None
    world.desk.told("heartbeat")
    await pauses.until(lambda: bool(world.desk.told("heartbeat")))
    await world.link.stop()


async def test_two_workers_of_one_name_are_told_apart_in_the_log(
    world: LinkWorld, said: list[dict[str, object]]
) -> None:
    other = world.linked("w1", "another")
    for _ in range(8):
        await world.link.beat()
        await other.beat()
    told = [entry for entry in said if entry["event"] == "router.same_worker_id"]
    assert len(told) == 2  # each of them, once
    assert "--worker-id" in str(told[0]["what"])


async def test_a_store_that_forgets_now_and_then_is_no_second_worker(
    world: LinkWorld, said: list[dict[str, object]]
) -> None:
    for _ in range(5):
        for _ in range(5):
            await world.link.beat()
        await world.store.forget()
    assert not [entry for entry in said if entry["event"] == "router.same_worker_id"]


async def test_a_worker_alone_has_nobody_to_tell() -> None:
    await NO_LINK.start()
    await NO_LINK.drain()
    await NO_LINK.stop()


# the pulse of an engine in a long step


class Busy(OnEngine):
    """An engine that answers when told."""

    def __init__(self, world: LinkWorld) -> None:
        super().__init__(world.engine)
        self.free = asyncio.Event()

    async def call(self, function):  # type: ignore[no-untyped-def]
        await self.free.wait()
        return await super().call(function)


async def test_a_beat_does_not_wait_for_a_long_step(world: LinkWorld) -> None:
    busy = Busy(world)
    pulse = Pulse(busy, patience_s=0.0)
    for _ in range(STUCK_BEATS - 1):
        assert not (await pulse.sample("e", 0.0, draining=False)).load.draining
    assert (await pulse.sample("e", 0.0, draining=False)).load.draining  # stuck
    await world.turn("s")
    busy.free.set()
    sample = await Pulse.sample(pulse, "e", 0.0, draining=False)
    while not sample.unconfirmed:  # until the call of before has been answered
        sample = await pulse.sample("e", 0.0, draining=False)
    assert [one.session for one in sample.unconfirmed] == ["acme/s"]
    assert not sample.load.draining
    pulse.stop()


async def test_a_contact_counts_from_when_a_router_was_there() -> None:
    clock = ManualClock(10**12)
    contact = Contact(clock)
    assert contact.silent_s() > 1e8
    contact.found("e", unswept_s=30.0)
    clock.advance(10**9)
    assert contact.silent_s() == 31.0
    with capture_logs() as entries:
        contact.lost(CacheError(Kind.STORE_FAILED, "away"))
        contact.lost(CacheError(Kind.STORE_FAILED, "away"))
    assert len(entries) == 1

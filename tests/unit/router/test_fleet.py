"""The workers as a router sees them: what the store says, what probes say, and what it has there itself."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import structlog

from agentcache.errors import CacheError, Kind
from agentcache.router.fleet import PLAIN_SEATS, FleetView
from agentcache.router.settings import PlainUpstream
from agentcache.router.unheard import AWAITED_LOOKS, UNANSWERED, Health
from agentcache.store.api import WorkerEntry
from agentcache.wire import WorkerLoad
from tests.fleets import Heard, card_of

PLAIN = PlainUpstream("sglang", "http://127.0.0.1:30000")


def answering(well: set[str], models: tuple[str, ...] = ()) -> Callable[[str], Awaitable[Health]]:
    """A probe that finds these URLs alive."""

    async def probe(url: str) -> Health:
        return Health(url in well, models)

    return probe


@pytest.mark.asyncio
async def test_a_worker_is_what_it_last_told() -> None:
    roster, fleet = Heard(), FleetView()
    roster.hear(card_of("a"), waiting=2, running=3, draining=True)
    await fleet.refresh(roster)
    view = fleet.view("a")
    assert (view.waiting, view.running, view.load, view.seats, view.queue_limit) == (2, 3, 5, 8, 64)
    assert (view.alive, view.draining, view.usable, view.models) == (True, True, False, ("m",))


@pytest.mark.asyncio
async def test_operators_drain_a_worker_too() -> None:
    roster, fleet = Heard(card_of("a")), FleetView()
    roster.change(replace(roster.entry("a"), draining=True))
    await fleet.refresh(roster)
    assert not fleet.view("a").usable


@pytest.mark.asyncio
async def test_a_worker_without_a_heartbeat_is_known_and_not_alive() -> None:
    roster, fleet = Heard(card_of("a")), FleetView()
    roster.change(replace(roster.entry("a"), alive=False))
    await fleet.refresh(roster)
    assert not fleet.view("a").alive


@pytest.mark.asyncio
async def test_a_worker_that_left_is_unknown() -> None:
    roster, fleet = Heard(card_of("a"), card_of("b")), FleetView()
    await fleet.refresh(roster)
    roster.lose("a")
    await fleet.refresh(roster)
    assert [view.id for view in fleet.views()] == ["b"]
    assert fleet.find("a") is None
    with pytest.raises(CacheError) as caught:
        fleet.view("a")
    assert caught.value.kind is Kind.NO_WORKER


# requests in flight


@pytest.mark.asyncio
async def test_a_request_counts_from_its_decision_to_its_end() -> None:
    fleet = FleetView()
    await fleet.refresh(Heard(card_of("a")))
    flights = [fleet.begin("a") for _ in range(3)]
    assert fleet.view("a").load == 3
    for flight in flights:
        flight.end()
        flight.end()
    assert fleet.view("a").load == 0
    assert fleet.in_flight == {}


@pytest.mark.asyncio
async def test_a_request_that_is_put_off_is_no_load_yet_and_expected_all_the_same() -> None:
    """Its prompt is computed elsewhere: the worker reports nothing of it."""
    roster, fleet = Heard(card_of("a")), FleetView()
    await fleet.refresh(roster)
    flights = [fleet.begin("a") for _ in range(4)]
    for flight in flights[:3]:
        flight.put_off()
        flight.put_off()
    assert (fleet.view("a").load, fleet.view("a").expected) == (1, 4)
    roster.hear(card_of("a"), running=1)
    await fleet.refresh(roster)
    roster.hear(card_of("a"), running=11)
    await fleet.refresh(roster)
    assert fleet.view("a").others == 2, "a fifth of the ten that are not ours"
    flights[0].arrive()
    flights[0].arrive()
    assert (fleet.view("a").load, fleet.view("a").expected) == (4, 6)
    for flight in flights:
        flight.end()
        flight.arrive()
        flight.put_off()
    assert (fleet.view("a").load, fleet.view("a").expected) == (2, 2)
    assert fleet.in_flight == {}


@pytest.mark.asyncio
async def test_a_flight_outlives_its_worker() -> None:
    roster, fleet = Heard(card_of("a")), FleetView()
    await fleet.refresh(roster)
    flight = fleet.begin("a")
    roster.lose("a")
    await fleet.refresh(roster)
    flight.end()
    assert fleet.in_flight == {}


@pytest.mark.asyncio
async def test_what_a_worker_reports_of_ours_is_not_counted_twice() -> None:
    roster, fleet = Heard(), FleetView()
    roster.hear(card_of("a"), running=2)
    await fleet.refresh(roster)
    flights = [fleet.begin("a") for _ in range(4)]
    roster.hear(card_of("a"), running=6)
    await fleet.refresh(roster)
    assert (fleet.view("a").load, fleet.view("a").others) == (6, 2)
    for flight in flights:
        flight.end()
    assert fleet.view("a").load == 2


@pytest.mark.asyncio
async def test_what_others_do_is_believed_report_by_report() -> None:
    roster, fleet = Heard(card_of("a")), FleetView()
    await fleet.refresh(roster)
    beliefs = []
    for _ in range(20):
        roster.hear(card_of("a"), running=10)
        await fleet.refresh(roster)
        beliefs.append(fleet.view("a").load)
    assert beliefs == sorted(beliefs)
    assert (beliefs[0], round(beliefs[-1])) == (2, 10)


@pytest.mark.asyncio
async def test_a_report_that_is_older_than_an_end_makes_no_strangers() -> None:
    """The worker counted four when it reported; they have ended before we read it."""
    roster, fleet = Heard(card_of("a")), FleetView()
    await fleet.refresh(roster)
    for flight in [fleet.begin("a") for _ in range(4)]:
        flight.end()
    roster.hear(card_of("a"), running=4)
    await fleet.refresh(roster)
    assert fleet.view("a").load == 0


@pytest.mark.asyncio
async def test_one_report_read_twice_says_the_same() -> None:
    roster, fleet = Heard(), FleetView()
    roster.hear(card_of("a"), running=4)
    await fleet.refresh(roster)
    flight = fleet.begin("a")
    await fleet.refresh(roster)
    flight.end()
    await fleet.refresh(roster)
    assert fleet.view("a").load == 4


# failing


@pytest.mark.asyncio
async def test_who_failed_is_back_when_heard_after_it() -> None:
    roster, fleet = Heard(card_of("a")), FleetView()
    await fleet.refresh(roster)
    fleet.failed("a")
    await fleet.refresh(roster)
    assert not fleet.view("a").alive
    roster.hear(card_of("a"))
    await fleet.refresh(roster)
    assert fleet.view("a").alive


@pytest.mark.asyncio
async def test_who_failed_is_back_though_the_stores_clock_went_back() -> None:
    roster, fleet = Heard(card_of("a")), FleetView()
    await fleet.refresh(roster)
    fleet.failed("a")
    roster.change(replace(roster.entry("a"), heard_ms=-5_000))
    await fleet.refresh(roster)
    assert fleet.view("a").alive


def test_a_stranger_cannot_fail() -> None:
    fleet = FleetView()
    fleet.failed("z")
    assert fleet.views() == ()


@pytest.mark.asyncio
async def test_without_the_store_the_last_list_holds() -> None:
    roster = Heard(card_of("a"), card_of("b"))
    fleet = FleetView(probe=answering({card_of("a").url}))
    await fleet.refresh(roster)
    roster.down = True
    fleet.failed("a")
    fleet.failed("b")
    await fleet.refresh(roster)
    assert fleet.store_down
    assert {view.id: view.alive for view in fleet.views()} == {"a": True, "b": False}
    roster.down = False
    roster.hear(card_of("b"))
    await fleet.refresh(roster)
    assert not fleet.store_down
    assert all(view.alive for view in fleet.views())


@pytest.mark.asyncio
async def test_the_first_reason_of_an_outage_is_said_once() -> None:
    roster, fleet = Heard(card_of("a")), FleetView()
    with structlog.testing.capture_logs() as lines:
        for down in (False, True, True, False, True):
            roster.down = down
            await fleet.refresh(roster)
    assert [(line["event"], line["why"]) for line in lines] == [("workers_unseen", "no answer")] * 2


@pytest.mark.asyncio
async def test_without_the_store_a_worker_that_does_not_answer_for_a_while_is_not_alive() -> None:
    well = {card_of("a").url}
    roster, fleet = Heard(card_of("a"), card_of("b")), FleetView(probe=answering(well))
    await fleet.refresh(roster)
    roster.down = True
    alive = []
    for _ in range(UNANSWERED):
        alive.append(fleet.view("b").alive)
        await fleet.refresh(roster)
    assert alive == [True] * UNANSWERED  # one probe that is lost proves nothing
    assert (fleet.view("a").alive, fleet.view("b").alive) == (True, False)
    well.add(card_of("b").url)
    await fleet.refresh(roster)
    assert fleet.view("b").alive


@pytest.mark.asyncio
async def test_after_the_store_was_away_workers_are_alive_until_they_are_heard() -> None:
    """Their beats come a little later than the first look: nobody is taken for dead meanwhile, or forgotten."""
    roster, well = Heard(), {card_of(name).url for name in "abn"}
    fleet = FleetView(probe=answering(well))
    roster.hear(*(card_of(name) for name in "abc"))
    await fleet.refresh(roster)
    roster.down = True
    for _ in range(UNANSWERED):
        await fleet.refresh(roster)
    assert {view.id for view in fleet.views() if view.alive} == {"a", "b"}
    roster.down = False
    roster.change(replace(roster.entry("a"), alive=False))
    roster.change(WorkerEntry(card_of("n"), WorkerLoad(), False, 0))
    roster.lose("bc")
    await fleet.refresh(roster)
    assert {view.id for view in fleet.views() if view.alive} == {"a", "b", "n"}
    roster.hear(card_of("b"))
    for _ in range(AWAITED_LOOKS):
        await fleet.refresh(roster)
    assert {view.id: view.alive for view in fleet.views()} == {"a": False, "b": True, "n": False}


# plain servers


@pytest.mark.asyncio
async def test_a_plain_server_is_asked_itself() -> None:
    well: set[str] = set()
    fleet = FleetView([PLAIN], answering(well, ("llama",)))
    assert not fleet.view("127.0.0.1:30000").alive
    await fleet.refresh(Heard())
    assert not fleet.view("127.0.0.1:30000").alive
    well.add(PLAIN.url)
    await fleet.refresh(Heard())
    view = fleet.view("127.0.0.1:30000")
    assert (view.alive, view.kind, view.seats, view.models) == (True, "sglang", PLAIN_SEATS, ("llama",))
    fleet.failed(view.id)
    assert not fleet.view(view.id).alive
    await fleet.refresh(Heard())
    assert fleet.view(view.id).alive
    well.clear()
    await fleet.refresh(Heard())
    assert not fleet.view(view.id).alive
    assert fleet.view(view.id).models == ("llama",)


@pytest.mark.asyncio
async def test_plain_servers_stay_while_the_store_is_down() -> None:
    fleet, roster = FleetView([PLAIN], answering({PLAIN.url})), Heard()
    roster.down = True
    await fleet.refresh(roster)
    assert [view.alive for view in fleet.views()] == [True]


# order


@pytest.mark.asyncio
async def test_routers_that_start_together_begin_with_different_workers() -> None:
    firsts = set()
    for router in range(20):
        fleet = FleetView(salt=str(router))
        await fleet.refresh(Heard(*(card_of(name) for name in "abcd")))
        firsts.add(min(fleet.views(), key=lambda view: view.chosen).id)
    assert firsts == set("abcd")


@pytest.mark.asyncio
async def test_a_restarted_worker_reports_for_itself() -> None:
    roster, fleet = Heard(), FleetView()
    roster.hear(card_of("a"), running=8)
    await fleet.refresh(roster)
    entry = roster.entry("a")
    roster.change(replace(entry, card=card_of("a", incarnation="second"), load=WorkerLoad()))
    await fleet.refresh(roster)
    assert fleet.view("a").load == 0

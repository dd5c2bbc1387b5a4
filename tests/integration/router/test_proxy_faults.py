"""The proxy when something goes wrong: clients that leave, workers that die, stall or talk nonsense, a store that is
gone."""

import asyncio

import pytest
from structlog.testing import capture_logs

from agentcache import wire
from agentcache.router.settings import RouterSettings
from agentcache.store.api import Closing, SessionRef
from tests.misbehaving import (
    LIMIT_S,
    endless,
    full,
    gone_within,
    hanging_up,
    leaving,
    nobody,
    nonsense,
    queued,
)
from tests.routing import (
    DONE,
    EVENT,
    Call,
    Routed,
    Script,
    Upstream,
    begin_stream,
    opened_at,
    plain_answer,
    raw_client,
    routed_to,
    routing,
    streamed,
)

pytestmark = pytest.mark.asyncio
S = SessionRef("default", "s")


@pytest.mark.parametrize("script", [endless, queued])
async def test_a_client_that_leaves_ends_the_work_at_the_worker(script: Script) -> None:
    """R225, too: a request that still waits is never computed for nobody."""
    async with routed_to(script) as (routed, (worker,)):
        async with raw_client(routed.url, "/v1/completions", {}, x_session_id="s") as (reader, _):
            call = await worker.hears(1)
            if script is endless:
                await reader.readuntil(EVENT % 0)
        assert await gone_within(call) < LIMIT_S
        await routed.settled()
        record = await routed.store.look(S)
        assert (record.state, record.in_flight) == ("open", 0)
        assert routed.router.fleet.view("w1").in_flight == 0


async def test_fifty_waiting_requests_whose_clients_leave_are_none() -> None:
    """R225: one stalls, the others wait behind it; when their clients are gone nobody computes them."""
    async with routed_to(queued) as (routed, (worker,)):
        async with asyncio.TaskGroup() as clients:
            left = asyncio.Event()
            for _ in range(50):
                clients.create_task(_client_until(routed, left))
            await worker.hears(50)
            left.set()
        assert max([await gone_within(call) for call in worker.heard]) < 5 * LIMIT_S
        await routed.settled()
        assert (await routed.store.look(S)).in_flight == 0


async def _client_until(routed: Routed, left: asyncio.Event) -> None:
    async with raw_client(routed.url, "/v1/completions", {}, x_session_id="s"):
        await left.wait()


async def test_a_client_that_leaves_while_the_store_thinks_leaves_nothing_in_flight() -> None:
    async with routed_to(plain_answer) as (routed, (worker,)):
        thinking, answered = asyncio.Event(), asyncio.Event()
        tag = routed.store.tag

        async def slow(*arguments: object) -> object:
            tagged = await tag(*arguments)  # type: ignore[arg-type]
            thinking.set()
            await answered.wait()
            return tagged

        routed.store.tag = slow  # type: ignore[assignment]
        async with raw_client(routed.url, "/v1/completions", {}, x_session_id="s"):
            await thinking.wait()
        while not routed.router.endings.pending:
            await asyncio.sleep(0)
        answered.set()
        await routed.settled()
        assert (await routed.store.look(S)).in_flight == 0
        assert worker.heard == []


@pytest.mark.parametrize("script", [hanging_up, nonsense])
async def test_a_worker_that_gives_no_answer_costs_a_retry_elsewhere(script: Script) -> None:
    async with routed_to(script, plain_answer) as (routed, (bad, good)):
        await routed.store.assign(*await opened_at(routed, S, "w1"))
        answer = await routed.post(x_session_id="s")
        await routed.settled()
        record = await routed.store.look(S)
    assert (answer.status_code, answer.headers[wire.WORKER]) == (200, "w2")
    assert answer.headers[wire.ROUTED].startswith("by moved: its worker did not answer")
    assert (record.worker, record.holders, record.in_flight) == ("w2", ("w2",), 0)
    tags = [bad.heard[0].tag("w1"), good.heard[0].tag("w2")]
    assert tags[0].generation == tags[1].generation
    assert tags[0].placement < tags[1].placement
    assert tags[0].request_id != tags[1].request_id
    assert bad.heard[0].body == good.heard[0].body


async def test_a_worker_that_is_not_there_is_not_asked_again_until_it_is_heard() -> None:
    async with Upstream(plain_answer).serving() as good, routing() as routed:
        await routed.register("w2", good.url)
        with nobody() as gone:
            await routed.register("w1", gone)
            answers = [await routed.post(x_session_id=f"s{n}") for n in range(8)]
        assert {answer.headers[wire.WORKER] for answer in answers} == {"w2"}
        assert not routed.router.fleet.view("w1").alive
        lines = (await routed.http.get("/metrics")).text.splitlines()
        assert "agentcache_router_retries_total 1.0" in lines


async def test_one_hang_up_of_an_idle_connection_is_forgiven() -> None:
    async def once(call: Call) -> None:
        await (hanging_up if len(worker.heard) == 1 else plain_answer)(call)

    async with routed_to(once) as (routed, (worker,)):
        answer = await routed.post(x_session_id="s")
        assert routed.router.fleet.view("w1").alive
        tags = [call.tag("w1") for call in worker.heard]
    assert answer.status_code == 200
    assert [tag.request_id[-2:] for tag in tags] == [".1", ".2"]
    assert tags[0].placement == tags[1].placement


async def test_without_any_worker_left_the_client_is_told_to_come_back() -> None:
    async with routed_to(hanging_up) as (routed, (worker,)):
        answer = await routed.post(x_session_id="s")
        await routed.settled()
        assert (await routed.store.look(S)).in_flight == 0
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"]["code"] == "no_worker"
    assert len(worker.heard) == 2


async def test_nonsense_from_the_only_worker_is_a_bad_gateway() -> None:
    async with routed_to(nonsense) as (routed, _):
        answer = await routed.post()
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_failed")


async def test_a_stalled_worker_is_given_up_when_it_is_not_heard() -> None:
    """R225: a stalled request has a limit, and the next worker takes over."""
    async with routed_to(queued, plain_answer, settings=RouterSettings(refresh_s=0.02, attempts=2)) as (
        routed,
        (stalled, _),
    ):
        await routed.store.assign(*await opened_at(routed, S, "w1"))
        asking = asyncio.ensure_future(routed.post(x_session_id="s"))
        call = await stalled.hears(1)
        await routed.store.leave("w1", "w1-1")
        answer = await asking
        assert await gone_within(call) < LIMIT_S
    assert (answer.status_code, answer.headers[wire.WORKER]) == (200, "w2")


async def test_nothing_is_sent_twice_after_the_first_byte() -> None:
    step = asyncio.Event()

    async def breaking_off(call: Call) -> None:
        await begin_stream(call)
        await call.chunk(EVENT % 0)
        await step.wait()
        call.writer.close()

    async with routed_to(breaking_off, streamed) as (routed, (bad, good)):
        await routed.store.assign(*await opened_at(routed, S, "w1"))
        async with raw_client(routed.url, "/v1/completions", {}, x_session_id="s") as (reader, _):
            got = await reader.readuntil(EVENT % 0)
            step.set()
            got += await reader.read()
        await routed.settled()
        record = await routed.store.look(S)
    assert EVENT % 0 in got
    assert DONE not in got
    assert not got.endswith(b"0\r\n\r\n")  # the client sees that it broke off
    assert (len(bad.heard), len(good.heard)) == (1, 0)
    assert (record.worker, record.in_flight) == ("w1", 0)


async def test_a_full_worker_is_left_only_by_who_is_not_at_home_there() -> None:
    async with routed_to(full, plain_answer) as (routed, (busy, _)):
        await routed.store.assign(*await opened_at(routed, S, "w1"))
        bound = await routed.post(x_session_id="s")
        others = [await routed.post() for _ in range(2)]
    assert (bound.status_code, bound.headers["retry-after"]) == (429, "1")
    assert {answer.headers[wire.WORKER] for answer in others} == {"w2"}
    assert len(busy.heard) >= 2


async def test_a_worker_that_shuts_down_hands_its_sessions_over() -> None:
    async with routed_to(leaving, plain_answer) as (routed, _):
        await routed.store.assign(*await opened_at(routed, S, "w1"))
        answer = await routed.post(x_session_id="s")
    assert (answer.status_code, answer.headers[wire.WORKER]) == (200, "w2")


async def test_the_last_worker_that_shuts_down_says_so_itself() -> None:
    async with routed_to(leaving) as (routed, _):
        answer = await routed.post(x_session_id="s")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json() == {"error": {"code": "shutting_down"}}


async def test_a_tag_that_a_worker_refuses_is_not_the_clients_fault() -> None:
    async def refusing(call: Call) -> None:
        await call.whole(401, b'{"error": {"message": "was not signed with this worker\'s secret"}}')

    async with routed_to(refusing) as (routed, _):
        with capture_logs() as logs:
            answer = await routed.post(x_session_id="s")
    (told,) = [line for line in logs if line["event"] == "tag_refused"]
    assert (told["log_level"], told["worker"]) == ("error", "w1")
    assert "compare secrets and clocks" in told["said"]
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_failed")
    assert answer.json()["error"]["message"] == "no worker could take this request"


async def test_a_worker_with_another_secret_costs_its_sessions_a_move() -> None:
    """R050: nobody is kept by a worker that never took its session."""

    async def refusing(call: Call) -> None:
        await call.whole(401, b'{"error": {"message": "was not signed with this worker\'s secret"}}')

    async with routed_to(refusing, plain_answer) as (routed, _):
        answers = [await routed.post(x_session_id=f"s{number}") for number in range(6) for _ in range(2)]
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.headers[wire.WORKER] for answer in answers} == {"w2"}


async def test_a_worker_that_knows_a_later_generation_gets_one_that_is_higher() -> None:
    """The store lost its data, or its clock went back: what a worker has seen is never issued again."""
    known = 2**52

    async def ahead(call: Call) -> None:
        if call.tag("w1").generation > known:
            await plain_answer(call)
        else:
            told = {wire.STATE: "stale", wire.GENERATION: str(known)}
            await call.whole(409, b'{"error": {"code": "session_stale"}}', told)

    async with routed_to(ahead) as (routed, (worker,)):
        answer = await routed.post(x_session_id="s")
        await routed.settled()
        record = await routed.store.look(S)
    assert answer.status_code == 200
    assert int(answer.headers[wire.GENERATION]) == record.generation > known
    assert (len(worker.heard), record.in_flight) == (2, 0)


@pytest.mark.parametrize(("status", "requests", "heard"), [(200, 2, 2), (409, 1, 2)])
async def test_a_worker_that_has_let_go_of_the_current_generation_gets_the_next(
    status: int, requests: int, heard: int
) -> None:
    """Its order was forgotten with the store's data; it serves the turn as a late one, or refuses a strict one."""
    let_go: list[int] = []

    async def stale(call: Call) -> None:
        generation = call.tag("w1").generation
        assert generation
        let_go.append(generation)
        if generation > let_go[0]:
            await call.whole(200, b"{}", {wire.STATE: "open", wire.GENERATION: str(generation)})
        else:
            await call.whole(status, b"{}", {wire.STATE: "stale", wire.GENERATION: str(generation)})

    async with routed_to(stale) as (routed, (worker,)):
        for _ in range(requests):
            answer = await routed.post(x_session_id="s")
            await routed.settled()
        record = await routed.store.look(S)
    assert (answer.status_code, answer.headers[wire.STATE]) == (200, "open")
    assert record.generation == let_go[-1] > let_go[0]
    assert (len(worker.heard), record.in_flight) == (heard, 0)


@pytest.mark.parametrize("status", [200, 409])
async def test_what_a_worker_knows_to_be_closed_is_closed_in_a_store_that_forgot_it(status: int) -> None:
    async def closed(call: Call) -> None:
        await call.whole(
            status, b"{}", {wire.STATE: "closed", wire.GENERATION: str(call.tag("w1").generation)}
        )

    async with routed_to(closed) as (routed, _):
        answer = await routed.post(x_session_id="s")
        await routed.settled()
        record = await routed.store.look(S)
    assert (answer.status_code, answer.headers[wire.STATE]) == (status, "closed")
    assert record.state == "closed"


async def test_a_generation_that_stays_too_low_is_told_to_the_client_after_one_more_try() -> None:
    async def never(call: Call) -> None:
        await call.whole(409, b'{"error": {"code": "session_stale"}}', {wire.STATE: "stale"})

    async with routed_to(never) as (routed, (worker,)):
        answer = await routed.post(x_session_id="s")
    assert (answer.status_code, answer.headers[wire.STATE]) == (409, "stale")
    assert len(worker.heard) == 2


async def test_a_session_that_is_closed_while_its_worker_is_chosen_gets_no_reference() -> None:
    async with routed_to(plain_answer, plain_answer) as (routed, workers):
        assign = routed.store.assign

        async def late(*arguments: object) -> object:
            await routed.store.close(S, Closing())
            return await assign(*arguments)  # type: ignore[arg-type]

        routed.store.assign = late  # type: ignore[assignment]
        answer = await routed.post(x_session_id="s")
        heard = [(f"w{n}", call) for n, worker in enumerate(workers, 1) for call in worker.heard]
        ((name, call),) = heard
    assert (answer.status_code, answer.headers[wire.STATE]) == (200, "closed")
    assert call.tag(name).session == ""

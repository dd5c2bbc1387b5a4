"""How passed requests end: workers that freeze in an answer or over a request, and the last request of a session."""

import asyncio

import pytest

from agentcache.router.looking import SILENT_LOOKS
from agentcache.router.settings import RouterSettings
from agentcache.store.api import SessionRef
from tests.misbehaving import LIMIT_S, endless, full, gone_within, hanging_up, leaving, nonsense, queued
from tests.patience import PATIENCE_S, pass_time
from tests.routing import DONE, EVENT, Call, Routed, Script, begin_stream, plain_answer, raw_client, routed_to

pytestmark = pytest.mark.asyncio
S = SessionRef("default", "s")
LOOK_S = 5.0


@pytest.mark.parametrize("state", ["gone", "frozen"])
async def test_a_worker_that_is_not_heard_in_the_middle_of_its_answer_breaks_it_off(state: str) -> None:
    """A frozen host closes no connection: the client would wait for ever."""
    async with routed_to(endless, settings=RouterSettings(refresh_s=0.02)) as (routed, (worker,)):
        async with raw_client(routed.url, "/v1/completions", {}, x_session_id="s") as (reader, _):
            got = await reader.readuntil(EVENT % 0)
            await (routed.store.leave("w1", "w1-1") if state == "gone" else silence(routed))
            async with asyncio.timeout(PATIENCE_S):
                got += await reader.read()
        assert await gone_within(worker.heard[0]) < LIMIT_S
        await routed.settled()
        assert (await routed.store.look(S)).in_flight == 0
        assert not routed.router.fleet.in_flight
    assert not got.endswith(b"0\r\n\r\n")


async def silence(routed: Routed) -> None:
    """No heartbeat of w1 arrives any more."""
    routed.router.fleet.failed("w1")


async def test_a_worker_that_only_lost_its_store_ends_its_answer() -> None:
    """What it sends says as well as a heartbeat that it is there."""
    step = asyncio.Event()

    async def slowly(call: Call) -> None:
        await begin_stream(call)
        for number in range(20):
            await call.chunk(EVENT % number)
            await asyncio.wait_for(step.wait(), PATIENCE_S)
            step.clear()
        await call.chunk(DONE)
        await call.chunk(b"")

    async with (
        routed_to(slowly, settings=RouterSettings(refresh_s=LOOK_S)) as (routed, _),
        raw_client(routed.url, "/v1/completions", {}) as (reader, _),
    ):
        for number in range(20):
            got = await reader.readuntil(EVENT % number)
            await silence(routed)
            for _ in range(SILENT_LOOKS // 2):
                await looked()
            step.set()
        got = await reader.readuntil(b"0\r\n\r\n")
    assert DONE in got


async def looked() -> None:
    """The time of one look passes, and the look is taken."""
    pass_time(LOOK_S)
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_request_that_silences_two_workers_is_not_tried_on_the_others() -> None:
    """It may be the request that stops them: a prompt of a size that nobody thought of."""
    scripts = [queued] * 4
    async with routed_to(*scripts, settings=RouterSettings(refresh_s=0.01, attempts=4)) as (routed, workers):
        asking = asyncio.ensure_future(routed.post(x_session_id="s"))
        heard: list[str] = []
        while not asking.done():
            for number, worker in enumerate(workers, 1):
                if worker.heard and f"w{number}" not in heard:
                    heard.append(f"w{number}")
                    routed.router.fleet.failed(f"w{number}")
            await asyncio.wait((asking,), timeout=0.01)
        answer = await asking
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_failed")
    assert len(heard) == 2


async def test_one_worker_dead_and_the_other_full_is_too_many_requests() -> None:
    async with routed_to(full, hanging_up) as (routed, workers):
        answers = [await routed.post() for _ in range(4)]
        assert all(worker.heard for worker in workers)
    assert {(answer.status_code, answer.headers["retry-after"]) for answer in answers} == {(429, "1")}


@pytest.mark.parametrize(
    ("script", "closed"),
    [
        (endless, True),
        (queued, True),
        (plain_answer, True),
        (full, False),
        (nonsense, False),
        (leaving, False),
    ],
)
async def test_a_last_request_closes_its_session_however_it_ends_unless_it_was_refused(
    script: Script, closed: bool
) -> None:
    async with routed_to(script) as (routed, (worker,)):
        said = {"x_dynamo_session_id": "s", "x_dynamo_session_final": "true"}
        async with raw_client(routed.url, "/v1/completions", {}, **said) as (reader, _):
            await worker.hears(1)
            if script is endless:
                await reader.readuntil(EVENT % 0)
            elif script is not queued:
                await reader.readuntil(b"\r\n\r\n")
        await routed.settled()
        record = await routed.store.look(S)
    assert record.state == ("closed" if closed else "open")


async def test_a_last_request_whose_answer_breaks_off_closes_its_session_and_a_wrong_one_does_not() -> None:
    async def breaking_off(call: Call) -> None:
        await begin_stream(call)
        await call.chunk(EVENT % 0)
        call.writer.close()

    async def wrong(call: Call) -> None:
        await call.whole(400, b'{"error": {"code": "bad_request"}}')

    said = {"x_dynamo_session_id": "s", "x_dynamo_session_final": "true"}
    for script, state in ((breaking_off, "closed"), (wrong, "open")):
        async with routed_to(script) as (routed, _):
            async with raw_client(routed.url, "/v1/completions", {}, **said, connection="close") as (
                reader,
                _,
            ):
                await reader.read()
            await routed.settled()
            assert (await routed.store.look(S)).state == state

"""Prompts that are computed ahead, as the workers hear of it: whom the router asks for what, and what clients see."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest

from agentcache import wire
from agentcache.errors import CacheError, Kind
from agentcache.keys import Namespace, page_hashes, page_key
from agentcache.kv_events import BlockStored
from agentcache.router.index import Message
from agentcache.router.settings import RouterSettings
from agentcache.store.api import SessionRef
from agentcache.wire import Role
from tests.misbehaving import LATE_S, late, queued
from tests.patience import PATIENCE_S
from tests.routing import SIGNER, Call, Routed, Script, Upstream, plain_answer, routing

pytestmark = pytest.mark.asyncio
S = SessionRef("default", "s")
LONG = [7] * 200
LEAST = 64
GRID = 16
DEEPEST = 192
"""Of 200 tokens all but the last chunk."""


def answers(prompt: int = 200, cached: int = DEEPEST) -> Script:
    async def script(call: Call) -> None:
        said = {wire.STATE: "open", wire.CACHED: str(cached), wire.PROMPT: str(prompt)}
        await call.whole(200, b'{"choices": [{"text": "hi"}]}', said)

    return script


def stores(tokens: int = DEEPEST, status: int = 200) -> Script:
    async def script(call: Call) -> None:
        await call.whole(status, json.dumps({"stored_tokens": tokens}).encode())

    return script


@asynccontextmanager
async def fleet(
    *prefills: Script, decode: Script | None = None, role: str = Role.DECODE, **settings: Any
) -> AsyncIterator[tuple[Routed, Upstream, list[Upstream]]]:
    """A decode worker `d`, and prefill workers p1, p2, …"""
    told = {"prefill_min_tokens": LEAST, "refresh_s": 30, "sweep_s": 30, **settings}
    async with AsyncExitStack() as stack:
        routed = await stack.enter_async_context(routing(RouterSettings(**told)))
        decoder, *workers = [
            await stack.enter_async_context(Upstream(script).serving())
            for script in (decode or answers(), *prefills)
        ]
        await routed.register("d", decoder.url, role=role)
        for number, worker in enumerate(workers, start=1):
            await routed.register(f"p{number}", worker.url, role=Role.PREFILL)
        yield routed, decoder, workers


async def ask(
    routed: Routed, prompt: list[int] | str = LONG, session: str = "s", **more: Any
) -> httpx2.Response:
    headers = {"x_agentcache_session": session} if session else {}
    answer = await routed.post(body={"prompt": prompt, **more.pop("body", {})}, **headers, **more)
    await routed.settled()
    return answer


def said(answer: httpx2.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.headers.get(wire.PREFILL, ""))


def hints(call: Call, worker: str) -> wire.Hints:
    return call.tag(worker).hints


async def test_the_prompt_goes_to_a_prefill_worker_first_and_then_to_its_own() -> None:
    async with fleet(stores()) as (routed, decoder, (prefill,)):
        answer = await ask(routed, body={"stream": False})
        assert said(answer) == "p1; 192 tokens"
        assert answer.headers[wire.WORKER] == "d"
        (ahead,), (whole,) = prefill.heard, decoder.heard
        assert ahead.body == whole.body
        assert ahead.target == whole.target == "/v1/completions"
        first, second = ahead.tag("p1"), whole.tag("d")
        assert (first.hints.prefill, first.hints.strict, second.hints.prefill) == (True, True, False)
        assert (
            (first.session, first.generation)
            == (second.session, second.generation)
            == ("s", first.generation)
        )
        assert first.placement == second.placement == 2, (
            "one for its worker, one for who computes its prompts"
        )
        assert first.request_id != second.request_id
        record = await routed.store.look(S)
        assert (record.worker, record.prefill, record.holders) == ("d", "p1", ("d", "p1"))
        assert (record.in_flight, record.placement) == (0, 2)


async def test_both_know_of_a_close_and_of_nothing_between_turns() -> None:
    async with fleet(stores(), close_wait_s=30) as (routed, _, _):
        cursors = {name: (await routed.store.mail(name, 0, "", 0)).cursor for name in ("d", "p1")}
        for length in (200, 400, 600):
            await ask(routed, [7] * length)
        for name, cursor in cursors.items():
            assert (await routed.store.mail(name, 0, cursor, 0)).notices == ()
        closing = asyncio.ensure_future(routed.http.delete("/v1/sessions/s"))
        for name, cursor in cursors.items():
            (notice,) = (await routed.store.mail(name, 0, cursor, PATIENCE_S)).notices
            assert (notice.order, notice.session) == (wire.Order.CLOSE, "s")
            order = (notice.order, notice.tenant, notice.session, notice.generation, name)
            told = wire.Receipt(*order, wire.Outcome.RELEASED, notice.operation, notice.reply_to)
            await routed.store.receipt(told)
        closed = (await closing).json()
        assert {one["worker"]: one["outcome"] for one in closed["workers"]} == {
            "d": "released",
            "p1": "released",
        }


async def test_a_session_goes_to_its_prefill_worker_again_and_others_elsewhere() -> None:
    async with fleet(stores(), stores()) as (routed, _, workers):
        first = said(await ask(routed)).split(";")[0]
        for length in (400, 600):
            answer = await ask(routed, [7] * length)
            assert said(answer).startswith(f"{first};")
        assert sorted(len(worker.heard) for worker in workers) == [0, 3]
        assert not said(await ask(routed, session="other")).startswith(f"{first};")


async def test_a_prompt_without_a_session_is_computed_ahead_too() -> None:
    async with fleet(stores()) as (routed, _, (prefill,)):
        assert said(await ask(routed, session="")) == "p1; 192 tokens"
        assert prefill.heard[0].tag("p1").session == ""


@pytest.mark.parametrize(
    ("turns", "asked"),
    [
        ([LONG[:64]], 0),  # its last token is always left
        ([LONG[:65]], 1),
        ([LONG, LONG], 1),  # the same again
        ([LONG, [7] * 220], 1),  # a little more
        ([LONG, [7] * 300], 2),
        ([LONG, LONG[:100], LONG[:120]], 2),  # it begins anew, and goes on
    ],
)
async def test_what_its_worker_has_is_not_computed_again(turns: list[list[int]], asked: int) -> None:
    async with fleet(stores(), decode=answers_like_it) as (routed, decoder, (prefill,)):
        for prompt in turns:
            last = said(await ask(routed, prompt))
        assert len(prefill.heard) == asked
        assert len(decoder.heard) == len(turns)
        assert (last == "none; short") == (asked < len(turns))


async def answers_like_it(call: Call) -> None:
    await answers(prompt=len(call.fields["prompt"]))(call)


async def test_what_its_worker_is_known_to_have_is_not_computed_again() -> None:
    """By its placement events: a prompt that another session brought there."""
    async with fleet(stores()) as (routed, _, (prefill,)):
        index = routed.router.chooser.sources.index
        card = routed.router.fleet.view("d").card
        assert card
        index.follow(card)
        salt = SIGNER.derive("salt", "default", "")
        key = page_key(LONG[:144], Namespace(salt, *card.namespace), GRID)
        index.take("d", Message(0, "", [BlockStored(list(page_hashes(key, GRID)), medium="GPU")]))
        assert said(await ask(routed)) == "none; short"
        assert said(await ask(routed, [7] * 209, session="t")) == "p1; 192 tokens"
        assert len(prefill.heard) == 1


async def test_workers_that_do_both_and_requests_that_are_no_turns_ask_nobody() -> None:
    async with fleet(stores(), role=Role.BOTH) as (routed, _, (prefill,)):
        assert said(await ask(routed)) == ""
        assert prefill.heard == []
    async with fleet(stores()) as (routed, decoder, (prefill,)):
        counted = await routed.http.post(
            "/v1/messages/count_tokens", json={"messages": [{"content": "x" * 500}]}
        )
        assert counted.status_code == 200
        assert (len(decoder.heard), prefill.heard) == (1, [])
    async with fleet() as (routed, _, _):
        assert said(await ask(routed)) == ""


async def refuses_tags(call: Call) -> None:
    await call.whole(401, b'{"error": {"message": "not mine"}}')


async def breaks(call: Call) -> None:
    call.writer.close()


async def cuts(call: Call) -> None:
    await call.head(200, {"content-length": "100"})
    await call.send(b"{")
    call.writer.close()


async def talks_nonsense(call: Call) -> None:
    await call.whole(200, b"[[[")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (stores(status=429), "full"),
        (stores(status=503), "no prefill worker"),
        (stores(status=409), "the session has moved"),
        (stores(status=400), "refused"),
        (stores(status=500), "failed"),
        (refuses_tags, "refused"),
        (stores(0), "not stored"),
        (stores(-5), "not stored"),
        (talks_nonsense, "not stored"),
        (breaks, "no answer"),
        (cuts, "no answer"),
    ],
)
async def test_whatever_goes_wrong_there_the_client_sees_in_a_header_alone(script: Script, why: str) -> None:
    async with fleet(script) as (routed, decoder, (prefill,)):
        assert said(await ask(routed)) == f"none; {why}"
        assert (len(prefill.heard), len(decoder.heard)) == (1, 1)
        record = await routed.store.look(S)
        assert (record.worker, record.in_flight) == ("d", 0)
        assert routed.router.fleet.in_flight == {}
        metrics = (await routed.http.get("/metrics")).text
        assert f'agentcache_router_prefills{{what="{why}"}} 1.0' in metrics


async def test_one_that_is_gone_is_not_asked_again_until_it_is_heard() -> None:
    async with fleet(stores()) as (routed, _, _):
        await routed.register("p1", "http://127.0.0.1:9", role=Role.PREFILL)
        assert said(await ask(routed)) == "none; no answer"
        assert said(await ask(routed, [7] * 400)) == "none; no prefill worker"


async def test_one_that_does_not_believe_our_tags_is_not_asked_again_until_it_is_heard() -> None:
    async with fleet(refuses_tags) as (routed, _, (prefill,)):
        assert said(await ask(routed)) == "none; refused"
        assert said(await ask(routed, [7] * 400)) == "none; no prefill worker"
        assert len(prefill.heard) == 1


async def test_what_is_remembered_of_a_turn_has_a_bounded_size() -> None:
    """A model may have any name that a client makes up."""
    async with fleet(stores(), decode=answers_like_it) as (routed, _, (prefill,)):
        for length in (200, 220):
            told = said(await ask(routed, [7] * length, body={"model": "m" * 10**6}))
        assert (told, len(prefill.heard)) == ("none; short", 1)
        (known,) = routed.router.chooser.sources.prefills._turns._rows
        assert sum(map(len, known)) < 2_000


async def test_one_that_is_late_is_left_and_its_work_ends() -> None:
    async with fleet(late, prefill_timeout_s=LATE_S) as (routed, decoder, (prefill,)):
        assert said(await ask(routed)) == "none; late"
        async with asyncio.timeout(PATIENCE_S):
            await prefill.heard[0].gone.wait()
        assert len(decoder.heard) == 1


async def test_a_client_that_leaves_ends_the_work_there() -> None:
    async with fleet(queued) as (routed, decoder, (prefill,)):
        asking = asyncio.ensure_future(ask(routed))
        call = await prefill.hears(1)
        asking.cancel()
        async with asyncio.timeout(PATIENCE_S):
            await call.gone.wait()
        await routed.settled()
        assert decoder.heard == []
        assert routed.router.fleet.in_flight == {}
        assert (await routed.store.look(S)).in_flight == 0


async def test_a_full_one_is_not_asked() -> None:
    async with fleet(stores()) as (routed, _, (prefill,)):
        flights = [routed.router.fleet.begin("p1") for _ in range(16)]
        assert said(await ask(routed)) == "none; full"
        for flight in flights:
            flight.end()
        assert prefill.heard == []


async def test_what_never_arrives_is_tried_three_times_and_then_for_a_minute_not_at_all() -> None:
    async with fleet(stores(), decode=answers(cached=0)) as (routed, _, (prefill,)):
        told = [said(await ask(routed, session=f"s{number}")) for number in range(4)]
        assert told == ["p1; 192 tokens"] * 3 + ["none; in vain lately"]
        routed.clock.advance(61 * 10**9)
        assert said(await ask(routed, session="s5")) == "p1; 192 tokens"
        assert len(prefill.heard) == 4


async def test_of_many_one_alone_waits_again_for_one_that_hangs() -> None:
    async with fleet(late, decode=answers_like_it, prefill_timeout_s=LATE_S) as (routed, _, (prefill,)):
        for number in range(3):
            assert said(await ask(routed, session=f"s{number}")) == "none; late"
        routed.clock.advance(61 * 10**9)
        turns = await asyncio.gather(*(ask(routed, session=f"t{number}") for number in range(5)))
        assert sorted(map(said, turns)) == ["none; in vain lately"] * 4 + ["none; late"]
        assert len(prefill.heard) == 4


@pytest.mark.parametrize("script", [stores(0), breaks])
async def test_nobody_waits_for_ever_more_prompts_that_do_not_come(script: Script) -> None:
    async with fleet(script) as (routed, _, (prefill,)):
        told = [said(await ask(routed, session=f"s{number}")) for number in range(4)]
        assert told[3] == "none; in vain lately"
        assert len(prefill.heard) == 3


async def test_a_prompt_is_computed_ahead_once_however_often_it_is_sent() -> None:
    """The first decode worker is full; the second takes the request, and loads what was stored."""
    async with (
        fleet(stores(), decode=stores(status=429)) as (routed, decoder, (prefill,)),
        Upstream(answers()).serving() as second,
    ):
        await routed.register("e", second.url, role=Role.DECODE)
        flight = routed.router.fleet.begin("e")
        answer = await ask(routed)
        flight.end()
        assert (answer.headers[wire.WORKER], said(answer)) == ("e", "p1; 192 tokens")
        assert (len(prefill.heard), len(decoder.heard), len(second.heard)) == (1, 1, 1)
        record = await routed.store.look(S)
        assert (record.worker, record.prefill) == ("e", "p1")


async def test_a_session_that_was_closed_meanwhile_is_not_computed_ahead() -> None:
    async with fleet(stores()) as (routed, _, (prefill,)):
        assign = routed.store.assign

        async def closed_before(*arguments: Any, **named: Any) -> Any:
            if named.get("prefill"):
                await routed.http.delete("/v1/sessions/s")
            return await assign(*arguments, **named)

        routed.store.assign = closed_before  # type: ignore[method-assign]
        assert said(await ask(routed)) == "none; the session has moved"
        assert prefill.heard == []


async def test_a_store_that_goes_away_meanwhile_costs_the_prefill_alone() -> None:
    async with fleet(stores(), decode=answers_like_it) as (routed, decoder, (prefill,)):
        await ask(routed, [7] * 20)
        assign = routed.store.assign

        async def away(*_arguments: Any, **_named: Any) -> Any:
            raise CacheError(Kind.STORE_FAILED, "away")

        routed.store.assign = away  # type: ignore[method-assign]
        assert said(await ask(routed)) == "none; session store unavailable"
        routed.store.assign = assign  # type: ignore[method-assign]
        assert (prefill.heard, len(decoder.heard)) == ([], 2)


async def test_clients_can_ask_for_none_of_it() -> None:
    """Neither by a header, nor by a tag of their own, nor by naming the worker."""
    async with fleet(stores()) as (routed, decoder, (prefill,)):
        answer = await ask(routed, LONG[:20], x_agentcache_prefill="1", x_agentcache_tag="mine")
        assert said(answer) == "none; short"
        assert wire.PREFILL not in decoder.heard[0].headers
        assert not hints(decoder.heard[0], "d").prefill
        pinned = await routed.post(body={"prompt": LONG}, x_agentcache_worker="p1")
        assert (pinned.status_code, prefill.heard) == (503, [])


async def test_prefill_workers_alone_answer_nobody() -> None:
    async with routing() as routed, Upstream(plain_answer).serving() as worker:
        await routed.register("p1", worker.url, role=Role.PREFILL)
        answer = await routed.post(body={"prompt": LONG})
        assert answer.status_code == 503
        assert "start one with --role decode, or both" in answer.json()["error"]["message"]
        ready = await routed.http.get("/ready")
        assert (ready.status_code, worker.heard) == (503, [])
        assert "compute prompts only" in ready.json()["error"]["message"]


async def test_roles_are_listed_with_the_workers() -> None:
    async with fleet(stores()) as (routed, _, _):
        listed = (await routed.http.get("/v1/workers")).json()["data"]
        assert {one["id"]: one["role"] for one in listed} == {"d": "decode", "p1": "prefill"}

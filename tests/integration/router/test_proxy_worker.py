"""The router before a real worker: engine, tags, link and all, in one process and over sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import process_time
from typing import Any

import anthropic
import msgspec
import openai
import pytest

from agentcache import wire
from agentcache.engine.engine import Engine
from agentcache.ids import scoped
from agentcache.store.api import SessionRef
from agentcache.types import SessionId
from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from agentcache.worker.link import RouterLink
from agentcache.worker.link_standing import Pace
from agentcache.worker.tagged import TagGate
from tests.patience import PATIENCE_S
from tests.routing import PATIENT, SIGNER, Routed, card, now_ms, raw_client, routing, serving
from tests.serving import no_references, nothing_left, own_worker, save_tiny_checkpoint

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]
S = SessionRef("default", "s")
OWN = SessionId("s")
WORDS = "the parser gets bytes where it wants text, and the tests say so; " * 8
ENDLESS: dict[str, Any] = {"prompt": [5] * 8, "max_tokens": 4000, "ignore_eos": True, "stream": True}
EAGER = Pace(0.1)
LIMIT_S = 0.2
"""Of the process: what it was not let run counts for nothing."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


async def for_ever(_seconds: float) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def house(checkpoint: Path, pace: Pace = EAGER, **changes: Any) -> AsyncIterator[tuple[Routed, Worker]]:
    """A router with one real worker, linked to the same store."""
    async with own_worker(checkpoint, **changes) as worker, routing(PATIENT) as routed:
        worker.gate = gate = TagGate(SIGNER, "w1", now_ms)
        async with serving(create_app(worker)) as url:
            gate._bearer = SIGNER.bearer("w1", url).encode()  # the port is known only now
            link = RouterLink(routed.store, card("w1", url), worker.thread, worker.clock, pace)
            await link.start()
            try:
                await routed.look()
                yield routed, worker
            finally:
                await link.stop()


async def test_turns_reuse_what_the_session_has_and_every_client_is_understood(checkpoint: Path) -> None:
    async with (
        house(checkpoint) as (routed, _),
        openai.AsyncOpenAI(base_url=f"{routed.url}/v1", api_key="none") as ours,
        anthropic.AsyncAnthropic(base_url=routed.url, api_key="none") as theirs,
    ):
        headers = {"x-session-id": "s"}
        chat = [
            await ours.chat.completions.create(
                model="tiny",
                messages=[{"role": "user", "content": WORDS}],
                max_tokens=4,
                extra_headers=headers,
            )
            for _ in range(2)
        ]
        cached = [
            (one.usage.prompt_tokens_details.cached_tokens or 0)
            if one.usage and one.usage.prompt_tokens_details
            else 0
            for one in chat
        ]
        assert cached[0] == 0 < cached[1]
        said: list[anthropic.types.MessageParam] = [{"role": "user", "content": WORDS}]
        async with theirs.messages.stream(
            model="tiny", max_tokens=4, messages=said, extra_headers={"x-claude-code-session-id": "c"}
        ) as stream:
            message = await stream.get_final_message()
        assert message.usage.output_tokens
        counted = await theirs.messages.count_tokens(model="tiny", messages=said)
        assert counted.input_tokens > 0
        answered = await ours.responses.create(model="tiny", input=WORDS, max_output_tokens=16)
        assert answered.usage
        listed = (await routed.http.get("/v1/sessions")).json()
        assert {one["session_id"] for one in listed["data"]} == {
            "s",
            "c",
        }


async def test_an_answer_is_the_same_bytes_with_and_without_the_router(checkpoint: Path) -> None:
    body = {"prompt": [7] * 70, "max_tokens": 12, "temperature": 0, "return_token_ids": True}
    async with house(checkpoint) as (routed, _):
        first, second = [await routed.post(body=body) for _ in range(2)]
    assert first.json()["choices"] == second.json()["choices"]
    assert wire.CACHED in second.headers


async def test_a_session_says_at_the_router_why_its_turns_hit(checkpoint: Path) -> None:
    """The words of the answers, the wait, and what a close would let go of, as the worker has them."""
    body = {"prompt": [7] * 70, "max_tokens": 2}
    async with house(checkpoint) as (routed, _):
        answers = [await routed.post(body=body, x_agentcache_session="s") for _ in range(2)]
        said = [answer.headers[wire.WHY] for answer in answers]
        assert said == ["never_stored FULL at 0", "full hit"]
        seen = (await routed.http.get("/v1/sessions/s")).json()
        assert [(turn["why"], turn["worker"]) for turn in seen["turns"]] == [(said[1], "w1"), (said[0], "w1")]
        assert (seen["wait"]["state"], seen["wait"]["hint_believed"]) == ("idle", None)
        preview = (await routed.http.delete("/v1/sessions/s?mode=preview")).json()
        assert seen["closing"]["released"] == preview["released"] != []


async def test_a_worker_that_has_started_anew_is_asked_again_with_a_tag_of_its_own(checkpoint: Path) -> None:
    """The router learns of the start from the refusal, before it looks at the workers the next time."""
    silent = Pace(pause=for_ever)  # who was there before is not heard
    async with house(checkpoint, silent) as (routed, worker):
        worker.gate = TagGate(SIGNER, "w1", now_ms, incarnation="anew")
        (entry,) = await routed.store.workers()
        await routed.store.register(msgspec.structs.replace(entry.card, incarnation="anew"))
        answer = await routed.post(body={"prompt": [7] * 70, "max_tokens": 2})
    assert answer.status_code == 200


async def test_what_clients_say_of_their_return_reaches_the_order_of_eviction(checkpoint: Path) -> None:
    """With a request, counted from its turn's end; by a pause, from then; and until it is taken back."""
    async with house(checkpoint) as (routed, worker):

        async def hint_s() -> float:
            waits = await worker.thread.call(
                lambda engine: engine.cache._sessions.wait(scoped("default", OWN))
            )
            return (waits.hint_ns or 0) / 1e9

        body = {"prompt": [7] * 70, "max_tokens": 2}
        answer = await routed.post(body=body, x_session_id=OWN, x_agentcache_expected_s="12.5")
        assert (answer.status_code, await hint_s()) == (200, 12.5)
        path = f"/v1/sessions/{OWN}"
        assert (await routed.http.post(f"{path}/pause", json={"expected_s": 40})).status_code == 200
        assert 40 <= await hint_s() < 40 + PATIENCE_S
        assert (await routed.http.post(f"{path}/resume")).status_code == 200
        assert await hint_s() == 0


async def test_a_client_that_leaves_frees_the_engine_and_the_session(checkpoint: Path) -> None:
    async with house(checkpoint) as (routed, worker):
        async with raw_client(routed.url, "/v1/completions", ENDLESS, x_session_id="s") as (reader, _):
            await reader.readuntil(b"data: ")
            assert await worker.thread.call(Engine.active)
        began = process_time()
        while await worker.thread.call(Engine.active):
            await asyncio.sleep(0)
        assert process_time() - began < LIMIT_S
        await routed.settled()
        assert (await routed.store.look(S)).in_flight == 0


async def test_a_queued_request_whose_client_leaves_never_runs(checkpoint: Path) -> None:
    """R225: one runs, the others wait for its seat; those that are gone never take it."""
    async with house(checkpoint, max_running=1) as (routed, worker):
        async with raw_client(routed.url, "/v1/completions", ENDLESS, x_session_id="s") as (reader, _):
            await reader.readuntil(b"data: ")
            for _ in range(5):
                async with raw_client(routed.url, "/v1/completions", ENDLESS, x_session_id="s"):
                    while (await worker.thread.call(Engine.load)).waiting != 1:
                        await asyncio.sleep(0)
                began = process_time()
                while (await worker.thread.call(Engine.load)).waiting:
                    await asyncio.sleep(0)
                assert process_time() - began < LIMIT_S
            assert len(await worker.thread.call(Engine.active)) == 1
        while await worker.thread.call(Engine.active):
            await asyncio.sleep(0)
        await routed.settled()
        assert (await routed.store.look(S)).in_flight == 0
        await worker.thread.call(nothing_left)


async def test_a_close_reaches_the_worker_and_what_comes_late_registers_nothing(checkpoint: Path) -> None:
    async with house(checkpoint) as (routed, worker):
        await routed.post(body={"prompt": WORDS, "max_tokens": 4}, x_session_id="s")
        closed = (await routed.http.delete("/v1/sessions/s")).json()
        assert closed["state"] == "closed"
        assert [(told["worker"], told["outcome"]) for told in closed["workers"]] == [("w1", "released")]
        late = await routed.post(body={"prompt": WORDS, "max_tokens": 4}, x_session_id="s")
        assert (late.status_code, late.headers[wire.STATE]) == (200, "closed")
        await worker.thread.call(no_references)


async def test_a_worker_takes_nothing_but_from_its_router(checkpoint: Path) -> None:
    async with house(checkpoint) as (routed, _):
        (view,) = routed.router.fleet.views()
        refused = await routed.http.post(f"{view.url}/v1/completions", json={"prompt": "hi"})
        told = await routed.post(body={"prompt": "hi", "max_tokens": 2}, x_agentcache_tag="forged")
    assert refused.status_code == 401
    assert told.status_code == 200


async def test_a_worker_ahead_of_the_store_is_overtaken(checkpoint: Path) -> None:
    """The store was restored from an old copy: generations rise above what the worker has seen."""
    async with house(checkpoint) as (routed, _):
        first = await routed.post(body={"prompt": "hi", "max_tokens": 2}, x_session_id="s")
        seen = int(first.headers[wire.GENERATION])
        await routed.settled()
        session = routed.store.books.open[S]
        session.generation = seen - 5
        again = await routed.post(body={"prompt": "hi", "max_tokens": 2}, x_session_id="s")
    assert (again.status_code, again.headers[wire.STATE]) == (200, "open")
    assert int(again.headers[wire.GENERATION]) > seen

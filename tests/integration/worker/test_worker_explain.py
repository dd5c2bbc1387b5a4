"""`GET /v1/sessions/ID` of a worker that keeps account: turns with their reasons, children, waits; and its events."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic, time
from typing import Any

import httpx2
import pytest
import pytest_asyncio
import zmq

from agentcache.config import Settings
from agentcache.kv_events import END_SEQ, pack_seq, unpack_seq
from agentcache.session_feed import decode_sessions
from agentcache.worker.context import Worker
from agentcache.worker.explaining import SET_S
from agentcache.worker.kv_publisher import NO_PUBLISHER
from agentcache.worker.serve import start_worker
from agentcache.worker.session_publisher import open_session_publisher
from tests.accounting import SIZES
from tests.engines import prompt_of
from tests.integration.worker.test_worker_process import serving
from tests.patience import PATIENCE_S
from tests.serving import client_of, nothing_left
from tests.subscribing import DEADLINE_MS

pytestmark = pytest.mark.asyncio
Json = dict[str, Any]
A, B = list(prompt_of(100, seed=1)), list(prompt_of(100, seed=2))
SMALL = {"full_slots": 32, "model": "tiny-full"}


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[Worker]:
    settings = Settings.model_validate(
        {"engine": "accounting", **SIZES, **SMALL, "session_events": "tcp://127.0.0.1:*"}
    )
    happenings = open_session_publisher(settings, "life-1", lambda: 1.0)
    one = start_worker(settings, NO_PUBLISHER, happenings)
    try:
        yield one
        await one.thread.call(nothing_left)
    finally:
        await one.thread.stop(0)
        happenings.close()


@pytest_asyncio.fixture
async def client(worker: Worker) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(worker) as http:
        yield http


async def turn(
    client: httpx2.AsyncClient, prompt: list[int], session: str, **headers: str
) -> httpx2.Response:
    named = {
        "x-agentcache-session": session,
        **{f"x-agentcache-{name}": said for name, said in headers.items()},
    }
    answer = await client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 2}, headers=named)
    assert answer.status_code == 200, answer.text
    return answer


async def shown(client: httpx2.AsyncClient, session: str) -> Json:
    answer = await client.get(f"/v1/sessions/{session}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def told(replay_url: str) -> list[tuple[str, str]]:
    """What a reader of the session events knows by now: type and session, from the beginning."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as asking:
        asking.linger = 0
        asking.connect(replay_url)
        asking.send_multipart([b"", pack_seq(0)])
        said: list[tuple[str, str]] = []
        while asking.poll(DEADLINE_MS):
            _, _, seq, payload = asking.recv_multipart()
            if unpack_seq(seq) == END_SEQ:
                return said
            events = decode_sessions(payload).events
            said += [(type(event).__name__, getattr(event, "session_id", "")) for event in events]
        raise AssertionError("no end marker")


async def test_the_history_says_what_the_answers_said(client: httpx2.AsyncClient) -> None:
    answers = [
        await turn(client, prompt, session) for prompt, session in ((A, "a"), (A, "a"), (B, "b"), (A, "a"))
    ]
    seen = await shown(client, "a")
    said = [answers[at].headers["x-agentcache-why"] for at in (3, 1, 0)]
    assert [one["why"] for one in seen["turns"]] == said
    assert said[1:] == ["full hit", "never_stored FULL at 0"]
    newest = seen["turns"][0]
    assert said[0] == f"evicted FULL at {newest['token']}"
    assert (newest["reason"], newest["component"], newest["diverged_at"]) == ("evicted", "FULL", None)
    assert newest["prompt_tokens"] == 100
    assert newest["cached_tokens"] == {"device": newest["token"], "host": 0, "external": 0}
    assert newest["token"] < 96
    assert newest["at"] >= seen["turns"][1]["at"] > 1_700_000_000


async def test_a_turn_began_when_it_began_whenever_it_is_shown(client: httpx2.AsyncClient) -> None:
    before_s = time()
    answer = await turn(client, A, "a")
    after_s = time()
    seen = [(await shown(client, "a"))["turns"][0]["at"] for _ in range(20)]
    assert set(seen) == {seen[0]}
    assert before_s - SET_S <= seen[0] <= after_s + SET_S
    created = answer.json()["created"]
    assert type(created) is int
    assert int(before_s) <= created <= after_s


async def test_the_first_token_that_differs_is_named(client: httpx2.AsyncClient) -> None:
    await turn(client, A, "a")
    answer = await turn(client, [*A[:50], 3, 4, 5, *A[53:]], "a")
    assert answer.headers["x-agentcache-why"] == "prefix_changed FULL at 50"
    assert (await shown(client, "a"))["turns"][0]["diverged_at"] == 50


async def test_a_session_shows_its_children_its_wait_and_what_a_close_lets_go_of(
    client: httpx2.AsyncClient,
) -> None:
    await client.post("/v1/sessions", json={"session_id": "root", "on_close": "drop"})
    began_s = monotonic()
    await turn(client, A, "root")
    await turn(client, A[:40], "child", parent="root")
    paused = await client.post("/v1/sessions/root/pause", json={"tool": "tests", "expected_s": 30})
    assert paused.status_code == 200
    seen = await shown(client, "root")
    preview = (await client.delete("/v1/sessions/root?mode=preview")).json()
    assert (seen["children"], seen["child_count"], seen["parent"]) == (["child"], 1, None)
    assert seen["closing"] == {
        "mode": "drop",
        "markers": preview["markers"],
        "released": preview["released"],
    }
    assert preview["released"]
    wait = seen["wait"]
    assert (wait["state"], wait["kind"], wait["hint_believed"]) == ("idle", "tool", True)
    most_s = 30 + monotonic() - began_s + 0.001  # it counts from its turn's end
    assert 30 <= wait["hint_s"] == wait["expected_s"] <= most_s
    child = await shown(client, "child")
    assert (child["parent"], child["children"], child["wait"]["hint_believed"]) == ("root", [], None)


async def test_what_happens_is_published_in_order(client: httpx2.AsyncClient, worker: Worker) -> None:
    await turn(client, A, "a")
    await client.post("/v1/sessions/a/pause", json={"tool": "tests"})
    await client.post("/v1/sessions/a/resume")
    await turn(client, B, "b")
    await client.delete("/v1/sessions/a")
    expected = [
        ("SessionOpened", "a"),
        ("SessionPaused", "a"),
        ("SessionResumed", "a"),
        ("SessionOpened", "b"),
        ("SessionEvicted", "a"),
        ("SessionClosed", "a"),
    ]
    while len(said := told(worker.happenings.replay_url)) < len(expected):
        pass
    assert said == expected
    lines = (await client.get("/metrics")).text.splitlines()
    assert "agentcache_session_events_published_total 6.0" in lines


@pytest.mark.timeout(300)
async def test_a_process_publishes_its_sessions_until_its_end(checkpoint: Path, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/sessions"
    async with serving(checkpoint, "--session-events", address) as running:
        async with httpx2.AsyncClient(base_url=running.url, timeout=PATIENCE_S) as http:
            await turn(http, A[:8], "a")
            where = (await http.get("/v1/sessions")).json()["events"]
        assert where == {"events_url": address, "replay_url": f"{address}.replay"}
        while not (said := told(where["replay_url"])):
            pass
        assert said == [("SessionOpened", "a")]
        running.process.send_signal(signal.SIGTERM)
        assert await running.ended() == 0
    assert not list(tmp_path.iterdir())


async def test_closed_and_unknown_sessions_are_answered_once_and_clearly(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/v1/sessions/nobody")).status_code == 404
    await turn(client, A, "a")
    await client.delete("/v1/sessions/a")
    seen = await shown(client, "a")
    assert (seen["state"], len(seen["turns"]), seen["held"]) == ("closed", 1, [])
    assert seen["wait"]["expected_s"] is None

"""Pauses on their way to workers: to whom, in which words, and that nobody is kept waiting for them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.router.fleet import WorkerView
from agentcache.router.pausing import TELL_S, Pausing
from agentcache.router.tool_waits import Ended, Expected
from agentcache.router.turn_end import TurnEnd
from agentcache.router.upstream import Reply
from agentcache.store.api import Note, NoteKind, SessionRecord, SessionRef

pytestmark = pytest.mark.asyncio
VIEWS = {
    "w1": WorkerView("w1", "http://w1"),
    "p1": WorkerView("p1", "http://p1"),
    "dead": WorkerView("dead", "http://dead", alive=False),
    "plain": WorkerView("plain", "http://plain", "sglang"),
}
PAUSE = Note(NoteKind.PAUSE, tool="bash", expected_s=20.0)


def session(worker: str, prefill: str = "") -> SessionRecord:
    ref = SessionRef("acme", "a/b")
    return SessionRecord(ref, state="open", generation=7, worker=worker, prefill=prefill)


class Workers:
    """What they were told, and what they answer: a status, or nothing (0)."""

    def __init__(self, status: int = 200) -> None:
        self.told: list[tuple[str, dict[str, Any], Mapping[str, str], float]] = []
        self._status = status

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], wait_s: float) -> Reply:
        self.told.append((url, json.loads(body), headers, wait_s))
        if not self._status:
            raise CacheError(Kind.UPSTREAM_FAILED, "gave no answer in time")
        return Reply(self._status, b"{}")

    def pausing(self) -> Pausing:
        return Pausing(VIEWS.get, self.post, "{} at {}".format)


async def test_the_worker_that_has_the_session_is_told_under_the_name_that_it_knows() -> None:
    workers = Workers()
    assert await workers.pausing().tell(session("w1"), PAUSE)
    assert await workers.pausing().tell(session("w1"), Note(NoteKind.RESUME))
    url, bearer = "http://w1/v1/sessions/acme%2Fa%2Fb", {"authorization": "Bearer w1 at http://w1"}
    assert workers.told == [
        (f"{url}/pause", {"generation": 7, "tool": "bash", "expected_s": 20.0}, bearer, TELL_S),
        (f"{url}/resume", {"generation": 7}, bearer, TELL_S),
    ]


def turn(worker: str, prefill: str = "") -> Ended:
    return Ended(SessionRef("acme", "a/b"), worker, 7, TurnEnd("tool_calls", ("bash",)), prefill=prefill)


async def test_what_was_learned_is_told_as_that() -> None:
    workers = Workers()
    assert await workers.pausing().foretell(turn("w1"), Expected("bash", 20.0))
    said = {"generation": 7, "tool": "bash", "expected_s": 20.0, "learned": True}
    bearer = {"authorization": "Bearer w1 at http://w1"}
    assert workers.told == [("http://w1/v1/sessions/acme%2Fa%2Fb/pause", said, bearer, TELL_S)]


async def test_who_computes_its_prompts_is_told_too_and_tells_nobody() -> None:
    """Its words are for its order alone: not every return of the session reaches it."""
    workers, url = Workers(), "/v1/sessions/acme%2Fa%2Fb"
    assert await workers.pausing().tell(session("w1", "p1"), PAUSE)
    assert await workers.pausing().tell(session("w1", "p1"), Note(NoteKind.RESUME))
    assert await workers.pausing().foretell(turn("w1", "p1"), Expected("bash", 9.0))
    said = {"generation": 7, "tool": "bash"}
    assert [(path, body) for path, body, _, _ in workers.told] == [
        (f"http://w1{url}/pause", {**said, "expected_s": 20.0}),
        (f"http://p1{url}/pause", {**said, "expected_s": 20.0, "learned": True}),
        (f"http://w1{url}/resume", {"generation": 7}),
        (f"http://p1{url}/resume", {"generation": 7}),
        (f"http://w1{url}/pause", {**said, "expected_s": 9.0, "learned": True}),
        (f"http://p1{url}/pause", {**said, "expected_s": 9.0, "learned": True}),
    ]


async def test_whether_it_was_heard_is_a_matter_of_the_sessions_own_worker() -> None:
    assert await Workers().pausing().tell(session("w1", "dead"), PAUSE)
    assert not await Workers().pausing().tell(session("dead", "p1"), PAUSE)


@pytest.mark.parametrize("worker", ["", "gone", "dead", "plain"])
async def test_nobody_is_told_where_nobody_would_hear(worker: str) -> None:
    workers = Workers()
    assert not await workers.pausing().tell(session(worker), PAUSE)
    assert not await workers.pausing().foretell(turn(worker), Expected("bash", 20.0))
    assert not workers.told


async def test_a_touch_is_the_stores_alone() -> None:
    workers = Workers()
    assert not await workers.pausing().tell(session("w1"), Note(NoteKind.TOUCH))
    assert not workers.told


@pytest.mark.parametrize("status", [0, 401, 404, 409, 500])
async def test_a_worker_that_does_not_take_it_is_no_error(status: int) -> None:
    assert not await Workers(status).pausing().tell(session("w1"), PAUSE)
    assert not await Workers(status).pausing().foretell(turn("w1"), Expected("bash", 20.0))

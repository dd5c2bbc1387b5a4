"""The sweep goes on whatever the store does, at its own pace, and says what it did."""

import asyncio
from dataclasses import dataclass, field

import pytest
import structlog

from agentcache.errors import CacheError, Kind
from agentcache.router.sweeper import LIMIT, MORE_S, Sweeper
from agentcache.store.api import ClosedOne, Opening, SessionRef, StoreRules, Swept
from agentcache.store.memory import MemoryStore

pytestmark = pytest.mark.asyncio
NOTHING = Swept()


@dataclass
class Script:
    """A store that answers sweeps from a list; where it ends, so does the run."""

    answers: list[Swept | CacheError]
    limits: list[int] = field(default_factory=list)

    async def sweep(self, limit: int) -> Swept:
        self.limits.append(limit)
        if not self.answers:
            raise asyncio.CancelledError
        answer = self.answers.pop(0)
        if isinstance(answer, CacheError):
            raise answer
        return answer


@dataclass
class Told:
    """What was told, and how long the sweeper waited."""

    ended: list[tuple[str, ClosedOne]] = field(default_factory=list)
    paused: list[float] = field(default_factory=list)

    def closed(self, one: ClosedOne) -> None:
        self.ended.append(("closed", one))

    def lapsed(self, one: ClosedOne) -> None:
        self.ended.append(("lapsed", one))

    async def pause(self, seconds: float) -> None:
        self.paused.append(seconds)


async def swept(*answers: Swept | CacheError, jitter: float = 0.0) -> tuple[Script, Told]:
    script, told = Script(list(answers)), Told()
    with pytest.raises(asyncio.CancelledError):
        await Sweeper(script, told, lambda: jitter, 0.5, told.pause).run()
    return script, told


async def test_it_waits_between_its_time_and_twice_that() -> None:
    for jitter, waits in ((0.0, 0.5), (0.5, 0.75), (0.999, 0.9995)):
        script, told = await swept(NOTHING, NOTHING, jitter=jitter)
        assert told.paused == pytest.approx([waits, waits])
        assert script.limits == [LIMIT] * 3


async def test_it_goes_on_at_once_while_there_is_more() -> None:
    _, told = await swept(Swept(again=True), Swept(again=True), NOTHING)
    assert told.paused == [MORE_S, MORE_S, 0.5]


async def test_it_survives_a_store_that_fails_and_says_so_once() -> None:
    down = CacheError(Kind.STORE_FAILED, "did not answer")
    with structlog.testing.capture_logs() as lines:
        _, told = await swept(down, down, down, Swept(offered=2, expired=1), down)
    assert told.paused == [0.5] * 5
    assert [line["event"] for line in lines] == ["sweep_failed", "swept", "sweep_failed"]
    assert (lines[1]["offered"], lines[1]["expired"], lines[1]["closed"]) == (2, 1, 0)


async def test_nothing_done_is_nothing_said() -> None:
    with structlog.testing.capture_logs() as lines:
        await swept(NOTHING, Swept(again=True))
    assert lines == []


async def test_what_ended_is_told() -> None:
    closed, lapsed = ClosedOne("a", 1, ("s",), "t"), ClosedOne("b", 2, ("s",), "u")
    _, told = await swept(Swept(closed=(closed,), lapsed=(lapsed,)))
    assert told.ended == [("closed", closed), ("lapsed", lapsed)]


async def test_idle_sessions_of_a_real_store_run_out() -> None:
    now = [1_000_000]
    store = MemoryStore(StoreRules(ttl_s=10), lambda: now[0], lambda: "e1")
    await store.open(SessionRef("t", "s"), Opening())
    sweeper = Sweeper(store, Told(), lambda: 0.0)
    await sweeper.once()
    assert (await store.look(SessionRef("t", "s"))).state == "open"
    now[0] += 10_000
    await sweeper.once()
    assert (await store.look(SessionRef("t", "s"))).state == "none"

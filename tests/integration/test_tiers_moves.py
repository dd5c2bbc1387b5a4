"""Copies that fail, come late or end in any order, and requests that leave between any two steps of a move.

What is answered is what is answered without tiers; what is reused is never more than there is; nothing is left behind.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

from agentcache.engine.api import Event, Finished, FinishReason, GenerateRequest
from agentcache.engine.engine import Engine
from agentcache.engine.thread import EngineThread
from agentcache.tiers.lanes import Lane, Step
from agentcache.tiers.stores.faulty import Call, FaultyStore, Moment
from agentcache.tiers.stores.memory import MemoryStore
from tests.engines import ask, at_rest, of, prompt_of, said, tag
from tests.faults import (
    SMALL_HOST,
    MovableClock,
    between_steps,
    engine_over,
    fresh,
    golden,
    only_hits_were_lost,
    play,
)
from tests.golden import serve, steps, totals
from tests.lanes import ManualCopy, ManualLane

pytestmark = pytest.mark.timeout(300)

MIB = 1 << 20
HOST_MIB = 8.0
PROMPT, OTHER, THIRD = prompt_of(100, 1), prompt_of(100, 2), prompt_of(100, 3)
POLICIES = pytest.mark.parametrize("policy", ["write_through", "write_back"])


@contextmanager
def engine_on(lane: Lane, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Iterator[Engine]:
    """An engine whose copies between device and host run on a lane of the test's."""
    monkeypatch.setattr("agentcache.engine.tiers._lane", lambda _settings, _bell: lane)
    with engine_over(host_mib=HOST_MIB, **changes) as engine:
        yield engine


# copies


class SometimesFailing(ManualLane):
    """Carries out at once; every `every`-th copying dies in its `at`-th step, or in its last."""

    def __init__(self, every: int, at: int) -> None:
        super().__init__()
        self.deaths = 0
        self._every = every
        self._at = at

    def run(self, steps: Sequence[Step]) -> ManualCopy:
        copy = super().run(steps)
        if len(self.copies) % self._every or not copy.steps:
            copy.finish()
        else:
            copy.fail(min(self._at, len(copy.steps) - 1))
            self.deaths += 1
        return copy


@POLICIES
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("at", [0, 1, 5, 1000])
def test_a_copy_that_dies_at_any_step_has_not_happened(
    at: int, every: int, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R005, R006, R041, R065, R129: to the host and back from it; of the last step, too, all bytes may be there."""
    lane = SometimesFailing(every, at)
    with engine_on(lane, monkeypatch, write_policy=policy) as engine:
        answers = play(engine, lambda _number: None)
    only_hits_were_lost(answers)
    assert lane.deaths > 0
    if every == 1:
        assert sum(answer.cached.host for answer in answers) == 0


class Unhurried(ManualLane):
    """Ends a copying now and then: the oldest, the newest, or any."""

    def __init__(self, order: str, every: int) -> None:
        super().__init__()
        self._order = order
        self._every = every
        self._looks = 0
        self._random = random.Random(3)

    def look(self) -> None:
        waiting = [copy for copy in self.copies if not copy.ended]
        self._looks += 1
        if waiting and not self._looks % self._every:
            at = {"oldest": 0, "newest": -1, "any": self._random.randrange(len(waiting))}[self._order]
            waiting[at].finish()


@POLICIES
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("order", ["oldest", "newest", "any"])
def test_copies_that_end_late_and_in_any_order(
    order: str, every: int, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R030, R070, R138. What a copy reads or fills stays as it is until it has ended."""
    lane = Unhurried(order, every)
    with engine_on(lane, monkeypatch, write_policy=policy) as engine:
        between_steps(engine, lane.look, monkeypatch)
        answers = play(engine, lambda _number: None)
    only_hits_were_lost(answers)
    assert sum(answer.cached.host for answer in answers) > 0


@POLICIES
def test_requests_at_once_over_slow_copies_say_what_they_say_alone(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R030, R066, R067, R109, R134: pages move both ways all the time, under more requests than the device holds."""
    lane = Unhurried("any", 2)
    prompts = [prompt_of(90, seed) for seed in range(6)]
    alone = [fresh(ask("alone", prompt, 3)).tokens for prompt in prompts]
    with engine_on(lane, monkeypatch, write_policy=policy, max_running=3) as engine:
        between_steps(engine, lane.look, monkeypatch)
        for lap in range(3):
            for number, prompt in enumerate(prompts):
                engine.submit(ask(f"{lap}.{number}", prompt, 3, session=tag(f"s{number}")))
            events = list(steps(engine))
            for number, tokens in enumerate(alone):
                assert tuple(said(events, f"{lap}.{number}")) == tokens
        assert engine.cache.stats().turns.cached_tokens > 0


# leaving while something moves


def leaves_then_comes_again(engine: Engine, after: int) -> int:
    """A request goes away after so many steps; the next one with its prompt is answered right, and from the cache.

    Answers how many jobs were in flight when it left.
    """
    engine.submit(ask("gone", PROMPT, 4, session=tag("s")))
    events: list[Event] = []
    for _ in range(after):
        events += engine.step()
        engine.cache.check()
    in_flight = engine.cache.stats().jobs_in_flight
    engine.abort("gone")
    events += list(steps(engine))
    (end,) = of(Finished, events, "gone")
    assert end.reason in (FinishReason.ABORT, FinishReason.LENGTH)
    assert at_rest(engine)
    assert engine.cache.tiers.idle
    again = serve(engine, ask("again", PROMPT, 4, digest_logits=True))
    assert (again.tokens, again.first_logits) == whole()
    assert again.cached.total == 96
    return in_flight


@cache
def whole(prompt: tuple[int, ...] = PROMPT) -> tuple[tuple[int, ...], str]:
    answer = fresh(ask("fresh", prompt, 4, digest_logits=True))
    return answer.tokens, answer.first_logits


def fill(engine: Engine) -> None:
    """The prompt lies below the device, and others on it."""
    for name, prompt in (("first", PROMPT), ("other", OTHER), ("third", THIRD)):
        serve(engine, ask(name, prompt, 4))


@pytest.mark.parametrize("carried", [0, 3, 1000])
@pytest.mark.parametrize("after", range(7))
def test_a_request_that_loads_from_the_host_may_leave_after_any_step(
    after: int, carried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R043, R058, R138: with none, some or all of the copy's steps carried out."""
    lane = ManualLane()
    with engine_on(lane, monkeypatch) as engine:
        with monkeypatch.context() as quick:
            between_steps(engine, lane.drain, quick)
            fill(engine)

        def carry_on() -> None:
            """So many steps of each copying before the request leaves, and all after that."""
            for copy in lane.copies:
                if not copy.ended:
                    copy.advance(carried if "gone" in engine.active() else 1000)

        between_steps(engine, carry_on, monkeypatch)
        in_flight = leaves_then_comes_again(engine, after)
    if carried == 0:
        assert (in_flight > 0) is (after > 0), "it was loading when it left"


@pytest.mark.parametrize("host_mib", [None, SMALL_HOST], ids=["direct", "host"])
@pytest.mark.parametrize("after", range(8))
def test_a_request_that_prefetches_may_leave_after_any_step(after: int, host_mib: float | None) -> None:
    """R058: whatever the store's threads are doing then."""
    with engine_over(MemoryStore(64 * MIB), host_mib=host_mib) as engine:
        fill(engine)
        engine.cache.flush()
        leaves_then_comes_again(engine, after)


@pytest.mark.parametrize("host_mib", [None, SMALL_HOST], ids=["direct", "host"])
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("call", [Call.EXISTS, Call.GET])
def test_a_request_may_leave_while_the_store_is_in_a_call_for_it(
    call: Call, moment: Moment, host_mib: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R058, R106. The call comes back when others have its slots, and touches nothing."""
    store, clock = FaultyStore(MemoryStore(64 * MIB), random.Random(1)), MovableClock()
    with engine_over(store, clock, host_mib=host_mib) as engine:
        fill(engine)
        engine.cache.flush()
        clock.forward(10)  # what is known of the store is not believed any more
        with store.hold(call, moment=moment) as gate:
            engine.submit(ask("gone", PROMPT, 4, session=tag("s")))
            while not gate.held:
                engine.step()
            engine.abort("gone")
            assert [event.reason for event in of(Finished, engine.step())] == [FinishReason.ABORT]
            engine.cache.check()
            with monkeypatch.context() as hurried:
                between_steps(engine, lambda: clock.forward(10), hurried)
                assert serve(engine, ask("other", OTHER, 4)).tokens == whole(OTHER)[0]
        engine.detach()  # waits for the threads
        assert at_rest(engine)
        other = serve(engine, ask("other", OTHER, 4, digest_logits=True))
        assert (other.tokens, other.first_logits) == whole(OTHER)
        assert other.cached.total == 96
        engine.attach(store)
        again = serve(engine, ask("again", PROMPT, 4, digest_logits=True))
        assert (again.tokens, again.first_logits) == whole()
        assert again.cached.external == 96


@pytest.mark.parametrize("moment", Moment)
def test_a_request_may_end_while_its_pages_are_being_stored(moment: Moment) -> None:
    store = FaultyStore(MemoryStore(64 * MIB), random.Random(1))
    with engine_over(store, host_mib=SMALL_HOST) as engine:
        with store.hold(Call.PUT, moment=moment) as gate:
            engine.submit(ask("first", PROMPT, 4, session=tag("s")))
            while not (gate.held and engine.idle()):
                engine.step()
            engine.cache.check()
            engine.cache.close_session("s")
            engine.submit(ask("meanwhile", OTHER, 4))
            while not engine.idle():
                engine.step()
                engine.cache.check()
        list(steps(engine))
        engine.cache.flush()
        assert serve(engine, ask("again", PROMPT, 4)).cached.external == 96


async def generated(thread: EngineThread, request: GenerateRequest, events: int) -> None:
    """Read so many events of a request, then hang up."""
    stream = thread.generate(request)
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    for _ in range(events):
        await reading
        reading = asyncio.ensure_future(anext(stream))
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await stream.aclose()


@pytest.mark.parametrize("events", range(4))
def test_a_client_may_hang_up_after_any_event(events: int) -> None:
    """R058: in the queue while its prefix is being fetched, after it was admitted, after a token."""
    with engine_over(MemoryStore(64 * MIB), host_mib=SMALL_HOST, queue_limit=100) as engine:
        fill(engine)
        engine.cache.flush()
        thread = EngineThread(lambda: engine)

        async def scenario() -> None:
            thread.start()
            try:
                await asyncio.gather(
                    *(
                        generated(thread, ask(f"{number}", PROMPT, 50, session=tag(f"s{number}")), events)
                        for number in range(5)
                    )
                )
                while not await thread.call(lambda one: one.idle() and one.cache.tiers.idle):
                    await asyncio.sleep(0)
                assert await thread.call(at_rest)
                again = [event async for event in thread.generate(ask("again", PROMPT, 4))]
                assert tuple(said(again)) == whole()[0]
                assert of(Finished, again)[0].cached.total >= 96
            finally:
                await thread.stop(0)

        asyncio.run(scenario())


def test_the_whole_trace_is_there_when_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests above measure against."""
    with engine_on(SometimesFailing(10**9, 0), monkeypatch) as engine:
        answers = play(engine, lambda _number: None)
    assert totals(answers) == totals(golden())


def test_where_sessions_part_is_seen_though_it_lies_on_the_host() -> None:
    """R179: others push the shared head out between any two forks; the second still leaves a boundary for the third."""
    shared = prompt_of(45)
    found = []
    with engine_over(host_mib=HOST_MIB) as engine:
        for seed in range(1, 5):
            answer = serve(engine, ask("fork", shared + prompt_of(60, seed), 1))
            found.append((answer.cached.total, answer.cached.host))
            for other in (50, 51):
                serve(engine, ask("other", prompt_of(100, seed * other), 1))
    assert found == [(0, 0), (0, 0), (32, 32), (32, 32)]

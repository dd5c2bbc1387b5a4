"""The engine on its own thread: streams, calls, clients that go away, and an exact end."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable

import pytest

from agentcache.clock import ManualClock
from agentcache.engine.api import Admitted, Event, Finished, FinishReason, GenerateRequest, Token
from agentcache.engine.engine import Engine
from agentcache.engine.thread import EngineThread
from agentcache.errors import CacheError, Kind
from tests.engines import ask, at_rest, of, prompt_of, run, said, small_engine, tag

LONG = 2000


@contextlib.asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[EngineThread]:
    thread = EngineThread(lambda: engine)
    thread.start()
    try:
        yield thread
    finally:
        await thread.stop(0)


async def collect(thread: EngineThread, request: GenerateRequest) -> list[Event]:
    return [event async for event in thread.generate(request)]


async def eventually(thread: EngineThread, true: Callable[[Engine], bool]) -> None:
    """Ask between steps until it holds; the test's time limit is the bound."""
    while not await thread.call(true):
        await asyncio.sleep(0)


def test_streams_say_what_the_engine_says() -> None:
    engine = small_engine()
    expected = [said(run(engine, ask("x", prompt_of(40, n), 5, reuse=False))) for n in range(3)]

    async def scenario() -> list[list[Event]]:
        async with running(small_engine()) as thread:
            return await asyncio.gather(
                *(collect(thread, ask(str(n), prompt_of(40, n), 5)) for n in range(3))
            )

    for events, tokens in zip(asyncio.run(scenario()), expected, strict=True):
        assert [type(event) for event in events] == [Admitted, *[Token] * 5, Finished]
        assert said(events) == tokens


def test_closing_the_iterator_aborts_the_request_and_returns_everything() -> None:
    engine = small_engine()

    async def scenario() -> None:
        async with running(engine) as thread:
            stream = thread.generate(ask("gone", prompt_of(40), LONG, session=tag("s")))
            async for event in stream:
                if isinstance(event, Token):
                    break
            await stream.aclose()
            await eventually(thread, at_rest)
            assert engine.load().finished_total["abort"] == 1
            assert len(await collect(thread, ask("next", prompt_of(40), 2))) == 4

    asyncio.run(scenario())


def test_a_cancelled_reader_aborts_its_request() -> None:
    engine = small_engine()

    async def scenario() -> None:
        async with running(engine) as thread:
            started = asyncio.Event()

            async def read() -> None:
                async for _ in thread.generate(ask("gone", prompt_of(40), LONG)):
                    started.set()

            reader = asyncio.create_task(read())
            await started.wait()
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader
            await eventually(thread, at_rest)

    asyncio.run(scenario())
    assert engine.load().finished_total["abort"] == 1


def test_a_reader_whose_loop_is_gone_is_aborted() -> None:
    engine = small_engine()
    thread = EngineThread(lambda: engine)
    thread.start()
    loop = asyncio.new_event_loop()
    stream = thread.generate(ask("gone", prompt_of(40), LONG))
    assert isinstance(loop.run_until_complete(anext(stream)), Admitted)
    loop.close()

    async def scenario() -> None:
        await eventually(thread, at_rest)
        await thread.stop(0)

    asyncio.run(scenario())
    assert engine.load().finished_total["abort"] == 1


def test_refusals_come_out_of_the_stream() -> None:
    async def scenario() -> list[Kind]:
        async with running(small_engine()) as thread:
            kinds = []
            for request in (ask("1", ()), ask("2", (1,), 0), ask("3", (1,), session=tag("\n"))):
                with pytest.raises(CacheError) as refused:
                    await collect(thread, request)
                kinds.append(refused.value.kind)
            return kinds

    assert asyncio.run(scenario()) == [Kind.EMPTY_PROMPT, Kind.BAD_REQUEST, Kind.BAD_SESSION_ID]


def test_calls_run_between_steps_and_answer_results_and_exceptions() -> None:
    async def scenario() -> None:
        async with running(small_engine()) as thread:
            assert await thread.call(lambda engine: engine.cache.open_session("s").created)
            assert await thread.call(lambda _: threading.current_thread().name) == "agentcache-engine"
            with pytest.raises(CacheError) as unknown:
                await thread.call(lambda engine: engine.cache.session("never seen"))
            assert unknown.value.kind is Kind.SESSION_UNKNOWN

    asyncio.run(scenario())


def test_stop_lets_running_requests_end_and_refuses_new_ones() -> None:
    engine = small_engine()

    async def scenario() -> None:
        thread = EngineThread(lambda: engine)
        thread.start()
        stream = thread.generate(ask("1", prompt_of(40), 30))
        events: list[Event] = [await anext(stream)]
        stopping = asyncio.create_task(thread.stop(60))
        await asyncio.sleep(0)
        with pytest.raises(CacheError) as refused:
            await collect(thread, ask("2", prompt_of(5), 1))
        assert refused.value.kind is Kind.SHUTTING_DOWN
        events += [event async for event in stream]
        await stopping
        await thread.stop(0)
        assert of(Finished, events)[0].reason is FinishReason.LENGTH
        with pytest.raises(CacheError) as ended:
            await thread.call(lambda _: None)
        assert ended.value.kind is Kind.SHUTTING_DOWN

    asyncio.run(scenario())
    assert at_rest(engine)


def test_stop_cuts_what_does_not_end_in_time() -> None:
    clock = ManualClock()
    engine = small_engine(clock=clock)

    async def scenario() -> list[Event]:
        thread = EngineThread(lambda: engine)
        thread.start()
        running_ = [thread.generate(ask(str(n), prompt_of(40, n), LONG)) for n in range(2)]
        firsts = [await anext(stream) for stream in running_]
        stopping = asyncio.create_task(thread.stop(5))
        await eventually(thread, lambda engine: engine.load().decode_tokens_total > 5)
        clock.advance(6_000_000_000)
        rest = [[event async for event in stream] for stream in running_]
        await stopping
        return firsts + rest[0] + rest[1]

    events = asyncio.run(scenario())
    assert [end.reason for end in of(Finished, events)] == [FinishReason.ABORT] * 2
    assert at_rest(engine)


def test_a_thread_never_started_refuses() -> None:
    async def scenario() -> None:
        thread = EngineThread(small_engine)
        await thread.stop(0)
        with pytest.raises(CacheError) as refused:
            await collect(thread, ask("1", (1,), 1))
        assert refused.value.kind is Kind.SHUTTING_DOWN

    asyncio.run(scenario())


def test_an_engine_that_breaks_ends_every_stream_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = small_engine()

    def step() -> Iterable[Event]:
        raise RuntimeError("broken")

    async def scenario() -> None:
        async with running(engine) as thread:
            stream = thread.generate(ask("1", prompt_of(40), LONG))
            await anext(stream)
            monkeypatch.setattr(engine, "step", step)
            for ask_again in (stream, thread.generate(ask("2", (1,), 1))):
                with pytest.raises(CacheError) as failed:
                    [event async for event in ask_again]
                assert failed.value.kind is Kind.ENGINE_FAILED

    asyncio.run(scenario())


def test_an_idle_thread_sleeps_and_still_lets_sessions_expire() -> None:
    """It takes a step a second, however late somebody looks."""
    clock = ManualClock()
    engine = small_engine(clock=clock, ttl_s=30)
    steps: list[int] = []
    real = engine.step

    def counted() -> list[Event]:
        steps.append(1)
        return real()

    engine.step = counted  # type: ignore[method-assign]

    async def scenario() -> float:
        async with running(engine) as thread:
            await collect(thread, ask("1", prompt_of(40), 1, session=tag("s")))
            clock.advance(31_000_000_000)
            before, began = len(steps), time.monotonic()
            while (
                engine.cache.stats().open_references
            ):  # a read of counters; the thread wakes within a second
                await asyncio.to_thread(threading.Event().wait, 0.05)
            return len(steps) - before - (time.monotonic() - began)

    assert asyncio.run(scenario()) <= 3


def test_the_engine_is_built_on_its_thread() -> None:
    """Torch keeps workers for each thread that computes; built elsewhere, a worker's prefill took twice the time."""
    built_on: list[str] = []

    def build() -> Engine:
        built_on.append(threading.current_thread().name)
        return small_engine()

    async def scenario() -> None:
        thread = EngineThread(build)
        engine = thread.start()
        assert await thread.call(lambda same: same is engine)
        await thread.stop(0)

    asyncio.run(scenario())
    assert built_on == ["agentcache-engine"]


def test_an_engine_that_cannot_be_built_is_told_by_start() -> None:
    def build() -> Engine:
        raise CacheError(Kind.BAD_CHECKPOINT, "no such model")

    thread = EngineThread(build)
    with pytest.raises(CacheError) as refused:
        thread.start()
    assert refused.value.kind is Kind.BAD_CHECKPOINT

"""An engine in its askers' loop behaves as one on a thread, in the loop's time."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from agentcache.engine.api import Event, Finished, FinishReason, GenerateRequest, Token
from agentcache.engine.engine import Engine
from agentcache.engine.inloop import EngineInLoop
from agentcache.errors import CacheError, Kind
from agentcache.replay.routed.loop import VirtualLoop, run_virtual
from tests.accounting import account
from tests.serving import nothing_left

T = TypeVar("T")
PROMPT = tuple(range(5, 5 + 96))
PACE: dict[str, Any] = {"accounting_prefill_tokens_per_s": 96.0, "accounting_decode_tokens_per_s": 2.0}


def in_loop(body: Callable[[EngineInLoop, VirtualLoop], Awaitable[T]]) -> T:
    async def main(loop: VirtualLoop) -> T:
        thread = EngineInLoop(lambda: account(clock=loop, **PACE), loop)
        thread.start()
        try:
            return await body(thread, loop)
        finally:
            await thread.stop(0)

    return run_virtual(main)


def request(name: str = "r", count: int = 4) -> GenerateRequest:
    return GenerateRequest(name, PROMPT, count)


def test_a_request_takes_its_modelled_time() -> None:
    async def body(thread: EngineInLoop, loop: VirtualLoop) -> tuple[list[type], float]:
        events = [type(event) async for event in thread.generate(request())]
        await thread.call(nothing_left)
        return events, loop.time()

    events, took_s = in_loop(body)
    assert events[-1] is Finished
    assert events.count(Token) == 4
    assert took_s == pytest.approx(1.0 + 3 * 0.5, abs=1e-6)


def test_who_leaves_ends_the_request() -> None:
    async def body(thread: EngineInLoop, _: VirtualLoop) -> None:
        asking = thread.generate(request(count=100))
        await anext(asking)
        await asking.aclose()
        assert await thread.call(lambda engine: engine.active()) == ()
        await thread.call(nothing_left)

    in_loop(body)


def test_a_stopped_engine_refuses_and_ends_what_runs() -> None:
    async def body(thread: EngineInLoop, _: VirtualLoop) -> None:
        asking = thread.generate(request(count=100))
        await anext(asking)
        await thread.stop(0)
        with pytest.raises(CacheError) as ended:
            async for _event in asking:
                pass
        with pytest.raises(CacheError) as refused:
            await thread.call(Engine.idle)
        assert ended.value.kind is refused.value.kind is Kind.SHUTTING_DOWN
        await thread.stop(0)

    in_loop(body)


def test_one_that_was_not_started_refuses() -> None:
    async def main(loop: VirtualLoop) -> None:
        thread = EngineInLoop(account, loop)
        with pytest.raises(CacheError) as refused:
            await thread.call(Engine.idle)
        assert refused.value.kind is Kind.SHUTTING_DOWN

    run_virtual(main)


def test_a_fault_of_the_engine_is_told_to_all_that_wait() -> None:
    async def body(thread: EngineInLoop, _: VirtualLoop) -> None:
        asking = thread.generate(request(count=100))
        await anext(asking)

        def breaks() -> list[Event]:
            raise ValueError("broken")

        await thread.call(lambda engine: setattr(engine, "step", breaks))
        with pytest.raises(CacheError) as failed:
            async for _event in asking:
                pass
        assert failed.value.kind is Kind.ENGINE_FAILED

    in_loop(body)


def test_a_fault_of_what_is_asked_is_its_askers() -> None:
    async def body(thread: EngineInLoop, _: VirtualLoop) -> FinishReason:
        with pytest.raises(ZeroDivisionError):
            await thread.call(lambda _: 1 // 0)
        ends = [event async for event in thread.generate(request()) if isinstance(event, Finished)]
        return ends[0].reason

    assert in_loop(body) is FinishReason.LENGTH

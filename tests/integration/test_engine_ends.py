"""Every way out of the engine gives everything back: abort at each stage, failure inside a step, pressure."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from agentcache.engine.api import Admitted, Event, Finished, FinishReason, Token
from agentcache.engine.engine import Engine
from agentcache.errors import CacheError, Kind
from agentcache.types import FULL, SWA, TierName
from tests.engines import GRID, ask, at_rest, drain, of, prompt_of, run, said, small_engine, tag

PROMPT = prompt_of(100)


def free_slots(engine: Engine) -> dict[str, int]:
    return {
        use.pool.component: use.free for use in engine.cache.stats().pools if use.pool.tier is TierName.DEVICE
    }


@pytest.mark.parametrize("steps", range(12))
def test_abort_after_any_step_gives_everything_back_and_publishes_what_was_computed(steps: int) -> None:
    engine = small_engine(prefill_tokens=GRID)
    engine.submit(ask("1", PROMPT, 4, session=tag("s")))
    for _ in range(steps):
        engine.step()
        engine.cache.check()
    engine.abort("1")
    engine.abort("1")
    ends = of(Finished, drain(engine))
    assert [end.reason for end in ends] == ([FinishReason.ABORT] if steps < 9 else [])
    assert at_rest(engine)
    computed = min(steps * GRID, len(PROMPT)) // GRID * GRID
    again = run(engine, ask("2", PROMPT, 4))
    assert of(Admitted, again)[0].cached_tokens == computed
    assert said(again) == said(run(engine, ask("3", PROMPT, 4, reuse=False)))


def test_abort_in_the_queue_leaves_no_trace() -> None:
    engine = small_engine(max_running=1)
    engine.submit(ask("1", PROMPT, 4))
    engine.submit(ask("2", PROMPT, 4, session=tag("s")))
    engine.step()
    engine.abort("2")
    events = drain(engine)
    assert of(Finished, events, "2")[0].reason is FinishReason.ABORT
    assert of(Admitted, events, "2") == []
    assert engine.cache.stats().open_references == 0
    assert at_rest(engine)


def test_abort_while_waiting_for_slots_lets_the_next_one_go() -> None:
    engine = small_engine(full_slots=26, swa_slots=40, mamba_slots=8, prefill_tokens=256)
    engine.submit(ask("long", PROMPT, 60))
    engine.step()
    engine.submit(ask("short of slots", prompt_of(100, 1), 2, session=tag("s")))
    engine.submit(ask("next", prompt_of(12, 2), 1))
    for _ in range(5):
        assert of(Admitted, engine.step(), "short of slots") == []
    engine.abort("short of slots")
    events = drain(engine)
    assert of(Finished, events, "short of slots")[0].reason is FinishReason.ABORT
    assert [event.request_id for event in of(Finished, events)].index("next") == 1
    assert at_rest(engine)


def test_a_request_short_of_slots_goes_on_once_others_end() -> None:
    engine = small_engine(full_slots=26, swa_slots=40, mamba_slots=8, prefill_tokens=256)
    events = run(engine, *(ask(str(number), prompt_of(100, number), 3) for number in range(4)))
    assert [event.reason for event in of(Finished, events)] == [FinishReason.LENGTH] * 4
    assert [event.request_id for event in of(Finished, events)] == ["0", "1", "2", "3"]
    assert at_rest(engine)


def test_unknown_ids_and_ended_ones_are_aborted_without_effect() -> None:
    engine = small_engine()
    engine.abort("never seen")
    run(engine, ask("1", PROMPT, 1))
    engine.abort("1")
    assert engine.idle()


@pytest.mark.parametrize("seed", range(3))
def test_more_sessions_than_fit_keep_answering_right(seed: int) -> None:
    """Twelve growing sessions in pools for about three: evictions all the time, and the same tokens as uncached."""
    engine = small_engine(full_slots=80, swa_slots=60, mamba_slots=12, max_running=3, prefill_tokens=48)
    source = random.Random(seed)
    chats = {str(number): list(prompt_of(30, number)) for number in range(12)}
    for turn in range(3):
        for name, prompt in chats.items():
            prompt += [source.randrange(3, 512) for _ in range(25)]
            engine.submit(ask(name, prompt, 3, session=tag(name)))
        events = drain(engine)
        assert {end.reason for end in of(Finished, events)} == {FinishReason.LENGTH}
        for name in source.sample(list(chats), 3):
            cold = run(engine, ask("cold", chats[name], 3, reuse=False))
            tokens = zip(of(Token, events, name), of(Token, cold), strict=True)
            first = next((pair for pair in tokens if pair[0].token != pair[1].token), None)
            assert first is None or min(first[0].top_margin, first[1].top_margin) < 1e-3, (turn, name, first)
    assert engine.cache.stats().turns.evicted_slots
    for name in chats:
        engine.cache.close_session(name)
    assert engine.cache.stats().open_references == 0
    assert at_rest(engine)


@pytest.mark.parametrize("seed", range(4))
def test_random_traffic_with_aborts_and_closes_gives_everything_back(seed: int) -> None:
    """Arrivals, aborts and closes at random points; when all is over and flushed, every slot is free."""
    engine = small_engine(full_slots=90, swa_slots=60, mamba_slots=10, max_running=3, prefill_tokens=32)
    start = free_slots(engine)
    source = random.Random(seed)
    shared_part = prompt_of(50)
    ended: set[str] = set()
    for number in range(60):
        name, session = str(number), f"s{source.randrange(5)}"
        prompt = shared_part[: source.randrange(1, 50)] + prompt_of(
            source.randrange(1, 60), source.randrange(8)
        )
        reuse = source.random() < 0.9
        engine.submit(ask(name, prompt, source.randrange(1, 9), session=tag(session), reuse=reuse))
        for _ in range(source.randrange(4)):
            ended |= {event.request_id for event in of(Finished, engine.step())}
            engine.cache.check()
        if source.random() < 0.3:
            engine.abort(str(source.randrange(number + 1)))
            engine.cache.check()
        if source.random() < 0.2:
            close(engine, f"s{source.randrange(5)}")
    ended |= {event.request_id for event in of(Finished, drain(engine))}
    assert ended == {str(number) for number in range(60)}
    for view in engine.cache.sessions():
        engine.cache.close_session(view.session)
    assert at_rest(engine)
    engine.cache.flush()
    assert free_slots(engine) == start


def close(engine: Engine, session: str) -> None:
    known = {view.session for view in engine.cache.sessions()}
    if session in known:
        engine.cache.close_session(session)


def failing_prefill(engine: Engine, monkeypatch: pytest.MonkeyPatch, at_call: int) -> None:
    """Let the model's memory run out at one prefill."""
    calls = iter(range(10_000))
    real: Callable[..., Tensor] = engine.runner.prefill

    def prefill(*arguments: object) -> Tensor:
        if next(calls) == at_call:
            raise MemoryError("no memory left for this chunk")
        return real(*arguments)

    monkeypatch.setattr(engine.runner, "prefill", prefill)


@pytest.mark.parametrize("at_call", [0, 2, 6])
def test_a_failing_prefill_fails_one_request_and_no_other(
    at_call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = small_engine(prefill_tokens=GRID)
    truth = said(run(engine, ask("truth", prompt_of(40, 1), 3, reuse=False)))
    failing_prefill(engine, monkeypatch, at_call)
    events = run(engine, ask("bad", PROMPT, 3, session=tag("s")), ask("good", prompt_of(40, 1), 3))
    failed = of(Finished, events, "bad")[0]
    assert failed.reason is FinishReason.ERROR
    assert failed.error is not None
    assert failed.error.kind is Kind.ENGINE_FAILED
    assert "no memory left" in failed.error.message
    assert of(Finished, events, "good")[0].reason is FinishReason.LENGTH
    assert said(events, "good") == truth
    assert at_rest(engine)


def test_a_failing_decode_fails_its_batch_and_the_engine_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = small_engine()

    def decode(*_: object) -> Tensor:
        raise RuntimeError("decode broke")

    with monkeypatch.context() as broken:
        broken.setattr(engine.runner, "decode", decode)
        events = run(engine, ask("1", PROMPT, 3), ask("2", PROMPT, 3, session=tag("s")))
    assert {end.reason for end in of(Finished, events)} == {FinishReason.ERROR}
    assert at_rest(engine)
    assert of(Finished, run(engine, ask("3", PROMPT, 3)))[0].reason is FinishReason.LENGTH


def test_a_small_state_pool_publishes_less_and_still_serves() -> None:
    engine = small_engine(mamba_slots=2, swa_slots=20)
    first = run(engine, ask("1", PROMPT, 40))
    again = run(engine, ask("2", PROMPT, 40))
    assert said(first) == said(again)
    assert of(Admitted, again)[0].cached_tokens in (0, 96)
    assert at_rest(engine)


@pytest.mark.parametrize(
    ("changes", "component"),
    [({"full_slots": 10}, FULL), ({"swa_slots": 10}, SWA)],
    ids=["FULL", "SWA"],
)
def test_a_pool_too_small_for_one_request_is_named(changes: dict[str, Any], component: str) -> None:
    engine = small_engine(**changes)
    with pytest.raises(CacheError, match=component) as refused:
        engine.submit(ask("1", PROMPT, 1))
    assert refused.value.kind is Kind.OVER_POOL
    assert f"{next(iter(changes))} to" in refused.value.message
    assert at_rest(engine)


@pytest.mark.parametrize("setting", ["full_slots", "swa_slots", "mamba_slots"])
def test_a_pool_too_small_for_one_chunk_does_not_start(setting: str) -> None:
    changes: dict[str, Any] = {setting: 1}
    with pytest.raises(CacheError, match=f"raise {setting} to [248] or more") as refused:
        small_engine(**changes)
    assert refused.value.kind is Kind.BAD_CONFIG


def test_events_come_in_order_and_every_request_ends_once() -> None:
    engine = small_engine(max_running=2)
    events: list[Event] = run(engine, *(ask(str(n), prompt_of(20 + n, n), 3) for n in range(6)))
    for number in range(6):
        mine = [event for event in events if event.request_id == str(number)]
        assert [type(event) for event in mine] == [Admitted, Token, Token, Token, Finished]

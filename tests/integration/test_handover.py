"""A prompt that one engine computes and another goes on with: the same bits as one engine alone, over one store."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest

from agentcache.engine import tiers
from agentcache.engine.api import Event, Finished, FinishReason, GenerateRequest, Token
from agentcache.engine.engine import Engine
from agentcache.tiers.api import Keep
from agentcache.tiers.rules import ExternalRules
from agentcache.tiers.stores.api import BlobStore
from agentcache.tiers.stores.faulty import Call, FaultyStore
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.tree.api import WritePolicy
from agentcache.types import FULL
from tests.engines import GRID, ask, at_rest, of, prompt_of, small_engine, tag
from tests.faults import ROOMY, SMALL_HOST, MovableClock
from tests.golden import Said, serve
from tests.integration.test_tiers_shared import Shared

pytestmark = pytest.mark.timeout(300)

MIB = 1 << 20
FAMILIES = ("lara_mini", "gemma3", "qwen3_5")
"""All three kinds of state; FULL and windows; FULL and recurrent."""
PROMPT = prompt_of(100, 1)
STORED = 96  # the last chunk end of 16 tokens before the end of 100


def handing_over(name: str, tokens: tuple[int, ...] = PROMPT, **more: object) -> GenerateRequest:
    return ask(name, tokens, 1, hand_over=True, **more)


@contextmanager
def engine_on(store: BlobStore, family: str = "lara_mini", **changes: object) -> Iterator[Engine]:
    engine = small_engine(family, **{"prefetch": "wait_complete", **ROOMY, **changes})
    engine.attach(Shared(store))
    try:
        yield engine
    finally:
        engine.close()


def ended(engine: Engine, request: GenerateRequest) -> tuple[Finished, list[Event]]:
    engine.submit(request)
    events = until_idle(engine)
    (finished,) = of(Finished, events, request.request_id)
    return finished, events


def until_idle(engine: Engine) -> list[Event]:
    events: list[Event] = []
    while not (engine.idle() and engine.cache.tiers.idle):
        events += engine.step()
        engine.cache.check()
        engine.rest()
    return events


@pytest.mark.parametrize("host_mib", [None, SMALL_HOST], ids=["direct", "host"])
@pytest.mark.parametrize("family", FAMILIES)
def test_turns_whose_prompts_another_engine_computes_are_the_same_bits(
    family: str, host_mib: float | None
) -> None:
    """Several turns, each with what was said before and something new; and references on both until they are closed."""
    store = MemoryStore(64 * MIB)
    alone = small_engine(family, **ROOMY)
    heard: list[int] = []
    golden: list[Said] = []
    with (
        engine_on(store, family, host_mib=host_mib) as prefill,
        engine_on(store, family, host_mib=host_mib) as decode,
    ):
        for turn in range(4):
            prompt = (*heard, *prompt_of(70 if not turn else 41, turn))
            fields = {"session": tag("s"), "user_end_tokens": len(prompt)}
            golden.append(serve(alone, ask(f"a{turn}", prompt, 6, digest_logits=True, **fields)))
            finished, _ = ended(prefill, handing_over(f"p{turn}", prompt, **fields))
            boundary = (len(prompt) - 1) // GRID * GRID
            assert finished.stored_tokens == boundary
            before = decode.cache.peek(decode._prompt(ask("x", prompt)))
            said = serve(decode, ask(f"d{turn}", prompt, 6, digest_logits=True, **fields))
            assert (said.tokens, said.first_logits) == (golden[-1].tokens, golden[-1].first_logits)
            assert said.cached.total == boundary
            assert said.cached.external == boundary - before
            heard = [*prompt, *said.tokens]
        for engine in (prefill, decode):
            assert engine.cache.stats().open_references > 0
            engine.cache.close_session("s")
            assert engine.cache.stats().open_references == 0
            until_idle(engine)
            assert at_rest(engine)
    alone.close()


@pytest.mark.parametrize("policy", WritePolicy)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_that_ends_where_a_chunk_does_is_handed_over_where_others_go_on_from_it(
    family: str, policy: WritePolicy
) -> None:
    """They compute its last token themselves, and with it the last chunk. New, and once it is known."""
    prompt = PROMPT[:STORED]
    with engine_on(MemoryStore(64 * MIB), family, write_policy=policy) as engine:
        for name in ("p1", "p2"):
            engine.detach()
            store = MemoryStore(64 * MIB)
            engine.attach(Shared(store))
            engine.submit(handing_over(name, prompt))
            events: list[Event] = []
            while not of(Finished, events):
                events += engine.step()
                engine.rest()
            (finished,) = of(Finished, events)
            with engine_on(store, family) as other:
                cached = serve(other, ask("d", prompt, 4)).cached
            assert finished.stored_tokens == cached.external == STORED - GRID


@pytest.mark.parametrize("policy", WritePolicy)
def test_its_end_is_told_when_others_can_load_it_whatever_the_policy(policy: WritePolicy) -> None:
    store = FaultyStore(MemoryStore(64 * MIB), random.Random(0))
    with engine_on(store, write_policy=policy) as engine:
        with store.hold(Call.PUT) as gate:
            engine.submit(handing_over("p"))
            events: list[Event] = []
            while not (gate.held and of(Token, events)):
                events += engine.step()
            assert not of(Finished, events)
            assert not engine.idle()
            assert engine.active() == ("p",)
        events = until_idle(engine)
        (finished,) = of(Finished, events)
        assert (finished.reason, finished.stored_tokens) == (FinishReason.LENGTH, STORED)
        assert at_rest(engine)
    with engine_on(store) as other:
        assert serve(other, ask("d", PROMPT, 4)).cached.external == STORED


@pytest.mark.parametrize("first", [handing_over, ask])
def test_one_that_finds_the_way_to_the_store_full_waits_for_it(
    first: Callable[..., GenerateRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large model two prompts are more than may be on their way at once."""
    monkeypatch.setattr(tiers, "ExternalRules", partial(ExternalRules, max_queued_bytes=1000))
    store = FaultyStore(MemoryStore(64 * MIB), random.Random(0))
    with engine_on(store) as engine:
        events: list[Event] = []
        with store.hold(Call.PUT) as gate:
            engine.submit(first("a", prompt_of(100, 7)))
            while not gate.held:
                events += engine.step()
            for seed in (2, 3):
                engine.submit(handing_over(f"p{seed}", prompt_of(100, seed)))
            engine.submit(ask("d", prompt_of(100, 4), 1))
            while not of(Finished, events, "d"):
                events += engine.step()
            assert not of(Finished, events, "p2")
            assert not of(Finished, events, "p3")
            assert not engine.cache.tiers.idle
        events += until_idle(engine)
        told = {end.request_id: end.stored_tokens for end in of(Finished, events)}
        assert (told["p2"], told["p3"]) == (STORED, STORED)
        assert at_rest(engine)


def test_others_are_served_while_it_waits() -> None:
    store = FaultyStore(MemoryStore(64 * MIB), random.Random(0))
    with engine_on(store) as engine:
        with store.hold(Call.PUT) as gate:
            engine.submit(handing_over("p"))
            while not gate.held:
                engine.step()
            engine.submit(ask("q", prompt_of(40, 2), 4, reuse=False))
            events: list[Event] = []
            while not of(Finished, events, "q"):
                events += engine.step()
        until_idle(engine)


def test_one_that_nobody_waits_for_any_more_ends_at_once() -> None:
    store = FaultyStore(MemoryStore(64 * MIB), random.Random(0))
    with engine_on(store) as engine:
        with store.hold(Call.PUT) as gate:
            engine.submit(handing_over("p", session=tag("s")))
            while not gate.held:
                engine.step()
            engine.abort("p")
            (finished,) = of(Finished, engine.step())
            assert finished.stored_tokens == 0
            assert engine.active() == ()
            assert engine.cache.tiers.handing.idle
        assert engine.cache.stats().open_references > 0, "it had registered"
        engine.cache.close_session("s")
        until_idle(engine)
        assert at_rest(engine)


@pytest.mark.parametrize("begun", [False, True])
def test_one_that_is_aborted_before_its_end_tells_it_like_any(begun: bool) -> None:
    with engine_on(MemoryStore(64 * MIB), prefill_tokens=GRID) as engine:
        engine.submit(handing_over("p"))
        if begun:
            engine.step()
        engine.abort("p")
        (finished,) = of(Finished, engine.step())
        assert (finished.reason, finished.stored_tokens) == (FinishReason.ABORT, 0)
        until_idle(engine)
        assert at_rest(engine)


def test_what_has_left_the_store_since_it_was_sent_is_sent_again() -> None:
    """It is believed to be there: only who looks sees that it is not."""
    store = MemoryStore(64 * MIB)
    clock = MovableClock()
    engine = small_engine("lara_mini", clock, prefetch="wait_complete", **ROOMY)
    engine.attach(Shared(store))
    first, _ = ended(engine, handing_over("p1"))
    names = [name for held in store._classes.values() for name in held]
    store.remove(names[: len(names) // 2])
    clock.forward(60)  # longer than answers are believed
    second, _ = ended(engine, handing_over("p2"))
    assert (first.stored_tokens, second.stored_tokens) == (STORED, STORED)
    engine.close()


def test_a_store_that_fails_is_a_value() -> None:
    store = FaultyStore(MemoryStore(64 * MIB), random.Random(0))
    with engine_on(store) as engine:
        engine.detach()
        gone, _ = ended(engine, handing_over("p"))
        assert (gone.reason, gone.stored_tokens) == (FinishReason.LENGTH, 0)
        until_idle(engine)
        assert at_rest(engine)
    narrow = Narrow(MemoryStore(64 * MIB))
    with engine_on(narrow) as engine:
        finished, _ = ended(engine, handing_over("p"))
        assert finished.stored_tokens < STORED
    with engine_on(narrow) as engine:
        said = serve(engine, ask("d", PROMPT, 4))
        assert finished.stored_tokens <= said.cached.external < STORED


class Narrow(Shared):
    """A store that takes pages of full attention to some depth, and all else."""

    left = 15

    def put(self, objects: Sequence[tuple[str, bytes]], keep: Keep) -> list[bool]:
        return [self._put(name, data, keep) for name, data in objects]

    def _put(self, name: str, data: bytes, keep: Keep) -> bool:
        self.left -= name.endswith(FULL)
        return self.left >= 0 and all(self._store.put([(name, data)], keep))


def test_a_prompt_that_leaves_nothing_has_nothing_to_hand_over() -> None:
    with engine_on(MemoryStore(64 * MIB)) as engine:
        short, _ = ended(engine, handing_over("p", prompt_of(GRID, 3)[: GRID - 1]))
        cold, _ = ended(engine, handing_over("q", reuse=False))
        assert short.stored_tokens == cold.stored_tokens == 0


def test_a_turn_that_ends_after_its_session_was_closed_hands_over_and_registers_nothing() -> None:
    with engine_on(MemoryStore(64 * MIB), prefill_tokens=GRID) as engine:
        engine.submit(handing_over("p", session=tag("s")))
        engine.step()
        engine.cache.close_session("s")
        (finished,) = of(Finished, until_idle(engine))
        assert finished.stored_tokens == STORED
        assert engine.cache.stats().open_references == 0
        assert at_rest(engine)

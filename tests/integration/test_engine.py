"""The engine on small models: what is reused is right, whatever happens in between, and everything comes back."""

from collections.abc import Iterator

import pytest

from agentcache.clock import ManualClock
from agentcache.engine.api import Admitted, Event, Finished, FinishReason, GenerateRequest, Sampling, Token
from agentcache.engine.engine import Engine
from agentcache.errors import CacheError, Kind
from agentcache.types import FULL, MAMBA, SWA, MissReason, SessionState
from tests.engines import (
    GRID,
    PAGE,
    VOCABULARY,
    ask,
    at_rest,
    drain,
    of,
    prompt_of,
    run,
    said,
    small_engine,
    tag,
)

FAMILIES = [
    ("qwen3", PAGE),
    ("gemma3", PAGE),
    ("qwen3_5", PAGE),
    ("bamba", PAGE),
    ("lfm2", PAGE),
    ("lara_mini", GRID),
]
"""Families and pages. With experts (lara_mini) the rounding of a token depends on what else its forward routes to the
same expert, so a page may be shared only with its whole chunk: page = grid."""
CLOSE_CALL = 1e-3


def agree(one: list[Event], other: list[Event], name: str, twin: str) -> None:
    """Equal tokens; in batches a first difference counts only where the choice was no close call."""
    for mine, theirs in zip(of(Token, one, name), of(Token, other, twin), strict=True):
        if mine.token != theirs.token:
            assert min(mine.top_margin, theirs.top_margin) < CLOSE_CALL, (name, mine, theirs)
            print(f"{name}: a close call ({mine.top_margin:.1e}) was decided differently in the batch")
            return


@pytest.mark.parametrize(("family", "page"), FAMILIES)
def test_the_cache_changes_no_bit(family: str, page: int) -> None:
    """A session whose history is recorded, then one that goes on from generated tokens: every logit, every token."""
    engine = small_engine(family, page_tokens=page)
    for turn, prompt in enumerate(growing(turns=4)):
        warm = same_as_cold(engine, prompt)
        assert of(Admitted, warm)[0].cached_tokens == (48 + 27 * turn) // GRID * GRID * (turn > 0)
    continued = (*prompt, *said(warm), *prompt_of(9, seed=99))
    warm = same_as_cold(engine, continued)
    assert of(Admitted, warm)[0].cached_tokens > len(prompt)
    assert at_rest(engine)


def same_as_cold(engine: Engine, prompt: tuple[int, ...]) -> list[Event]:
    """Run a prompt with the cache on and off, compare, and answer the events with the cache on."""
    warm = run(engine, ask("warm", prompt, 20, session=tag("s"), digest_logits=True))
    cold = run(engine, ask("cold", prompt, 20, reuse=False, digest_logits=True))
    assert said(warm) == said(cold)
    margins = [[token.top_margin for token in of(Token, events)] for events in (warm, cold)]
    assert margins[0] == margins[1]
    assert of(Finished, warm)[0].first_logits == of(Finished, cold)[0].first_logits != ""
    assert of(Admitted, cold)[0].cached_tokens == 0
    return warm


def growing(turns: int) -> Iterator[tuple[int, ...]]:
    """The prompts of a session: 75 tokens, then 27 more a turn."""
    prompt = prompt_of(75)
    for turn in range(turns):
        yield prompt
        prompt += prompt_of(27, seed=turn + 1)


def test_a_turn_reuses_what_the_turn_before_generated() -> None:
    engine = small_engine()
    first = said(run(engine, ask("1", prompt := prompt_of(60), 40)))
    second = run(engine, ask("2", (*prompt, *first, *prompt_of(9, 2)), 1))
    assert of(Admitted, second)[0].cached_tokens == 96  # 60 + 40 - 1 are computed; whole chunks of 16


def test_prompt_only_publishes_no_generated_page() -> None:
    engine = small_engine(prompt_only=True)
    assert engine.info.prompt_only
    first = said(run(engine, ask("1", prompt := prompt_of(60), 40)))
    second = run(engine, ask("2", (*prompt, *first, *prompt_of(9, 2)), 1))
    assert of(Admitted, second)[0].cached_tokens == 48


def test_a_model_whose_decode_differs_is_forced_to_prompt_only() -> None:
    assert small_engine("zamba2").info.prompt_only


def test_an_identical_prompt_hits_even_when_it_is_whole_chunks() -> None:
    engine = small_engine()
    run(engine, ask("1", prompt_of(64), 1))
    again = run(engine, ask("2", prompt_of(64), 1))
    assert of(Admitted, again)[0].cached_tokens == 48
    longer = run(engine, ask("3", prompt_of(64) + prompt_of(5, 3), 1))
    assert of(Admitted, longer)[0].cached_tokens == 64


def test_an_edited_turn_lands_at_the_last_users_message() -> None:
    engine = small_engine()
    prompt = prompt_of(150)
    run(engine, ask("1", prompt, 1, user_end_tokens=90))
    edited = run(engine, ask("2", prompt[:90] + prompt_of(60, 5), 1))
    assert of(Admitted, edited)[0].cached_tokens == 80


def test_a_miss_says_which_component_stopped_and_how_far_full_went() -> None:
    engine = small_engine()
    prompt = prompt_of(150)
    run(engine, ask("1", prompt, 1))
    fork = of(Admitted, run(engine, ask("2", prompt[:63] + prompt_of(20, 5), 1)))[0]
    assert (fork.cached_tokens, fork.full_tokens) == (0, 60)
    assert fork.miss is not None
    assert fork.miss.component in (SWA, MAMBA)
    assert fork.miss.reason in (MissReason.NO_CHECKPOINT, MissReason.WINDOW_GAP)


def test_tenants_do_not_share() -> None:
    engine = small_engine()
    run(engine, ask("1", prompt_of(60), 1, tenant_salt="one"))
    other = run(engine, ask("2", prompt_of(60), 1, tenant_salt="other"))
    same = run(engine, ask("3", prompt_of(60), 1, tenant_salt="one"))
    assert [of(Admitted, events)[0].cached_tokens for events in (other, same)] == [0, 48]


@pytest.mark.parametrize("family", ["gemma3", "lara_mini", "bamba"])
def test_requests_decoded_together_say_what_they_say_alone(family: str) -> None:
    engine = small_engine(family)
    prompts = [prompt_of(20 + 23 * number, number) for number in range(5)]
    together = run(engine, *(ask(f"t{number}", prompt, 12) for number, prompt in enumerate(prompts)))
    for number, prompt in enumerate(prompts):
        alone = run(engine, ask(f"a{number}", prompt, 12, reuse=False))
        agree(together, alone, f"t{number}", f"a{number}")
    assert at_rest(engine)


def test_requests_that_arrive_together_find_what_the_first_one_published() -> None:
    engine = small_engine()
    shared_part = prompt_of(70)
    events = run(engine, *(ask(str(number), shared_part + prompt_of(9, number), 3) for number in range(4)))
    assert [event.cached_tokens for event in of(Admitted, events)] == [0, 64, 64, 64]


def test_fcfs_admits_in_order_of_arrival_and_one_step_prefills_no_more_than_its_budget() -> None:
    engine = small_engine(prefill_tokens=32)
    for number in range(3):
        engine.submit(ask(str(number), prompt_of(50, number), 2))
    computed = []
    events: list[Event] = []
    while not engine.idle():
        before = engine.load().prefill_tokens_total
        events += engine.step()
        computed.append(engine.load().prefill_tokens_total - before)
    assert max(computed) <= 32 + GRID - 1
    assert [event.request_id for event in of(Admitted, events)] == ["0", "1", "2"]


def test_longest_prefix_first_takes_the_request_that_computes_least() -> None:
    engine = small_engine(prefill_order="longest_prefix", max_running=1)
    run(engine, ask("before", prompt_of(70), 1))
    requests = (
        ask("cold", prompt_of(70, 1), 1),
        ask("half", prompt_of(40) + prompt_of(9, 2), 1),
        ask("warm", prompt_of(70), 1),
    )
    events = run(engine, *requests)
    assert [event.request_id for event in of(Admitted, events)] == ["warm", "cold", "half"]
    assert [event.cached_tokens for event in of(Admitted, events)] == [64, 0, 0]


def test_forks_land_where_a_whole_number_of_chunks_was_published() -> None:
    for chunks, cached in ((1, 112), (2, 96), (4, 64), (9, 0)):
        engine = small_engine(fork_chunks=chunks)
        run(engine, ask("1", prompt_of(200), 1))
        fork = run(engine, ask("2", prompt_of(200)[:120] + prompt_of(9, 2), 1))
        assert of(Admitted, fork)[0].cached_tokens == cached


def test_stop_tokens_end_a_turn_and_are_not_said() -> None:
    engine = small_engine()
    free = said(run(engine, ask("free", prompt_of(30), 8)))
    stopped = run(engine, ask("stopped", prompt_of(30), 8, stop_tokens=(free[3],)))
    assert said(stopped) == free[: free.index(free[3])]
    assert of(Finished, stopped)[0].reason is FinishReason.STOP
    at_once = run(engine, ask("at once", prompt_of(30), 8, stop_tokens=(free[0],)))
    assert said(at_once) == []
    assert of(Finished, at_once)[0].first_token_ns > 0
    assert at_rest(engine)


def test_sampled_tokens_depend_on_the_seed_only_not_on_the_cache() -> None:
    engine = small_engine()
    sampling = Sampling(temperature=1.0, top_p=0.9, seed=11)
    one = said(run(engine, ask("1", prompt_of(40), 12, sampling=sampling)))
    two = said(run(engine, ask("2", prompt_of(40), 12, sampling=sampling)))
    cold = said(run(engine, ask("3", prompt_of(40), 12, sampling=sampling, reuse=False)))
    other = said(run(engine, ask("4", prompt_of(40), 12, sampling=Sampling(1.0, 0.9, 12))))
    assert one == two == cold != other


def test_finished_counts_and_times_what_happened() -> None:
    clock = ManualClock()
    engine = small_engine(clock=clock)
    engine.submit(ask("1", prompt_of(40), 3))
    clock.advance(5_000)
    ended = of(Finished, drain(engine))[0]
    assert (ended.reason, ended.prompt_tokens, ended.cached_tokens) == (FinishReason.LENGTH, 40, 0)
    assert (ended.completion_tokens, ended.first_token_ns, ended.error) == (3, 5_000, None)
    assert ended.first_logits == ""
    load = engine.load()
    assert (load.admitted_total, load.prefill_tokens_total, load.decode_tokens_total) == (1, 40, 2)
    assert load.generated_tokens_total == 3
    assert load.finished_total == {"stop": 0, "length": 1, "abort": 0, "error": 0}


def test_a_late_completion_after_close_leaves_no_reference() -> None:
    engine = small_engine()
    accepted = engine.submit(ask("1", prompt_of(60), 6, session=tag("s")))
    assert (accepted.session, accepted.state) == ("s", SessionState.OPEN)
    engine.step()
    engine.cache.close_session("s")
    assert of(Finished, drain(engine))[0].reason is FinishReason.LENGTH
    assert engine.cache.stats().open_references == 0
    assert at_rest(engine)


def test_an_open_session_holds_references_until_its_close_or_its_idle_lease() -> None:
    clock = ManualClock()
    engine = small_engine(clock=clock, ttl_s=30)
    run(
        engine,
        ask("1", prompt_of(60), 1, session=tag("closed")),
        ask("2", prompt_of(60, 1), 1, session=tag("idle")),
    )
    assert engine.cache.stats().open_references == 2
    engine.cache.close_session("closed")
    assert engine.cache.stats().open_references == 1
    clock.advance(31_000_000_000)
    assert engine.step() == []
    assert engine.cache.stats().open_references == 0


BAD = [
    (ask("x", ()), Kind.EMPTY_PROMPT),
    (ask("x", prompt_of(4000), 100), Kind.PROMPT_TOO_LONG),
    (ask("x", prompt_of(10), 2**40), Kind.PROMPT_TOO_LONG),
    (ask("x", prompt_of(1100)), Kind.OVER_POOL),
    (ask("x", prompt_of(10), 0), Kind.BAD_REQUEST),
    (ask("x", (1, VOCABULARY)), Kind.BAD_REQUEST),
    (ask("x", (-1,)), Kind.BAD_REQUEST),
    (ask("x", (1, 2), user_end_tokens=3), Kind.BAD_REQUEST),
    (ask("x", (1, 2), sampling=Sampling(temperature=-1)), Kind.BAD_REQUEST),
    (ask("x", (1, 2), session=tag("a\nb")), Kind.BAD_SESSION_ID),
    (ask("x", (1, 2), session=tag("")), Kind.BAD_SESSION_ID),
]


@pytest.fixture(scope="module")
def shared() -> Engine:
    return small_engine()


@pytest.mark.parametrize(("request_", "kind"), BAD, ids=lambda value: getattr(value, "value", ""))
def test_a_bad_request_is_one_error_and_leaves_nothing(
    shared: Engine, request_: GenerateRequest, kind: Kind
) -> None:
    with pytest.raises(CacheError) as refused:
        shared.submit(request_)
    assert refused.value.kind is kind
    assert at_rest(shared)


def test_a_prompt_over_the_pool_can_still_be_computed_uncached(shared: Engine) -> None:
    assert (
        of(Finished, run(shared, ask("1", prompt_of(1100), 1, reuse=False)))[0].reason is FinishReason.LENGTH
    )


def test_an_id_in_use_is_refused_and_may_come_again_later() -> None:
    engine = small_engine()
    engine.submit(ask("1", prompt_of(5), 1))
    with pytest.raises(CacheError) as queued:
        engine.submit(ask("1", prompt_of(5), 1))
    assert queued.value.kind is Kind.BAD_REQUEST
    drain(engine)
    assert len(of(Finished, run(engine, ask("1", prompt_of(5), 1)))) == 1


def test_a_full_queue_refuses_and_free_seats_do_not_count() -> None:
    engine = small_engine(max_running=1, queue_limit=1)
    engine.submit(ask("1", prompt_of(5), 3))
    engine.submit(ask("2", prompt_of(5), 1))
    with pytest.raises(CacheError) as full:
        engine.submit(ask("3", prompt_of(5), 1, session=tag("s")))
    assert full.value.kind is Kind.QUEUE_FULL
    assert len(of(Finished, drain(engine))) == 2
    assert at_rest(engine)


@pytest.mark.parametrize(
    ("family", "reuse"), [("jamba", "token-by-token"), ("recurrent_gemma", "not-reusable")]
)
def test_other_models_are_slow_but_not_wrong(family: str, reuse: str) -> None:
    engine = small_engine(family)
    assert engine.info.reuse == reuse
    prompt = prompt_of(75)
    first = run(engine, ask("1", prompt, 4))
    again = run(engine, ask("2", prompt, 4))
    cold = run(engine, ask("3", prompt, 4, reuse=False))
    assert said(first) == said(cold)
    agree(again, cold, "2", "3")
    assert of(Admitted, again)[0].cached_tokens == (64 if reuse == "token-by-token" else 0)
    assert at_rest(engine)


def test_info_says_what_is_served() -> None:
    info = small_engine().info
    assert (info.model, info.components, info.reuse) == ("lara_mini", (FULL, SWA, MAMBA), "reusable")
    assert [(pool.component, pool.slots, pool.tokens) for pool in info.pools] == [
        (FULL, 256, 1024),
        (SWA, 128, 512),
        (MAMBA, 32, 0),
    ]
    assert all(pool.bytes > 0 for pool in info.pools)
    assert info.random_weights

"""The accounting engine by itself: what it says, how long it takes, what it refuses, and that it gives all back."""

import subprocess
import sys
from pathlib import Path

import pytest

from agentcache.clock import ManualClock
from agentcache.config import EngineSettings, resolve
from agentcache.engine.adapter import build_random, make_config
from agentcache.engine.api import Admitted, Event, Finished, FinishReason, Token
from agentcache.engine.build import build_engine
from agentcache.engine.engine import Engine
from agentcache.engine.models import BUILT_IN
from agentcache.engine.runner import describe_model
from agentcache.engine.shapes import built_in_specs
from agentcache.errors import CacheError, Kind
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.types import TierName
from tests.accounting import account, play
from tests.chosen import CORE
from tests.engines import GRID, ask, at_rest, drain, of, prompt_of, run, said, small_engine, tag

PROMPT = prompt_of(100)
SECOND = 10**9


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_the_shapes_of_built_in_models_are_those_of_the_models(name: str, dtype: str) -> None:
    recipe = BUILT_IN[name]
    fewer = {
        "intermediate_size": 8,
        "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 8,
        "vocab_size": 16,
    }
    narrow = {field: size for field, size in fewer.items() if field in recipe.fields}
    model = build_random(make_config(recipe.family, {**recipe.fields, **narrow}), 0, dtype)
    assert built_in_specs(recipe, dtype, 32, 64) == describe_model(model, 32, 64)


def test_it_is_built_without_a_model_and_its_libraries() -> None:
    program = (
        "import sys; from agentcache.config import EngineSettings; from agentcache.engine.build import build_engine;"
        "import agentcache.worker.serve;"
        f"build_engine(EngineSettings(engine='accounting', core={CORE!r}));"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


def test_it_says_what_it_is() -> None:
    engine = build_engine(
        EngineSettings.model_validate({"engine": "accounting", "model": "tiny-swa", "core": CORE})
    )
    real = EngineSettings.model_validate({"model": "tiny-swa"})
    assert (engine.info.engine, engine.info.model, engine.info.parameters) == ("accounting", "tiny-swa", 0)
    assert [(pool.component, pool.slots, pool.bytes) for pool in engine.info.pools] == [
        ("FULL", real.full_slots, real.full_slots * 131072),
        ("SWA", real.swa_slots, real.swa_slots * 393216),
    ]


def test_it_shares_no_name_with_an_engine_that_has_bytes() -> None:
    real = small_engine("lara_mini")
    kept = account(real.cache.config.specs)
    assert kept.namespace("t").digest() != real.namespace("t").digest()
    assert kept.namespace("t").digest() != kept.namespace("u").digest()
    assert kept.namespace("t").digest() != account(model="tiny-full").namespace("t").digest()


# output


def test_an_output_is_said_to_its_end() -> None:
    events = run(account(), ask("1", PROMPT, 9, output=(7, 8, 9)))
    assert said(events) == [7, 8, 9]
    assert [(end.reason, end.completion_tokens) for end in of(Finished, events)] == [(FinishReason.STOP, 3)]


def test_an_output_is_cut_at_max_tokens() -> None:
    events = run(account(), ask("1", PROMPT, 2, output=(7, 8, 9)))
    assert said(events) == [7, 8]
    assert of(Finished, events)[0].reason is FinishReason.LENGTH


def test_a_stop_token_ends_an_output() -> None:
    events = run(account(), ask("1", PROMPT, 9, output=(7, 2, 9), stop_tokens=(2,)))
    assert said(events) == [7]
    assert of(Finished, events)[0].reason is FinishReason.STOP


def test_an_empty_output_is_an_answer() -> None:
    events = run(account(), ask("1", PROMPT, 9, output=()))
    assert said(events) == []
    assert of(Finished, events)[0].reason is FinishReason.STOP


def test_without_an_output_the_prompt_decides() -> None:
    first, again, other = (
        said(run(account(), ask("1", prompt, 20))) for prompt in (PROMPT, PROMPT, PROMPT[1:])
    )
    assert len(first) == 20
    assert first == again != other


def test_what_is_said_is_cached_like_a_models_words() -> None:
    engine = account()
    output = prompt_of(40, 5)
    run(engine, ask("1", PROMPT, 64, output=output))
    events = run(engine, ask("2", (*PROMPT, *output), 1))
    assert of(Admitted, events)[0].cached_tokens == (len(PROMPT) + len(output) - 1) // GRID * GRID


def test_an_output_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(CacheError, match="vocabulary") as refused:
        account().submit(ask("1", PROMPT, 4, output=(4096,)))
    assert refused.value.kind is Kind.BAD_REQUEST


def test_an_engine_that_computes_takes_no_output() -> None:
    with pytest.raises(CacheError, match="only the accounting engine") as refused:
        small_engine().submit(ask("1", PROMPT, 4, output=(5,)))
    assert refused.value.kind is Kind.BAD_REQUEST


def test_there_is_no_digest_of_logits_that_nobody_computed() -> None:
    with pytest.raises(CacheError, match="computes no logits") as refused:
        account().submit(ask("1", PROMPT, 4, digest_logits=True))
    assert refused.value.kind is Kind.BAD_REQUEST


# time


def timed(clock: ManualClock, prefill_tokens_per_s: float = 1000) -> Engine:
    """1,000 prompt tokens and 10 answer tokens a second."""
    return account(
        clock=clock,
        accounting_prefill_tokens_per_s=prefill_tokens_per_s,
        accounting_decode_tokens_per_s=10,
    )


def test_a_turn_takes_the_time_of_its_tokens() -> None:
    clock = ManualClock()
    engine = timed(clock)
    times: dict[str, list[int]] = {}

    def told(event: Event) -> None:
        times.setdefault(type(event).__name__, []).append(clock.now_ns())

    engine.submit(ask("1", PROMPT, 4))
    play(engine, clock, told)
    first = 100 * SECOND // 1000
    assert times["Token"][-1] - first == 3 * SECOND // 10
    assert times["Finished"] == times["Token"][-1:]


def test_the_first_token_is_measured_by_the_same_clock() -> None:
    clock = ManualClock(start_ns=17)
    engine = timed(clock)
    ends: list[Event] = []
    engine.submit(ask("cold", PROMPT, 3))
    play(engine, clock, ends.append)
    engine.submit(ask("warm", PROMPT, 3))
    play(engine, clock, ends.append)
    assert [end.first_token_ns for end in of(Finished, ends)] == [100 * SECOND // 1000, 4 * SECOND // 1000]


def test_a_step_is_shared_by_the_batch() -> None:
    clock = ManualClock()
    engine = timed(clock, prefill_tokens_per_s=0)
    told: list[Event] = []
    for number in range(4):
        engine.submit(ask(str(number), prompt_of(20, number), 11))
    play(engine, clock, told.append)
    assert clock.now_ns() // SECOND == 1 + 1  # ten steps, and an idle engine's second of rest
    assert len(of(Token, told)) == 44


def test_without_rates_no_time_passes() -> None:
    clock = ManualClock()
    engine = account(clock=clock)
    run(engine, ask("1", PROMPT, 20), ask("2", PROMPT, 20))
    assert clock.now_ns() == 0


def test_nothing_is_told_before_its_time() -> None:
    clock = ManualClock()
    engine = timed(clock)
    engine.submit(ask("1", prompt_of(10), 1))
    assert engine.step() == []
    assert engine.pause_s() == pytest.approx(0.01)
    clock.advance(SECOND // 100 - 1)
    assert engine.step() == []
    clock.advance(1)
    assert [type(event) for event in engine.step()] == [Admitted, Token, Finished]
    assert engine.idle()


# ends


def free_slots(engine: Engine) -> dict[str, int]:
    pools = engine.cache.stats().pools
    return {use.pool.component: use.free for use in pools if use.pool.tier is TierName.DEVICE}


@pytest.mark.parametrize("steps", range(12))
def test_an_abort_after_any_step_gives_everything_back(steps: int) -> None:
    engine = account(prefill_tokens=GRID)
    start = free_slots(engine)
    engine.submit(ask("1", PROMPT, 8, session=tag("s")))
    for _ in range(steps):
        engine.step()
    engine.abort("1")
    assert [end.reason for end in of(Finished, drain(engine))] == [FinishReason.ABORT]
    assert at_rest(engine)
    assert of(Admitted, run(engine, ask("2", PROMPT, 1)))[0].cached_tokens == min(steps * GRID, 96)
    engine.cache.close_session("s")
    engine.cache.flush()
    assert free_slots(engine) == start


def test_an_abort_is_told_at_once_however_slow_the_model_is() -> None:
    clock = ManualClock()
    engine = timed(clock, prefill_tokens_per_s=1)
    engine.submit(ask("gone", PROMPT, 8))
    engine.submit(ask("stays", prompt_of(20, 1), 1))
    assert engine.step() == []
    engine.abort("gone")
    events = engine.step()
    assert clock.now_ns() == 0
    assert [end.reason for end in of(Finished, events, "gone")] == [FinishReason.ABORT]
    assert of(Finished, events, "stays") == []
    told: list[Event] = []
    play(engine, clock, told.append)
    assert of(Finished, told, "stays")[0].reason is FinishReason.LENGTH
    assert at_rest(engine)


def test_a_request_is_active_until_its_end_is_told() -> None:
    engine = timed(ManualClock())
    engine.submit(ask("1", prompt_of(10), 1))
    engine.step()
    assert engine.active() == ("1",)
    with pytest.raises(CacheError, match="this id is running"):
        engine.submit(ask("1", prompt_of(10), 1))
    engine.abort("1")
    assert engine.active() == ()
    assert [end.reason for end in of(Finished, engine.step())] == [FinishReason.LENGTH]


# what it refuses


@pytest.mark.parametrize(
    ("changes", "said_why"),
    [
        ({"engine": "accounting", "l3": "memory"}, "leave l3 out"),
        ({"engine": "accounting", "device": "cuda"}, "leave device out"),
        ({"accounting_prefill_tokens_per_s": 1.0}, "leave accounting_prefill_tokens_per_s out"),
        ({"accounting_decode_tokens_per_s": 1.0}, "leave accounting_decode_tokens_per_s out"),
        ({"engine": "accounting", "accounting_decode_tokens_per_s": -1}, "greater than or equal to 0"),
        ({"engine": "sglang"}, "'transformers' or 'accounting'"),
    ],
)
def test_settings_that_mean_nothing_together_are_refused(
    changes: dict[str, object], said_why: str, tmp_path: Path
) -> None:
    with pytest.raises(CacheError, match=said_why) as refused:
        resolve(changes, {"AGENTCACHE_CONFIG": str(_empty(tmp_path))})
    assert refused.value.kind is Kind.BAD_CONFIG


def _empty(folder: Path) -> Path:
    file = folder / "agentcache.toml"
    file.write_text("")
    return file


def test_only_built_in_models_can_be_kept_account_of() -> None:
    with pytest.raises(CacheError, match="tiny-all") as refused:
        build_engine(EngineSettings(engine="accounting", model="smollm2"))
    assert refused.value.kind is Kind.BAD_CONFIG


def test_pools_are_checked_as_a_real_engines_are() -> None:
    with pytest.raises(CacheError, match="raise mamba_slots to 2 or more"):
        account(mamba_slots=1)
    with pytest.raises(CacheError, match="host_mib"):
        account(host_mib=0.001)


def test_a_store_cannot_be_attached() -> None:
    engine = account()
    with pytest.raises(CacheError, match="no bytes to store") as refused:
        engine.attach(MemoryStore(2**20))
    assert refused.value.kind is Kind.BAD_CONFIG
    assert engine.cache.tiers.external().state == "absent"

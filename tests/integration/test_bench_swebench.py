"""`bench swebench` on engines of a small model: the same calls for every order, counted right, answered alike."""

import dataclasses
from collections.abc import Sequence

import pytest

from agentcache.bench.swebench_engine import ORDERS, EngineBench, EngineSize
from agentcache.bench.swebench_report import ENGINE, Report, wrong_answers
from agentcache.bench.swebench_script import Ask, Close, Moment
from agentcache.clock import Clock, SystemClock
from agentcache.config import EngineSettings
from agentcache.engine.api import Accepted, GenerateRequest
from agentcache.engine.engine import Engine
from agentcache.engine.loading import NamedModel, assemble
from agentcache.errors import CacheError, Kind
from agentcache.events import NullEvents
from tests.chosen import CORE
from tests.engines import GRID, PAGE, at_rest, prompt_of
from tests.zoo import ZOO

SECOND = 1_000_000_000
SETTINGS = EngineSettings.model_validate(
    {
        "model": "lara_mini",
        "core": CORE,
        "threads": 1,
        "page_tokens": PAGE,
        "grid_tokens": GRID,
        "write_policy": "write_back",
    }
)
SIZE = EngineSize(batches=(4,), sessions=4, turns=4, device=1.5, host=1.5)
Asked = tuple[GenerateRequest, int]


@dataclasses.dataclass
class House:
    """Builds engines over one model and keeps what each was asked, and when."""

    engines: list[Engine] = dataclasses.field(default_factory=list)
    asked: dict[str, list[Asked]] = dataclasses.field(default_factory=dict)

    def build(self, settings: EngineSettings, clock: Clock) -> Engine:
        named = NamedModel(ZOO["lara_mini"].build(settings.dtype), "lara_mini", random_weights=True)
        engine = assemble(named, settings, clock, NullEvents())
        calls, submit = self.asked.setdefault(settings.eviction_policy, []), engine.submit
        first = len(self.engines) == 0

        def noted(request: GenerateRequest) -> Accepted:
            calls.append((request, clock.now_ns()))
            return submit(request)

        if not first:  # the first is only looked at
            engine.submit = noted  # type: ignore[method-assign]
        self.engines.append(engine)
        return engine


def script(sessions: int = 4, turns: int = 4) -> list[Moment]:
    """Sessions in turn, each prompt 40 tokens longer than the one before it; the first two are closed halfway."""
    moments: list[Moment] = []
    for turn in range(turns):
        for number in range(sessions):
            tokens = prompt_of(60 + 40 * turn, seed=number)
            at_ns = (turn * sessions + number) * SECOND
            if number > 1 or turn < max(1, turns // 2):
                moments.append(Ask(at_ns, f"s{number}", turn, tokens, 0))
            elif turn == max(1, turns // 2):
                moments.append(Close(at_ns, f"s{number}"))
    return moments


def bench(house: House, moments: Sequence[Moment], settings: EngineSettings = SETTINGS) -> Report:
    calls: list[int] = []
    found = EngineBench(settings, SIZE, SystemClock(), lambda: calls.append(1), house.build).run({4: moments})
    assert len(calls) == sum(isinstance(one, Ask) for one in moments)
    return found


def test_every_order_is_asked_the_same_at_the_same_moments_and_answers_the_same() -> None:
    house = House()
    found = bench(house, script())
    assert set(house.asked) == {order.value for order in ORDERS}
    lru, *others = (house.asked[order.value] for order in ORDERS)
    assert all(other == lru for other in others)
    assert [(request.tokens, at_ns) for request, at_ns in lru] == [
        (one.tokens, one.at_ns) for one in script() if isinstance(one, Ask)
    ]
    assert found["different_answers"] == {4: 0}
    assert wrong_answers({ENGINE: found}) == 0
    assert all(at_rest(engine) for engine in house.engines)
    assert len(house.engines) == 1 + len(ORDERS)


def test_rows_say_what_each_tier_gave_in_pools_that_sessions_push_each_other_out_of() -> None:
    found = bench(House(), script())
    assert [(row["batch"], row["order"]) for row in found["rows"]] == [(4, order.value) for order in ORDERS]
    asked = [one for one in script() if isinstance(one, Ask)]
    best = sum(len(one.tokens) - 40 for one in asked if one.turn) / sum(len(one.tokens) for one in asked)
    for row in found["rows"]:
        assert row["calls"] == len(asked)
        assert row["prompt_tokens"] == sum(len(one.tokens) for one in asked)
        assert row["hit_rate"] == pytest.approx(row["device_hit_rate"] + row["host_hit_rate"])
        assert 0 < row["host_hit_rate"] < row["hit_rate"] < best
        assert 0 < row["ttft_median_ms"] <= row["ttft_p95_ms"]
    assert found["rows"][0]["ttft_change"] == 0
    assert found["shape"]["host_mib"] > 0
    assert set(found["shape"]["device_slots"]) == {"full_slots", "swa_slots", "mamba_slots"}


def test_an_order_that_answers_otherwise_is_seen() -> None:
    house = House()

    def other_weights(settings: EngineSettings, clock: Clock) -> Engine:
        if settings.eviction_policy != "ert":
            return house.build(settings, clock)
        named = NamedModel(ZOO["lara_mini"].build(settings.dtype), "lara_mini", random_weights=True)
        for parameter in named.model.parameters():
            parameter.data.mul_(1.01)  # rounds otherwise everywhere
        return assemble(named, settings, clock, NullEvents())

    moments = script(sessions=3, turns=1)
    found = EngineBench(SETTINGS, SIZE, SystemClock(), lambda: None, other_weights).run({4: moments})
    assert found["different_answers"] == {4: 3}
    assert wrong_answers({ENGINE: found}) == 3


def test_a_prompt_over_the_context_is_refused_by_name() -> None:
    moments = [Ask(0, "s", 0, prompt_of(200_000), 0)]
    with pytest.raises(CacheError) as refused:
        bench(House(), moments)
    assert refused.value.kind is Kind.PROMPT_TOO_LONG

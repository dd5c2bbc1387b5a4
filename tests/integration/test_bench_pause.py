"""`bench pause` on engines of a small model, on a clock that moves while nobody computes: what its arms are."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import structlog

from agentcache.bench import pause
from agentcache.bench.pause_lane import Lane, Time
from agentcache.bench.pause_report import TIERS, report
from agentcache.bench.pause_run import Bench, Options, steps_of
from agentcache.bench.pause_shape import ARMS, Shape
from agentcache.build import open_store
from agentcache.clock import Clock, ManualClock, SystemClock
from agentcache.config import EngineSettings
from agentcache.engine.api import CachedTokens
from agentcache.engine.engine import Engine
from agentcache.engine.loading import NamedModel, assemble
from agentcache.errors import CacheError, Kind
from tests.chosen import CORE
from tests.engines import GRID, PATIENT, at_rest
from tests.zoo import ZOO

pytestmark = pytest.mark.timeout(300)

MODEL = "qwen3"
SHAPE = Shape(4 * GRID, new_tokens=5, trials=2, pause_s=12.0, grid_tokens=GRID, every_s=2.0)
OPTIONS = Options(model=MODEL, core=CORE, store="memory")


@dataclass
class House:
    """Builds engines over one model. Their time goes on when they rest, and what is on its way arrives before."""

    engines: list[Engine] = field(default_factory=list)
    clock: ManualClock = field(default_factory=ManualClock)
    told: int = 0

    def build(self, settings: EngineSettings, clock: Clock) -> Engine:
        named = NamedModel(ZOO[MODEL].build(settings.dtype), MODEL, random_weights=True)
        engine = assemble(named, settings.model_copy(update=PATIENT), clock)
        if settings.l3 != "none":
            engine.attach(open_store(settings))
        self.engines.append(engine)
        return engine

    def rest(self, engines: Sequence[Engine], seconds: float) -> None:
        for engine in engines:
            while not engine.cache.tiers.idle:
                engine.step()
                engine.rest()
        self.clock.advance(round(seconds * 1e9))

    def tell(self) -> None:
        self.told += 1

    def bench(self, shape: Shape = SHAPE, options: Options = OPTIONS) -> Bench:
        return Bench(shape, options, Time(self.clock, SystemClock(), self.rest), self.tell, self.build)


@pytest.fixture(scope="module")
def house() -> House:
    return House()


@pytest.fixture(scope="module")
def lanes(house: House) -> list[Lane]:
    return house.bench().run()


def found(lanes: Sequence[Lane]) -> dict[str, dict[str, Any]]:
    result = json.loads(json.dumps(report(OPTIONS, SHAPE, lanes)))
    return {row["arm"]: row for row in result["rows"]}


def test_every_arm_is_what_it_claims_to_be(lanes: list[Lane], house: House) -> None:
    rows, tokens = found(lanes), float(SHAPE.cached_tokens)
    assert list(rows) == [arm.name for arm in ARMS]
    assert {
        name: {tier: n for tier, n in row["cached_tokens"].items() if n} for name, row in rows.items()
    } == {
        "kept": {"device": tokens},
        "host_told": {"device": tokens},
        "host_unannounced": {"host": tokens},
        "store_told": {"device": tokens},
        "store_unannounced": {"external": tokens},
        "recomputed": {},
    }
    assert all(row["as_claimed"] == row["trials"] == SHAPE.trials for row in rows.values())
    assert {name: row["brought"] for name, row in rows.items() if row["told"]} == {
        "host_told": 2,
        "store_told": 2,
    }
    assert all(one.device_tokens == 0 for lane in lanes if lane.arm.pushed for one in lane.returns)
    assert all(one.host_tokens == 0 for lane in lanes if lane.arm.store for one in lane.returns)
    assert house.told == steps_of(SHAPE)


def test_returns_come_when_they_were_said_to_and_are_answered_alike(lanes: list[Lane]) -> None:
    result = report(OPTIONS, SHAPE, lanes)
    assert (result["different_answers"], result["complete"]) == (0, True)
    assert all(one.late_ms < 1 for lane in lanes for one in lane.returns)
    assert {one.logits for one in lanes[0].returns} != {lanes[0].returns[0].logits}, "trials differ"


def test_the_bar_is_said_of_every_row_but_the_one_it_is_measured_by(lanes: list[Lane]) -> None:
    slow = [replace(one, first_token_ms=1000.0) for one in lanes[0].returns]
    quick = [replace(one, first_token_ms=1499.0) for one in slow]
    over = [replace(one, first_token_ms=1501.0) for one in slow]
    arms = [replace(lane, returns=over) for lane in lanes]
    arms[0], arms[1] = replace(lanes[0], returns=slow), replace(lanes[1], returns=quick)
    rows = report(OPTIONS, SHAPE, arms)["rows"]
    assert [row["met"] for row in rows] == [None, True, False, False, False, False]
    assert [row["ratio"] for row in rows[:3]] == [1.0, 1.499, 1.501]
    assert rows[1]["sooner_than_recomputed"] == 1.0


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        (0, {"device_tokens": 16}),
        (1, {"device_tokens": 16}),
        (2, {"cached": CachedTokens(device=64)}),
        (3, {"host_tokens": 16}),
        (4, {"cached": CachedTokens(host=64)}),
        (5, {"cached": CachedTokens(device=16)}),
        (1, {"logits": "others"}),
    ],
)
def test_a_trial_that_was_something_else_is_not_complete(
    lanes: list[Lane], at: int, wrong: dict[str, Any]
) -> None:
    first, *rest = lanes[at].returns
    changed = [*lanes[:at], replace(lanes[at], returns=[replace(first, **wrong), *rest]), *lanes[at + 1 :]]
    assert not report(OPTIONS, SHAPE, changed)["complete"]


def test_a_told_return_that_came_before_its_data_is_a_finding(lanes: list[Lane]) -> None:
    first, *rest = lanes[1].returns
    late = replace(first, cached=CachedTokens(device=16, host=48))
    result = report(OPTIONS, SHAPE, [lanes[0], replace(lanes[1], returns=[late, *rest]), *lanes[2:]])
    assert (result["complete"], result["rows"][1]["brought"]) == (True, 1)


def test_engines_are_left_at_rest_and_closed(lanes: list[Lane]) -> None:
    assert all(at_rest(lane.engine) for lane in lanes)


@pytest.mark.parametrize(
    "changes", [{"cached_tokens": GRID + 1}, {"pause_s": 7.9}, {"pause_s": float("nan")}, {"pause_s": 1e9}]
)
def test_what_could_not_be_measured_is_refused_before_anything_is_built(changes: dict[str, Any]) -> None:
    house = House()
    with pytest.raises(CacheError) as refused:
        house.bench(replace(SHAPE, **changes)).run()
    assert (refused.value.kind, house.engines) == (Kind.BAD_CONFIG, [])


@pytest.fixture
def own_logger() -> Iterator[None]:
    """Commands set the process's logger up."""
    yield
    structlog.reset_defaults()


@dataclass(frozen=True)
class Held:
    """A bench that was run before."""

    lanes: list[Lane]

    def run(self) -> list[Lane]:
        return self.lanes


@pytest.mark.usefixtures("own_logger")
def test_the_command_prints_one_json_object_or_a_table(
    lanes: list[Lane], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[Shape, Options]] = []

    def bench(shape: Shape, options: Options, *_: object) -> Held:
        asked.append((shape, options))
        return Held(lanes)

    monkeypatch.setattr(pause, "Bench", bench)
    small = [
        "--model",
        "tiny-swa",
        "--cached",
        "64",
        "--new",
        "5",
        "--trials",
        "2",
        "--grid",
        "16",
        "--threads",
        "2",
    ]
    assert pause.main([*small, "--l3", "redis", "--pause-s", "5.5", "--core", CORE, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert asked == [(Shape(64, 5, 2, 5.5, 16), Options("tiny-swa", CORE, 2, "redis"))]
    assert set(result) == {"options", "shape", "bar", "rows", "different_answers", "complete"}
    assert set(result["rows"][0]["cached_tokens"]) == set(TIERS)
    assert pause.main(["--trials", "2"]) == 0
    printed = capsys.readouterr().out
    assert all(arm.title in printed for arm in ARMS)
    assert "the same in every arm, bit for bit" in printed

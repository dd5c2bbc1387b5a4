"""`bench tree --ttft` on a small model: both cores are asked the same; prefill is what the runner takes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcache.bench import tree, tree_ttft, tree_ttft_run
from agentcache.bench.tree_ttft_report import TIMES, report
from agentcache.bench.tree_ttft_run import BASELINE, CORES, OURS, Bench, Talk, Trial, alternated
from agentcache.clock import ManualClock, SystemClock
from agentcache.config import EngineSettings
from agentcache.engine.api import Accepted, Finished, GenerateRequest
from agentcache.engine.engine import Engine
from agentcache.engine.loading import NamedModel, assemble
from agentcache.errors import CacheError, Kind
from tests.engines import GRID, ask, of, prompt_of, run, small_engine
from tests.zoo import ZOO

pytestmark = pytest.mark.native

TALK = Talk(rounds=5, trials=2, asked=20, answered=12, page_tokens=1, grid_tokens=16)


class House:
    """Builds engines over one model and keeps what was asked, engine by engine."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[int, ...]]] = []

    def build(self, settings: EngineSettings) -> Engine:
        named = NamedModel(ZOO["lara_mini"].build(settings.dtype), "lara_mini", random_weights=True)
        engine = assemble(named, settings, SystemClock())
        submit = engine.submit

        def noted(request: GenerateRequest) -> Accepted:
            self.asked.append((settings.core, request.tokens))
            return submit(request)

        engine.submit = noted  # type: ignore[method-assign]
        return engine


def test_both_cores_are_asked_the_same_in_turn_and_nothing_is_evicted() -> None:
    house, heard = House(), list[int]()
    bench = Bench(TALK, "lara_mini", 1, lambda: heard.append(1), house.build)
    trials = [bench.trial(number) for number in range(TALK.trials)]
    assert len(heard) == TALK.rounds * TALK.trials
    by_core = {core: [tokens for name, tokens in house.asked if name == core] for core in CORES}
    assert by_core[OURS] == by_core[BASELINE]
    lengths = [len(tokens) for tokens in by_core[OURS]]
    assert lengths == [20, 52, 84, 116, 148] * 2
    assert by_core[OURS][4][:20] == by_core[OURS][0]
    assert by_core[OURS][5] != by_core[OURS][0]
    assert [name for name, _ in house.asked[:4]] == [*alternated(1), *alternated(2)]
    assert alternated(1) != alternated(2)
    for trial in trials:
        assert trial[OURS] != trial[BASELINE]  # times
        for core in CORES:
            assert [turn.cached_tokens for turn in trial[core]] == [0, 16, 48, 80, 112]
            assert all(0 < turn.prefill_ms < turn.total_ms for turn in trial[core])
    assert report("lara_mini", TALK, 1, trials)["differences"] == 0


def test_a_core_that_restores_less_is_seen() -> None:
    house = House()

    def forgetful(settings: EngineSettings) -> Engine:
        engine = house.build(settings)
        if settings.core == BASELINE:
            submit = engine.submit

            def without_reuse(request: GenerateRequest) -> Accepted:
                engine.cache.flush()
                return submit(request)

            engine.submit = without_reuse  # type: ignore[method-assign]
        return engine

    trials = [Bench(TALK, "lara_mini", 1, lambda: None, forgetful).trial(0)]
    assert report("lara_mini", TALK, 1, trials)["differences"] == TALK.rounds - 1


def test_prefill_is_the_time_in_the_runner_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    engine = small_engine(clock=clock)
    takes = {"prefill": 100, "rows": 10, "save": 7, "restore": 3}

    def slowed(name: str) -> None:
        call = getattr(engine.runner, name)

        def slow(*given: Any) -> Any:
            clock.advance(takes[name])
            return call(*given)

        monkeypatch.setattr(engine.runner, name, slow)

    for name in takes:
        slowed(name)
    (end,) = of(Finished, run(engine, ask("a", prompt_of(2 * GRID + 5), max_tokens=1)))
    assert end.prefill_ns == 3 * 100 + 10
    assert end.first_token_ns >= end.prefill_ns + 7
    (cold, more) = (ask("b", prompt_of(5), max_tokens=3, reuse=False), ask("c", prompt_of(5), max_tokens=1))
    assert [one.prefill_ns for one in of(Finished, run(engine, cold, more))] == [110, 110]


@pytest.mark.parametrize("command", [tree, tree_ttft])
def test_the_command_passes_on_what_was_said(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Talk]] = []

    class Noted(Bench):
        def trial(self, number: int) -> Trial:
            asked.append((self.model, self.talk))
            raise CacheError(Kind.BAD_CONFIG, "enough")

    monkeypatch.setattr(tree_ttft, "Bench", Noted)
    said = ["--models", "tiny-swa", "--rounds", "7", "--page-tokens", "64", "--json"]
    with pytest.raises(CacheError, match="enough"):
        command.main(["--ttft", *said] if command is tree else said)
    assert asked == [("tiny-swa", Talk(rounds=7, page_tokens=64))]


def test_the_command_prints_one_json_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def of_the_zoo(talk: Talk, model: str, threads: int, on_round: Callable[[], None]) -> Bench:
        return Bench(talk, model, threads, on_round, House().build)

    monkeypatch.setattr(tree_ttft, "Bench", of_the_zoo)
    small = ["--models", "lara_mini", "--rounds", "3", "--trials", "1", "--grid", "16", "--threads", "1"]
    assert tree.main(["--ttft", *small, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert [row["round"] for row in result["rounds"]] == [1, 2, 3]
    assert set(result["spans"][0]["ratio"]) == set(TIMES)
    assert tree.main(["--ttft", *small]) == 0
    assert "the same in every round, bit for bit" in capsys.readouterr().out


def test_a_request_that_fails_ends_the_run() -> None:
    engine = small_engine()
    with pytest.raises(CacheError) as refused:
        tree_ttft_run.ask(engine, 1, prompt_of(200_000))
    assert refused.value.kind is Kind.PROMPT_TOO_LONG


def test_a_run_that_was_broken_off_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held: list[int] = []

    class Broken(Bench):
        def trial(self, number: int) -> Trial:
            if len(held) == 1:
                held.append(-1)
                raise KeyboardInterrupt
            held.append(number)
            return Bench(self.talk, self.model, self.threads, self.on_round, House().build).trial(number)

    monkeypatch.setattr(tree_ttft, "Bench", Broken)
    said = ["--model", "lara_mini", "--rounds", "3", "--trials", "3", "--grid", "16", "--json"]
    kept = ["--keep", str(tmp_path / "trials.json")]
    with pytest.raises(KeyboardInterrupt):
        tree_ttft.main([*said, *kept])
    assert tree_ttft.main([*said, *kept]) == 0
    assert held == [0, -1, 1, 2]
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert len(result["spans"][0]["trials"]) == 3

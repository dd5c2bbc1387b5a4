"""Recorded traces on every core: each answer and each state as the reference core gave them when they were recorded."""

from pathlib import Path
from typing import Any

import pytest

from agentcache.tree.reference.core import ReferenceCore
from agentcache.types import Evicted
from tests.builders import CORES, MakeCore
from tests.parity.corpus import traces
from tests.parity.pair import DifferenceError
from tests.parity.player import play


@pytest.mark.timeout(300)
@pytest.mark.parametrize("core", sorted(CORES))
@pytest.mark.parametrize("trace", traces(), ids=lambda trace: trace.stem)
def test_a_recorded_trace_is_answered_as_recorded(trace: Path, core: str) -> None:
    assert play(trace.read_text(encoding="utf-8").splitlines(), CORES[core]) > 30


class EvictsMore(ReferenceCore):
    def evict(self, component: Any, tier: Any, want: int, *others: Any) -> Evicted:
        return super().evict(component, tier, want + 1, *others)


def test_a_core_that_answers_differently_is_found_at_its_line() -> None:
    texts = [trace.read_text(encoding="utf-8").splitlines() for trace in traces() if trace.stem != "larder"]
    assert play(texts[0], ReferenceCore, check=True)
    with pytest.raises(DifferenceError, match=r"line \d+: \d+ evict "):
        play_all(texts, EvictsMore)


def play_all(texts: list[list[str]], core: MakeCore) -> None:
    for lines in texts:
        play(lines, core)


def test_the_corpus_is_small_enough_to_be_committed() -> None:
    assert 100_000 < sum(trace.stat().st_size for trace in traces()) < 1_000_000

"""The same turns with the cache on and off, side by side."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from agentcache.replay.outcome import Answer, Outcome
from agentcache.replay.run import Played


@dataclass(frozen=True, slots=True)
class Pair:
    """One turn answered twice; `turn` counts from 1."""

    name: str
    turn: int
    warm: Answer
    cold: Answer

    @property
    def same_logits(self) -> bool:
        """First-token logits bit for bit; False too where the worker gave no digest of them."""
        return bool(self.warm.first_logits) and self.warm.first_logits == self.cold.first_logits

    @property
    def same_output(self) -> bool:
        """Every greedy token (and the text, which is all that other servers give)."""
        return (self.warm.tokens, self.warm.text) == (self.cold.tokens, self.cold.text)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All turns answered both with the cache and without."""

    pairs: tuple[Pair, ...]

    @property
    def logits_differ(self) -> list[Pair]:
        return [pair for pair in self.pairs if not pair.same_logits]

    @property
    def outputs_differ(self) -> list[Pair]:
        return [pair for pair in self.pairs if not pair.same_output]

    @property
    def identical(self) -> bool:
        """True if there was something to compare and nothing differs."""
        return bool(self.pairs) and not self.logits_differ and not self.outputs_differ

    @property
    def ttft_warm_ms(self) -> float:
        return median_ms(pair.warm.ttft_ns for pair in self._later)

    @property
    def ttft_cold_ms(self) -> float:
        return median_ms(pair.cold.ttft_ns for pair in self._later)

    @property
    def _later(self) -> list[Pair]:
        """Second and later turns: the first has nothing of its own session to find."""
        return [pair for pair in self.pairs if pair.turn > 1]


def compare(warm: Sequence[Played], cold: Sequence[Played]) -> Comparison:
    """Pair the turns that both runs of the same sessions, in the same order, answered."""
    pairs: list[Pair] = []
    for one, other in zip(warm, cold, strict=False):
        pairs.extend(_pairs(one.name, one.turns, other.turns))
    return Comparison(tuple(pairs))


def _pairs(name: str, warm: Sequence[Outcome], cold: Sequence[Outcome]) -> Iterable[Pair]:
    for turn, (one, other) in enumerate(zip(warm, cold, strict=False), 1):
        if isinstance(one, Answer) and isinstance(other, Answer):
            yield Pair(name, turn, one, other)


def median_ms(durations_ns: Iterable[int]) -> float:
    """Median in milliseconds to one decimal; 0 of nothing."""
    found = list(durations_ns)
    return round(median(found) / 1e6, 1) if found else 0.0

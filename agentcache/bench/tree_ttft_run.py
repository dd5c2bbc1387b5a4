"""The conversation of `bench tree --ttft`, held on an engine of each core side by side.

round 1   |- asked -|
round 2   |- asked -|- answered -|- asked -|            answers are given: one token is decoded, and dropped
"""

import random
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from agentcache.bench.endings import complete
from agentcache.bench.tree_rows import settled
from agentcache.config import EngineSettings
from agentcache.engine.api import Finished, GenerateRequest
from agentcache.engine.build import build_engine
from agentcache.engine.engine import Engine
from agentcache.types import SessionId, SessionTag

BASELINE, OURS = "reference", "native"
CORES = (BASELINE, OURS)
SPARE_SLOTS = 64
STATES_A_ROUND = 4


@dataclass(frozen=True, slots=True)
class Talk:
    """`rounds` of so many tokens asked and answered, held `trials` times from an empty cache.

    Pages of 1 token give the tree most to do; the chunk grid is the model's, and restores end at its multiples.
    """

    rounds: int = 200
    trials: int = 5
    asked: int = 100
    answered: int = 100
    page_tokens: int = 1
    grid_tokens: int = 64
    seed: int = 0

    def prompt_tokens(self, number: int) -> int:
        """Of round `number`, counted from 1."""
        return number * self.asked + (number - 1) * self.answered


@dataclass(frozen=True, slots=True)
class Turn:
    """One round on one core. `logits` is the sha256 of its first token's."""

    total_ms: float
    prefill_ms: float
    cached_tokens: int
    logits: str

    @property
    def residual_ms(self) -> float:
        """What is not prefill: tree, scheduler, restore, publishing."""
        return self.total_ms - self.prefill_ms


Trial = Mapping[str, list[Turn]]
"""Turns by core, round after round."""


@dataclass(frozen=True, slots=True)
class Bench:
    """The same conversations on both cores; `on_round` hears of every round that both have had."""

    talk: Talk
    model: str
    threads: int
    on_round: Callable[[], None]
    build: Callable[[EngineSettings], Engine] = build_engine

    def trial(self, number: int) -> Trial:
        """One conversation; each number has words of its own.

        Errors  those of building an engine and of a request; ENGINE_FAILED for one that was cut short
        Cost    two engines, and for every round two prefills of what the grid cannot restore
        """
        with ExitStack() as stack:
            engines = {core: self.build(self._settings(core)) for core in CORES}
            for engine in engines.values():
                stack.callback(engine.close)
            words = random.Random(f"{self.talk.seed}/{number}")
            vocabulary = engines[OURS].info.vocab_size
            text = tuple(
                words.randrange(vocabulary) for _ in range(self.talk.prompt_tokens(self.talk.rounds))
            )
            turns: dict[str, list[Turn]] = {core: [] for core in CORES}
            with settled():
                for at in range(1, self.talk.rounds + 1):
                    prompt = text[: self.talk.prompt_tokens(at)]
                    for core in alternated(at + number):
                        turns[core].append(ask(engines[core], at, prompt))
                    self.on_round()
            for engine in engines.values():
                assert not any(engine.cache.stats().turns.evicted_slots.values()), "something was evicted"
        return turns

    def _settings(self, core: str) -> EngineSettings:
        """Pools in which nothing is evicted."""
        talk = self.talk
        pages = -(-talk.prompt_tokens(talk.rounds) // talk.page_tokens) + SPARE_SLOTS
        return EngineSettings.model_validate(
            {
                "model": self.model,
                "core": core,
                "threads": self.threads,
                "page_tokens": talk.page_tokens,
                "grid_tokens": talk.grid_tokens,
                "full_slots": pages,
                "swa_slots": 2 * pages,
                "mamba_slots": STATES_A_ROUND * talk.rounds + SPARE_SLOTS,
            }
        )


def alternated(number: int) -> tuple[str, ...]:
    """Who begins: now the one, now the other, so that a neighbour's load hits both."""
    return CORES if number % 2 else CORES[::-1]


def ask(engine: Engine, number: int, prompt: tuple[int, ...]) -> Turn:
    """One request of one token, alone."""
    session = SessionTag(SessionId("talk"))
    request = GenerateRequest(f"round-{number}", prompt, max_tokens=1, session=session, digest_logits=True)
    engine.submit(request)
    ends: list[Finished] = []
    while not engine.idle():
        ends.extend(event for event in engine.step() if isinstance(event, Finished))
    (end,) = ends
    complete(end)
    return Turn(end.first_token_ns / 1e6, end.prefill_ns / 1e6, end.cached_tokens, end.first_logits)

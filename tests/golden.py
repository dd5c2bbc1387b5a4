"""A small trace of agents' turns on a real model, and what an engine with a given configuration says and reuses."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from agentcache.engine.api import CachedTokens, Event, Finished, GenerateRequest
from agentcache.engine.engine import Engine
from tests.engines import ask, of, prompt_of, said, tag
from tests.patience import PATIENCE_S


@dataclass(frozen=True)
class Said:
    """What one request was answered, bit by bit, and where its prefix came from."""

    tokens: tuple[int, ...]
    first_logits: str
    cached: CachedTokens


@dataclass(frozen=True)
class Script:
    """Sessions that take turns: each turn sends all that was said, and something new."""

    sessions: int = 3
    turns: int = 4
    first_tokens: int = 70
    new_tokens: int = 21
    max_tokens: int = 6

    def play(self, engine_of: Callable[[int], Engine], reuse: bool = True) -> list[Said]:
        """Run every turn alone, the sessions in rotation; `engine_of(turn)` serves it."""
        heard: dict[int, list[int]] = {one: [] for one in range(self.sessions)}
        answers = []
        for turn in range(self.turns):
            for one in range(self.sessions):
                new = prompt_of(self.new_tokens if turn else self.first_tokens, 100 * one + turn)
                prompt = [*heard[one], *new]
                request = ask(
                    f"{one}.{turn}",
                    prompt,
                    self.max_tokens,
                    session=tag(f"s{one}"),
                    reuse=reuse,
                    user_end_tokens=len(prompt),
                    digest_logits=True,
                )
                answers.append(serve(engine_of(turn), request))
                heard[one] = [*prompt, *answers[-1].tokens]
        return answers


def serve(engine: Engine, request: GenerateRequest) -> Said:
    """One request alone, and whatever it leaves on its way between tiers."""
    engine.submit(request)
    events: list[Event] = list(steps(engine))
    (finished,) = of(Finished, events)
    assert not finished.error, finished.error
    return Said(tuple(said(events)), finished.first_logits, finished.cached)


def steps(engine: Engine) -> Iterator[Event]:
    """Everything that happens until nothing runs and nothing moves; the law of slots after every step."""
    end = time.monotonic() + 2 * PATIENCE_S
    while not (engine.idle() and engine.cache.tiers.idle):
        yield from engine.step()
        engine.cache.check()
        if not engine.idle() or not engine.cache.tiers.idle:
            engine.rest()
        assert time.monotonic() < end, engine.cache.stats()


def totals(answers: Sequence[Said]) -> list[int]:
    return [answer.cached.total for answer in answers]


def bits(answers: Sequence[Said]) -> list[tuple[tuple[int, ...], str]]:
    """What must not depend on where a prefix came from."""
    return [(answer.tokens, answer.first_logits) for answer in answers]

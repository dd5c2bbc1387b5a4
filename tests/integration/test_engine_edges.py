"""Prompts that end a token before, at and after a chunk's end, sent again: the hit, and every bit of the answer."""

import pytest

from agentcache.engine.api import Admitted, Event, Finished, Token
from agentcache.engine.engine import Engine
from tests.engines import GRID, PAGE, ask, at_rest, of, prompt_of, run, small_engine

FAMILIES = [("qwen3", PAGE), ("gemma3", PAGE), ("qwen3_5", PAGE), ("bamba", PAGE), ("lara_mini", GRID)]


def answer(engine: Engine, prompt: tuple[int, ...], reuse: bool = True) -> tuple[int, str, list[Event]]:
    """Hit, digest of the first token's logits, and the tokens with their margins."""
    events = run(engine, ask("one", prompt, 3, reuse=reuse, digest_logits=True))
    tokens: list[Event] = [*of(Token, events)]
    return of(Admitted, events)[0].cached_tokens, of(Finished, events)[0].first_logits, tokens


@pytest.mark.parametrize("length", [k * GRID + off for k in (1, 2, 4) for off in (-1, 0, 1)])
@pytest.mark.parametrize(("family", "page"), FAMILIES)
def test_a_resent_prompt_around_a_chunks_end_is_exact(
    engines: dict[str, Engine], family: str, page: int, length: int
) -> None:
    """R037, R177: one token is always computed, from the state of the boundary that is really used."""
    if family not in engines:
        engines[family] = small_engine(family, page_tokens=page)
    engine = engines[family]
    prompt = prompt_of(length, seed=length)
    first, again, cold = answer(engine, prompt), answer(engine, prompt), answer(engine, prompt, reuse=False)
    assert (first[0], again[0], cold[0]) == (0, (length - 1) // GRID * GRID, 0)
    assert first[1:] == again[1:] == cold[1:]
    assert at_rest(engine)


@pytest.fixture(scope="module")
def engines() -> dict[str, Engine]:
    """Engines by family, made when first asked for."""
    return {}

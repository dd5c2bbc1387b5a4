"""Sessions on one shared prompt: the first turn's reference, the next ones', and the close."""

from collections.abc import Iterator

import numpy as np

from agentcache.bench.tree_rows import Place, Row, row, settled
from agentcache.bench.tree_world import STEPS, World, clock
from agentcache.tree.api import Order
from agentcache.types import ReleaseMode, SessionId

PROMPT_TOKENS = 1024
TURN_TOKENS = 200
TURNS = 10


def session_rows(place: Place, sessions: int, order: Order = Order.SESSION) -> Iterator[Row]:
    """`open` is a session's first reference, `reference` a later one, `close` its release: a path of 11 nodes."""
    world = World(place, order)
    prompt = world.tokens(PROMPT_TOKENS)
    names = [SessionId(f"s{number}") for number in range(sessions)]
    with settled():
        turns = [_live(world, name, prompt) for name in names]
        closes = [_close(world, name) for name in names]
    tokens = PROMPT_TOKENS + TURNS * TURN_TOKENS
    yield row("open", place, [life[0] for life in turns], PROMPT_TOKENS + TURN_TOKENS)
    yield row("reference", place, [seconds for life in turns for seconds in life[1:]], tokens)
    yield row("close", place, closes, tokens)


def _live(world: World, name: SessionId, prompt: np.ndarray) -> list[float]:
    """Ten turns behind the prompt; seconds of each reference."""
    context = np.concatenate([prompt, world.tokens(TURNS * TURN_TOKENS)])
    ends = range(PROMPT_TOKENS + TURN_TOKENS, len(context) + 1, TURN_TOKENS)
    at = STEPS.index("reference")
    return [
        world.turn(name, context[:end], end - TURN_TOKENS // 2, number)[at] for number, end in enumerate(ends)
    ]


def _close(world: World, name: SessionId) -> float:
    began = clock()
    answer = world.core.release(name, 1, ReleaseMode.RELEASE, world.now())
    took = clock() - began
    assert answer.markers
    return took

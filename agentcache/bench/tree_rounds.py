"""Rounds of a conversation: 100 tokens come in, 100 are generated, everything is published and referenced."""

import statistics
from collections.abc import Callable, Iterator, Sequence

from agentcache.bench.tree_rows import Place, Row, figure, settled
from agentcache.bench.tree_world import STEPS, World
from agentcache.tree.api import Order
from agentcache.types import SessionId

ROUND_TOKENS = 200
ASKED_TOKENS = 100
LAST = 20

Conversation = Sequence[tuple[float, ...]]
"""Seconds of every step of every round."""


def round_rows(place: Place, rounds: int, passes: int, order: Order = Order.SESSION) -> Iterator[Row]:
    """Hold the same conversation several times."""
    return summarize(place, [_converse(place, rounds, order) for _ in range(passes)])


def summarize(place: Place, conversations: Sequence[Conversation]) -> Iterator[Row]:
    """The mean round, the last ones, and the mean of each step.

    A neighbour's load only ever adds. So best is per round and step the least of the passes, median their median;
    then the mean over the rounds, or the median of the last 20.
    """
    least = _over_passes(conversations, min)
    middle = _over_passes(conversations, statistics.median)
    passes, tokens = len(conversations), len(least) * ROUND_TOKENS
    for op, summary in (("round", statistics.mean), ("round_last20", _last)):
        both = [summary([sum(steps) for steps in times]) * 1e6 for times in (least, middle)]
        yield figure(op, place, (both[0], both[1], passes), tokens)
    for at, step in enumerate(STEPS):
        both = [statistics.mean(steps[at] for steps in times) * 1e6 for times in (least, middle)]
        yield figure(f"round_{step}", place, (both[0], both[1], passes), tokens)


def _converse(place: Place, rounds: int, order: Order) -> Conversation:
    world = World(place, order)
    context = world.tokens(rounds * ROUND_TOKENS)
    ends = range(ROUND_TOKENS, len(context) + 1, ROUND_TOKENS)
    with settled():
        return [
            world.turn(SessionId("s"), context[:end], end - ASKED_TOKENS, number)
            for number, end in enumerate(ends)
        ]


def _over_passes(
    conversations: Sequence[Conversation], pick: Callable[[Sequence[float]], float]
) -> Conversation:
    rounds = zip(*conversations, strict=True)
    return [tuple(pick(times) for times in zip(*passes, strict=True)) for passes in rounds]


def _last(seconds: Sequence[float]) -> float:
    return statistics.median(seconds[-LAST:])

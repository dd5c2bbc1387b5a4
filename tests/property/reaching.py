"""Random histories that must meet what is rare: more of them are run until each rare event was seen, within a bound."""

from collections import Counter
from collections.abc import Callable, Set

FIRST_SEED = 20261129
BATCHES = 6


def reach(run: Callable[[int], None], reached: Counter[str], rare: Set[str]) -> None:
    """Run batches with one seed after the other until `rare` is covered; fails when six batches do not reach it."""
    reached.clear()
    for number in range(BATCHES):
        run(FIRST_SEED + number)
        missing = rare - set(+reached)
        if not missing:
            return
    raise AssertionError(f"never reached: {sorted(missing)}")

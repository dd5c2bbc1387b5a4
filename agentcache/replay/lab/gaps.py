"""How much of the gap between LRU and the bound an order closes, with errors over seeds.

Seeds are paired: every policy sees the same starts and gaps, so differences are taken seed by seed. What was replayed
once, because nothing is drawn in it, is the same for every seed.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

SMALLEST_GAP = 0.004
"""Hit rates that are closer than this leave nothing to close."""

CERTAIN = 2.0
"""A gap of fewer standard errors is within noise."""


@dataclass(frozen=True, slots=True)
class Closed:
    """`gained` in hit rate over the baseline, `share` of the gap; each with its standard error over seeds.

    None: the gap itself is within noise, or there is one replay only.
    """

    gained: float
    gained_error: float | None
    share: float | None
    share_error: float | None


def gap_closed(hits: Sequence[float], baseline: Sequence[float], bound: Sequence[float]) -> Closed:
    """What an order with these hit rates, one a seed or one for all, closes of the gap from `baseline` to `bound`.

    The share is a ratio of means; its error comes from the residuals of the seeds around that ratio.
    """
    seeds = max(len(hits), len(baseline), len(bound))
    hits, baseline, bound = (_for_all(rates, seeds) for rates in (hits, baseline, bound))
    gained = [hit - base for hit, base in zip(hits, baseline, strict=True)]
    gaps = [best - base for best, base in zip(bound, baseline, strict=True)]
    mean, gap = statistics.fmean(gained), statistics.fmean(gaps)
    error, gap_error = _error(gained), _error(gaps)
    if gap < SMALLEST_GAP or (gap_error is not None and gap < CERTAIN * gap_error):
        return Closed(mean, error, None, None)
    share = mean / gap
    residuals = _error([one - share * all_of_it for one, all_of_it in zip(gained, gaps, strict=True)])
    return Closed(mean, error, share, None if residuals is None else residuals / gap)


def _error(values: Sequence[float]) -> float | None:
    """The standard error of the mean; None for a single value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def _for_all(rates: Sequence[float], seeds: int) -> Sequence[float]:
    return [*rates] * seeds if len(rates) == 1 else rates

"""What came between one look and the next, added up by the rule of the dashboard."""

from collections.abc import Mapping

from agentcache.router.dashboard.rates import TIERS, Counted, Moment, Rates
from agentcache.top.looking import ROUTER, Counts, Look


class Lately:
    """Looks at one server, one after the other.

    A worker that is not reached is counted on once it is; one that starts anew counts from 0, and one that is seen for
    the first time from what it has. What a router itself counts is compared with nothing else.
    """

    def __init__(self) -> None:
        self._own, self._workers = Rates(kept=2), Rates(kept=2)

    def add(self, now: Look) -> Counts:
        """What came since the look before, of those who counted `now.counts`; nothing at the first."""
        workers = {worker.id: _by_tier(worker.counts) for worker in now.workers or () if worker.reached}
        old, new = _added(self._workers, now.at_s, workers)
        own_old, own_new = _added(self._own, now.at_s, {"": _in_all(now.own)})
        if now.counted_by == ROUTER:
            return Counts(own_new.prompt - own_old.prompt, {"": own_new.cached[0] - own_old.cached[0]})
        came = (after - before for before, after in zip(old.cached, new.cached, strict=True))
        return Counts(new.prompt - old.prompt, dict(zip(TIERS, came, strict=True)))


def _added(rates: Rates, at_s: float, counted: Mapping[str, Counted]) -> tuple[Moment, Moment]:
    """What was counted until the look before and until now."""
    before = rates.moments()
    rates.add(at_s, counted)
    now = rates.moments()[-1]
    return (before or (now,))[-1], now


def _by_tier(counts: Counts) -> Counted:
    return Counted(int(counts.prompt), tuple(int(counts.cached.get(tier, 0)) for tier in TIERS))


def _in_all(counts: Counts) -> Counted:
    """Of a router, which knows no tiers: all of it stands with the first."""
    return Counted(int(counts.prompt), (int(counts.total), *(0 for _ in TIERS[1:])))

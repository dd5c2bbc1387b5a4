"""The absent tier keeps the contract of a job queue."""

from agentcache.tiers.api import Presence, Transfer
from agentcache.tiers.null import NullTier
from agentcache.types import FULL, Job, TierName


def transfer(number: int, source: TierName, target: TierName) -> Transfer:
    return Transfer(Job(number, source, target, ()), ())


def test_null_tier_reports_each_job_once_with_nothing_landed() -> None:
    tier = NullTier()
    store = transfer(1, TierName.DEVICE, TierName.HOST)
    load = transfer(2, TierName.HOST, TierName.DEVICE)
    tier.submit_store(store)
    tier.submit_load(load)
    tier.drain()
    ended = tier.poll()
    assert [result.job for result in ended] == [store.job, load.job]
    assert all(result.landed == () for result in ended)
    assert tier.poll() == ()


def test_null_tier_holds_nothing() -> None:
    assert NullTier().lookup([(FULL, b"a"), (FULL, b"b")]) == (Presence.MISS, Presence.MISS)
    assert NullTier(TierName.EXTERNAL).name is TierName.EXTERNAL

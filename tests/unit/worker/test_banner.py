"""The banner's row about what lies below the device."""

import pytest

from agentcache.config import TierSettings
from agentcache.views import ExternalStatus
from agentcache.worker.banner import tiers_row
from tests.unit.worker.test_cache_routes import ABSENT, POOLS, UP, stats

DEVICE = POOLS[:2]
FILE = ExternalStatus("file", "up", "cache/here")


def test_a_device_alone_is_said_to_be_alone() -> None:
    assert tiers_row(TierSettings(), stats(pools=DEVICE)) == "device only"


def test_host_memory_is_told_with_its_slots_and_policy() -> None:
    row = tiers_row(TierSettings(host_mib=1024, write_policy="write_back"), stats())
    assert row == "host 1,024 MiB: FULL 100 + MAMBA 30 slots, write_back"


def test_an_external_store_is_told_with_its_place_and_how_long_it_is_waited_for() -> None:
    row = tiers_row(TierSettings(host_mib=0.5, prefetch_timeout_s=0.25), stats(FILE))
    assert row == (
        "host 0.5 MiB: FULL 100 + MAMBA 30 slots, write_through; external file at cache/here, prefetch 0.25 s"
    )


@pytest.mark.parametrize("prefetch", ["best_effort", "wait_complete"])
def test_without_a_host_tier_it_says_so(prefetch: str) -> None:
    row = tiers_row(TierSettings.model_validate({"prefetch": prefetch}), stats(UP, DEVICE))
    assert row == (
        "external redis at redis://me:***@localhost:1/0, straight to the device, write_through, "
        f"prefetch {prefetch}"
    )


def test_a_store_without_an_address_has_none_in_its_row() -> None:
    assert tiers_row(TierSettings(), stats(ExternalStatus("memory", "up"), DEVICE)).startswith(
        "external memory,"
    )
    assert "external" not in tiers_row(TierSettings(host_mib=1), stats(ABSENT))

"""What the host says about its memory."""

from pathlib import Path

import pytest

from agentcache.pools.memory import free_host_bytes

MEMINFO = "MemTotal:       24684000 kB\nMemFree:         1000000 kB\nMemAvailable:   20000000 kB\n"


@pytest.mark.parametrize(
    ("limit", "answer"),
    [("max\n", 20000000 * 1024), ("1073741824\n", 1 << 30), ("99999999999999\n", 20000000 * 1024)],
)
def test_it_is_what_is_available_within_the_containers_limit(tmp_path: Path, limit: str, answer: int) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "limit").write_text(limit)
    assert free_host_bytes(tmp_path / "meminfo", tmp_path / "limit") == answer


def test_a_system_that_says_nothing_has_what_is_installed(tmp_path: Path) -> None:
    installed = free_host_bytes(tmp_path / "none", tmp_path / "none")
    assert installed >= free_host_bytes(limit=tmp_path / "none") > 0

"""Tiers of a real worker process: from one life to the next, and why it does not start."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import httpx2
import pytest

from tests.integration.worker.test_worker_process import serving
from tests.integration.worker.test_worker_tiers import BASE, NOTHING, settled, turn
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]  # each starts a process that imports torch


async def test_a_store_outlives_its_worker(checkpoint: Path, tmp_path: Path) -> None:
    store = ("--l3", "file", "--l3-path", str(tmp_path / "store"), "--l3-mib", "64")
    flags = ("--host-mib", "16", *store, "--l3-deadline-s", str(PATIENCE_S))
    for expected in (NOTHING, {**NOTHING, "external": 192}):
        async with (
            serving(checkpoint, *flags, "--prefetch", "wait_complete") as running,
            httpx2.AsyncClient(base_url=running.url, timeout=PATIENCE_S) as http,
        ):
            assert "tiers       host 16 MiB: FULL " in running.banner
            assert "external file at " in running.banner
            assert await turn(http, BASE) == expected
            assert (await settled(http))["external"]["state"] == "up"
            running.process.send_signal(signal.SIGTERM)
            assert await running.ended() == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--l3", "nosuch"), "'file', 'redis', 'mooncake' or 'memory'"),
        (("--host-mib", "0"), "for no host tier leave it out"),
        (("--l3", "memory", "--l3-path", "x"), "leave l3_path out"),
    ],
)
async def test_a_setting_that_cannot_be_is_one_line(flags: tuple[str, ...], said: str) -> None:
    [line] = await refusal("serve", *flags)
    assert said in line


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--host-mib", "99999999999"), "lower host_mib"),
        (("--l3", "redis", "--l3-mib", "99999999999"), "the memory of this machine"),
        (("--l3", "redis", "--l3-url", "redis://127.0.0.1:1"), "127.0.0.1:1"),
    ],
)
async def test_a_tier_that_cannot_be_had_ends_the_start(
    checkpoint: Path, flags: tuple[str, ...], said: str
) -> None:
    assert said in (await refusal("serve", "--port", "0", "--model", str(checkpoint), *flags))[-1]


async def test_a_folder_that_is_not_ours_ends_the_start(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    flags = ("--l3", "file", "--l3-path", str(tmp_path))
    line = (await refusal("serve", "--port", "0", "--model", str(checkpoint), *flags))[-1]
    assert str(tmp_path) in line
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


async def refusal(*words: str) -> list[str]:
    """What `agentcache` says on stderr as it refuses: exit code 2, nothing on stdout, no traceback."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agentcache", *words, stdout=PIPE, stderr=PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 2 * PATIENCE_S)
    lines = err.decode().splitlines()
    assert (process.returncode, out) == (2, b""), err.decode()
    assert lines[-1].startswith("agentcache: bad_config: ")
    assert not any("Traceback" in line for line in lines)
    return lines

"""A router's folder: its server, its sessions and its secret, and who survives whom."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path

import pytest
import redis

from agentcache.clock import SystemClock
from agentcache.errors import CacheError, Kind
from agentcache.store.api import Closing, Opening, OpenVerdict, SessionRef, StoreRules
from agentcache.store.connect import connect, join_home, open_home, read_secret
from agentcache.store.redis import RedisStore
from agentcache.wire import TagSigner
from tests.sessionstores import PATIENT_S, A, B, until

CLOCK = SystemClock()
OWNER = """
import os, signal, sys
from pathlib import Path
from agentcache.clock import SystemClock
from agentcache.store.connect import open_home
home = open_home(Path(sys.argv[1]), SystemClock())
print("owned" if home.server.owned else "joined", flush=True)
sys.stdin.readline()
"""
DEATHS = {
    "exit": "",
    "exception": "raise SystemError",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
}


@asynccontextmanager
async def stored(url: str) -> AsyncIterator[RedisStore]:
    async with aclosing(await connect(url, StoreRules(), call_s=PATIENT_S)) as store:
        yield store


def answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url) as line:
            return bool(line.ping())
    except redis.ConnectionError:
        return False


@pytest.mark.asyncio
async def test_sessions_survive_the_server_and_generations_go_on(tmp_path: Path) -> None:
    with closing(open_home(tmp_path, CLOCK)) as home:
        async with stored(home.url) as store:
            epoch = await store.prepare()
            kept = await store.open(A, Opening())
            await store.open(B, Opening())
            await store.close(B, Closing())
    assert not answers(home.url)
    with closing(open_home(tmp_path, CLOCK)) as again:
        assert again.secret == home.secret
        async with stored(again.url) as store:
            assert await store.prepare() != epoch, (
                "its last moments may be lost: workers compare what they have"
            )
            assert (await store.open(A, Opening())).verdict is OpenVerdict.UNCHANGED
            assert (await store.look(B)).state == "closed"
            assert (await store.open(SessionRef("t", "new"), Opening())).generation > kept.generation


@pytest.mark.asyncio
@pytest.mark.parametrize("death", DEATHS)
async def test_no_server_is_orphaned_and_who_is_left_takes_over(tmp_path: Path, death: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER + DEATHS[death], str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "owned\n"
    with closing(open_home(tmp_path, CLOCK)) as home:
        assert not home.server.owned
        async with stored(home.url) as store:
            opened = await store.open(A, Opening())
            process.communicate("\n")
            until(lambda: not answers(home.url))
            with pytest.raises(CacheError) as down:
                await store.look(A)
            assert down.value.kind is Kind.STORE_FAILED
            home.ensure()
            assert home.server.owned
            assert (await store.look(A)).generation == opened.generation, "without a restart of ours"


def test_a_secret_is_made_once_and_is_nobody_elses(tmp_path: Path) -> None:
    folder = tmp_path / "router"
    with closing(open_home(folder, CLOCK)) as home:
        assert (folder / "secret").stat().st_mode & 0o777 == 0o600
        assert len(home.secret) == 64
        assert TagSigner(home.secret).bearer("w1", "http://w1")
        assert join_home(folder) == (home.url, home.secret)
        assert sorted(path.name for path in folder.iterdir() if path.is_file() and "secret" in path.name) == [
            "secret"
        ]


def test_routers_that_start_at_once_have_one_secret(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        homes = list(threads.map(lambda _: open_home(tmp_path, CLOCK), range(8)))
    assert len({home.secret for home in homes}) == 1
    assert sum(home.server.owned for home in homes) == 1
    for home in homes:
        home.close()


def test_a_worker_starts_no_server_and_says_whose_folder_it_wants(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="agentcache router --router-dir") as refused:
        join_home(tmp_path / "nowhere")
    assert refused.value.kind is Kind.BAD_CONFIG
    open_home(tmp_path, CLOCK).close()
    url, _ = join_home(tmp_path)
    assert not answers(url)


def test_a_secret_file_must_be_there_and_long_enough(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("  0123456789abcdef\n")
    assert read_secret(path) == b"0123456789abcdef"
    path.write_text("0123456789abcde\n")
    with pytest.raises(CacheError, match="too short") as short:
        read_secret(path)
    with pytest.raises(CacheError, match="name the file that the routers use") as missing:
        read_secret(tmp_path / "none")
    assert short.value.kind is missing.value.kind is Kind.BAD_CONFIG


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CacheError, match="name a folder that you may write to") as refused:
        open_home(tmp_path / "file", CLOCK)
    assert refused.value.kind is Kind.BAD_CONFIG
    assert os.path.isfile(tmp_path / "file")

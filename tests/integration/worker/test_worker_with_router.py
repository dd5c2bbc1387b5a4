"""`serve --with-router`: the router reads the worker's settings file, and both have their sessions in one place."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agentcache.config import Settings
from agentcache.errors import CacheError, Kind
from agentcache.store.connect import join_home
from agentcache.worker.with_router import serve_with_router

SERVED = 7
ELSEWHERE = '[router]\nredis_url = "redis://127.0.0.1:1"\nsecret_file = "{}/secret"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("s" * 32)
    return tmp_path / "other.toml"


def joined(settings: Settings, file: Path, sees: Callable[[Settings], None] = lambda _: None) -> Settings:
    """What the worker is started with, once the router answers."""
    seen: list[Settings] = []

    def run(settings: Settings) -> int:
        sees(settings)
        seen.append(settings)
        return SERVED

    assert serve_with_router(settings, 0, file, {"PATH": ""}, run) == SERVED
    return seen[0]


def home_is_there(settings: Settings) -> None:
    url, secret = join_home(Path(settings.router_dir))
    assert url.startswith("unix://")
    assert secret


def test_the_router_reads_the_file_that_the_worker_reads(tmp_path: Path, file: Path) -> None:
    file.write_text('[router]\nwithout_store = "bogus"\n')
    with pytest.raises(CacheError, match="did not start") as refused:
        joined(Settings(router_dir=str(tmp_path / "router")), file)
    assert refused.value.kind is Kind.BAD_CONFIG
    with pytest.raises(CacheError, match=r"without_store .*bogus"):
        joined(Settings(), file)


def test_the_workers_folder_overrules_what_the_file_says_to_the_router(tmp_path: Path, file: Path) -> None:
    file.write_text(ELSEWHERE.format(tmp_path))
    settings = joined(Settings(router_dir=str(tmp_path / "router")), file, home_is_there)
    assert (settings.router_dir, settings.redis_url) == (str(tmp_path / "router"), "")


def test_a_worker_that_names_no_place_joins_its_router_where_that_is(tmp_path: Path, file: Path) -> None:
    file.write_text(f'[router]\nrouter_dir = "{tmp_path}/router"\n')
    assert joined(Settings(), file, home_is_there).router_dir == str(tmp_path / "router")
    file.write_text(ELSEWHERE.format(tmp_path))
    settings = joined(Settings(), file)
    assert (settings.redis_url, settings.secret_file) == ("redis://127.0.0.1:1", f"{tmp_path}/secret")

"""A router's settings: the same four layers as a worker's, apart from them, and faults that say what to do."""

from pathlib import Path

import pytest

from agentcache.config import Settings, resolve
from agentcache.errors import CacheError, Kind
from agentcache.resolving import DEFAULT_FILE, resolve_for
from agentcache.router.settings import ROUTER, PlainUpstream, RouterSettings

NOWHERE: dict[str, str] = {}


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def routed(flags: dict[str, object], environ: dict[str, str]) -> RouterSettings:
    return resolve_for(ROUTER, flags, environ).settings


def refused(flags: dict[str, object], environ: dict[str, str]) -> str:
    with pytest.raises(CacheError) as caught:
        resolve_for(ROUTER, flags, environ)
    assert caught.value.kind is Kind.BAD_CONFIG
    return caught.value.message


def test_flag_beats_environment_beats_table_beats_default(tmp_path: Path) -> None:
    environ = {"AGENTCACHE_ROUTER_PORT": "2"}
    assert routed({}, NOWHERE).port == 8000
    (tmp_path / DEFAULT_FILE).write_text("[router]\nport = 1\n")
    assert routed({}, NOWHERE).port == 1
    assert routed({}, environ).port == 2
    resolved = resolve_for(ROUTER, {"port": "3"}, environ)
    assert (resolved.settings.port, resolved.origins["port"]) == (3, "flag --port")


def test_worker_and_router_read_their_own_part_of_one_file_and_one_environment(tmp_path: Path) -> None:
    (tmp_path / DEFAULT_FILE).write_text("port = 8111\nmax_running = 3\n[router]\nport = 8001\n")
    environ = {
        "AGENTCACHE_MAX_RUNNING": "5",
        "AGENTCACHE_ROUTER_GRACE_S": "7",
        "AGENTCACHE_ROUTER_DIR": "here",
    }
    worker, router = resolve({}, environ).settings, routed({}, environ)
    assert (worker.port, worker.max_running, worker.router_dir) == (8111, 5, "here")
    assert (worker.grace_s, router.grace_s) == (Settings().grace_s, 7)
    assert (router.port, router.router_dir, router.folder) == (8001, "here", Path("here"))


def test_unknown_keys_name_the_nearest_and_their_place(tmp_path: Path) -> None:
    said = refused({}, {"AGENTCACHE_ROUTER_PROT": "1"})
    assert (
        said
        == "unknown setting 'AGENTCACHE_ROUTER_PROT' in the environment; did you mean 'AGENTCACHE_ROUTER_PORT'?"
    )
    (tmp_path / DEFAULT_FILE).write_text("[router]\nprot = 1\n")
    assert (
        refused({}, NOWHERE) == "unknown setting 'prot' in [router] of agentcache.toml; did you mean 'port'?"
    )


def test_a_table_that_is_none_is_refused_by_both(tmp_path: Path) -> None:
    (tmp_path / DEFAULT_FILE).write_text("router = 3\n")
    assert refused({}, NOWHERE) == "[router] of agentcache.toml must be a table, not 3"
    with pytest.raises(CacheError, match="unknown setting 'router'"):
        resolve({}, NOWHERE)


def test_upstreams_are_several_by_commas_or_as_a_list(tmp_path: Path) -> None:
    said = "openai=http://127.0.0.1:9000/, sglang=http://127.0.0.1:9001"
    wanted = (
        PlainUpstream("openai", "http://127.0.0.1:9000"),
        PlainUpstream("sglang", "http://127.0.0.1:9001"),
    )
    assert routed({"upstream": said}, NOWHERE).upstreams == wanted
    (tmp_path / DEFAULT_FILE).write_text('[router]\nupstream = ["vllm=http://127.0.0.1:9002/base"]\n')
    assert routed({}, NOWHERE).upstreams == (PlainUpstream("vllm", "http://127.0.0.1:9002/base"),)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"upstream": "http://127.0.0.1:9000"}, "must be KIND=URL"),
        ({"upstream": "tgi=http://127.0.0.1:9000"}, "must be KIND=URL"),
        ({"upstream": "openai=127.0.0.1:9000"}, "must be KIND=URL"),
        ({"redis_url": "localhost:6379", "secret_file": "s"}, "must look like redis://HOST:PORT/DB"),
        ({"redis_url": "redis://localhost"}, "name the file of the common secret in secret_file"),
        ({"secret_file": "s"}, "secret_file goes with redis_url"),
        ({"port": 65536}, "port (flag --port)"),
        ({"workers": 0}, "workers (flag --workers)"),
        ({"without_store": "wait"}, "'serve' or 'refuse'"),
        ({"attempts": 0}, "attempts (flag --attempts)"),
        ({"close_wait_s": 31}, "close_wait_s (flag --close-wait-s)"),
    ],
)
def test_what_does_not_go_is_refused_with_what_to_do(flags: dict[str, object], said: str) -> None:
    assert said in refused(flags, NOWHERE)


def test_no_fault_shows_a_password() -> None:
    assert "hush" not in refused({"redis_url": "me:hush@localhost", "secret_file": "s"}, NOWHERE)

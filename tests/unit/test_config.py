"""Settings: precedence, origins, and one clear error for each fault."""

from pathlib import Path

import pytest

from agentcache.config import (
    Settings,
    TierSettings,
    other_store,
    resolve,
    without_password,
)
from agentcache.errors import CacheError, Kind
from agentcache.resolving import DEFAULT_FILE, Resolved

NOWHERE: dict[str, str] = {}


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(flags: dict[str, object], environ: dict[str, str], file: Path | None = None) -> str:
    with pytest.raises(CacheError) as caught:
        resolve(flags, environ, file)
    assert caught.value.kind is Kind.BAD_CONFIG
    return caught.value.message


def at_port(resolved: Resolved[Settings]) -> tuple[int, str]:
    return resolved.settings.port, resolved.origins["port"]


def test_defaults_are_complete_and_say_so() -> None:
    resolved = resolve({}, NOWHERE)
    assert resolved.settings == Settings()
    assert set(resolved.origins) == set(Settings.model_fields)
    assert set(resolved.origins.values()) == {"default"}


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    environ = {"AGENTCACHE_PORT": "2"}
    file = tmp_path / DEFAULT_FILE
    assert at_port(resolve({}, NOWHERE)) == (8100, "default")
    file.write_text("port = 1\n")
    assert at_port(resolve({}, NOWHERE)) == (1, f"file {DEFAULT_FILE}")
    assert at_port(resolve({}, environ)) == (2, "env AGENTCACHE_PORT")
    assert at_port(resolve({"port": "3"}, environ)) == (3, "flag --port")


def test_file_named_by_argument_beats_the_one_named_by_the_environment(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("port = 1\n")
    (tmp_path / "b.toml").write_text("port = 2\n")
    environ = {"AGENTCACHE_CONFIG": "a.toml"}
    assert at_port(resolve({}, environ)) == (1, "file a.toml")
    assert at_port(resolve({}, environ, Path("b.toml"))) == (2, "file b.toml")


def test_flag_of_two_words_has_its_spelling_as_origin() -> None:
    assert resolve({"page_tokens": 32}, NOWHERE).origins["page_tokens"] == "flag --page-tokens"


def test_unknown_key_of_the_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / DEFAULT_FILE).write_text("max_runing = 3\n")
    said = refused({}, NOWHERE)
    assert said == "unknown setting 'max_runing' in agentcache.toml; did you mean 'max_running'?"


def test_unknown_variable_names_the_nearest() -> None:
    said = refused({}, {"AGENTCACHE_PROT": "1"})
    assert said == "unknown setting 'AGENTCACHE_PROT' in the environment; did you mean 'AGENTCACHE_PORT'?"


def test_variables_of_others_and_of_the_tests_are_left_alone() -> None:
    assert resolve({}, {"PORT": "1", "AGENTCACHE_DATA": "x"}).settings == Settings()


def test_unknown_flag_is_refused() -> None:
    assert "did you mean 'port'" in refused({"prot": 1}, NOWHERE)


def test_wrong_values_are_named_together_with_their_origins() -> None:
    said = refused({"device": "gpu"}, {"AGENTCACHE_PORT": "x"})
    assert "device (flag --device)" in said
    assert "port (env AGENTCACHE_PORT)" in said
    assert "not 'gpu'" in said


def test_a_core_that_is_none_is_refused_and_the_two_that_are_named() -> None:
    said = refused({}, {"AGENTCACHE_CORE": "rust"})
    assert "core (env AGENTCACHE_CORE)" in said
    assert "'native' or 'reference'" in said
    for core in ("native", "reference"):
        assert resolve({}, {"AGENTCACHE_CORE": core}).settings.core == core


def test_grid_that_is_not_whole_pages_is_refused() -> None:
    assert "multiple of page_tokens (48)" in refused({"page_tokens": 48, "grid_tokens": 64}, NOWHERE)


def test_a_base_needs_its_order() -> None:
    assert "say eviction_policy session too" in refused({"eviction_base": "lfu"}, NOWHERE)
    said = resolve({"eviction_base": "lfu", "eviction_policy": "session"}, NOWHERE).settings
    assert (said.eviction_policy, said.eviction_base) == ("session", "lfu")


def test_named_file_that_is_missing_is_refused() -> None:
    assert "cannot read the settings file gone.toml" in refused({}, NOWHERE, Path("gone.toml"))
    assert "cannot read the settings file gone.toml" in refused({}, {"AGENTCACHE_CONFIG": "gone.toml"})


@pytest.mark.parametrize("content", [b"port = ", b"\xff\xfe"])
def test_file_that_is_not_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / DEFAULT_FILE).write_bytes(content)
    assert "cannot read the settings file agentcache.toml" in refused({}, NOWHERE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", -1),
        ("port", 65536),
        ("full_slots", 0),
        ("ttl_s", 0),
        ("max_running", 0),
        ("dtype", "float64"),
        ("eviction_policy", "fifo"),
        ("model", ""),
        ("queue_limit", -1),
        ("prompt_only", "perhaps"),
        ("host_mib", -1),
        ("host_mib", "inf"),
        ("host_mib", "nan"),
        ("write_policy", "write_around"),
        ("l3_mib", 0),
        ("l3_mib", "inf"),
        ("l3_deadline_s", 0),
        ("prefetch", "eager"),
        ("prefetch_timeout_s", -1),
    ],
)
def test_value_out_of_range_is_refused(name: str, value: object) -> None:
    assert refused({name: value}, NOWHERE).startswith(f"{name} (flag --{name.replace('_', '-')})")


def test_without_a_word_there_is_one_tier() -> None:
    settings = resolve({}, NOWHERE).settings
    assert (settings.host_mib, settings.l3) == (None, "none")


def test_a_host_tier_of_nothing_is_refused_with_what_to_do() -> None:
    for nothing in (0, "0", -3):
        said = refused({"host_mib": nothing}, NOWHERE)
        assert (
            said
            == f"host_mib (flag --host-mib): must be more than 0; for no host tier leave it out, not {nothing!r}"
        )


def test_a_backend_that_does_not_exist_is_refused_and_those_that_do_are_named() -> None:
    said = refused({}, {"AGENTCACHE_L3": "s3"})
    assert said.startswith("l3 (env AGENTCACHE_L3)")
    for backend in ("none", "file", "redis", "mooncake", "memory"):
        assert repr(backend) in said


def test_store_goes_to_its_folder_and_a_tilde_is_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert TierSettings(l3="file").l3_folder == tmp_path / ".cache/agentcache/file"
    assert TierSettings(l3="redis").l3_folder == tmp_path / ".cache/agentcache/redis"
    assert TierSettings(l3="file", l3_path="~/mine").l3_folder == tmp_path / "mine"
    assert TierSettings(l3="file", l3_path="here").l3_folder == Path("here")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"l3_path": "x"}, "l3 is none; leave l3_path out"),
        ({"l3": "file", "l3_path": "a\0b"}, "printable characters only"),
        ({"l3": "redis", "l3_url": "redis://\ud800"}, "printable characters only"),
        ({"l3": "file", "l3_path": "~nobody-of-that-name/x"}, "no such home folder"),
        ({"l3": "memory", "l3_path": "x"}, "l3 is memory; leave l3_path out"),
        ({"l3_url": "redis://localhost"}, "l3 is none; leave l3_url out"),
        ({"l3": "file", "l3_url": "redis://localhost"}, "l3 is file; leave l3_url out"),
        ({"l3": "redis", "l3_url": "redis://localhost", "l3_path": "x"}, "leave one of them out"),
        ({"l3": "redis", "l3_url": "localhost:6379"}, "must look like redis://HOST:PORT/DB"),
        ({"l3": "mooncake", "l3_url": "localhost"}, "must be HOST:PORT of its master"),
        ({"l3": "mooncake", "l3_url": "tcp://localhost:1"}, "must be HOST:PORT of its master"),
    ],
)
def test_what_the_store_has_no_use_for_is_refused(flags: dict[str, object], said: str) -> None:
    assert said in refused(flags, NOWHERE)


@pytest.mark.parametrize(
    "flags",
    [
        {"l3": "redis", "l3_url": "redis://:secret@localhost:6379/3"},
        {"l3": "redis", "l3_url": "unix:///run/valkey.sock"},
        {"l3": "redis", "l3_path": "data"},
        {"l3": "mooncake", "l3_path": "logs", "l3_url": "localhost:50051"},
        {"l3": "mooncake", "l3_url": "[::1]:50051"},
        {"l3": "file", "host_mib": "0.5", "write_policy": "write_back", "prefetch_timeout_s": 0},
    ],
)
def test_stores_and_tiers_that_go_together_are_taken(flags: dict[str, object]) -> None:
    assert resolve(flags, NOWHERE).settings.l3 == flags["l3"]


def test_another_store_keeps_everything_but_the_store() -> None:
    tiers = Settings(host_mib=3, l3="file", l3_path="x", l3_mib=7, l3_deadline_s=9)
    changed = other_store(tiers, {"l3": "redis", "l3_url": "redis://localhost"}, {})
    assert changed == TierSettings(host_mib=3, l3="redis", l3_url="redis://localhost", l3_deadline_s=9)


def test_another_store_that_cannot_be_is_refused_with_the_words_of_the_request() -> None:
    with pytest.raises(CacheError) as caught:
        other_store(TierSettings(), {"l3": "s3"}, {"l3": "the request's backend"})
    assert caught.value.kind is Kind.BAD_CONFIG
    assert caught.value.message.startswith("l3 (the request's backend)")


def test_a_password_is_not_shown() -> None:
    assert without_password("redis://me:secret@localhost:1/0") == "redis://me:***@localhost:1/0"
    assert without_password("redis://:secret@localhost") == "redis://:***@localhost"
    assert without_password("localhost:50051") == "localhost:50051"
    for broken in ("me:secret@localhost", "http://me:secret@localhost"):
        assert "secret" not in refused({"l3": "redis", "l3_url": broken}, NOWHERE)

"""Settings: precedence, origins, and one clear error for each fault."""

from pathlib import Path

import pytest

from agentcache.config import DEFAULT_FILE, Resolved, Settings, resolve
from agentcache.errors import CacheError, Kind

NOWHERE: dict[str, str] = {}


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(flags: dict[str, object], environ: dict[str, str], file: Path | None = None) -> str:
    with pytest.raises(CacheError) as caught:
        resolve(flags, environ, file)
    assert caught.value.kind is Kind.BAD_CONFIG
    return caught.value.message


def at_port(resolved: Resolved) -> tuple[int, str]:
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
    ],
)
def test_value_out_of_range_is_refused(name: str, value: object) -> None:
    assert refused({name: value}, NOWHERE).startswith(f"{name} (flag --{name.replace('_', '-')})")

"""The role of a worker as a setting: where it can be said, and what it needs."""

import sys
from pathlib import Path

import pytest

from agentcache import cli
from agentcache.config import Settings, resolve
from agentcache.errors import CacheError, Kind
from agentcache.resolving import DEFAULT_FILE

NEEDED = {"l3": "file", "router_dir": "here"}


@pytest.fixture(autouse=True)
def _clean_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CONFIG", *map(str.upper, Settings.model_fields)):
        monkeypatch.delenv(f"AGENTCACHE_{name}", raising=False)


def refused(**flags: object) -> str:
    with pytest.raises(CacheError) as caught:
        resolve(flags, {})
    assert caught.value.kind is Kind.BAD_CONFIG
    return caught.value.message


def test_a_worker_does_both_unless_it_is_told(tmp_path: Path) -> None:
    assert resolve({}, {}).settings.role == "both"
    (tmp_path / DEFAULT_FILE).write_text('role = "prefill"\n')
    environ = {"AGENTCACHE_ROLE": "decode"}
    for flags, variables, role in (
        ({}, {}, "prefill"),
        ({}, environ, "decode"),
        ({"role": "both"}, environ, "both"),
    ):
        assert resolve({**NEEDED, **flags}, variables).settings.role == role


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize("l3", ["none", "memory"])
def test_a_role_needs_a_store_that_workers_share(role: str, l3: str) -> None:
    said = refused(role=role, l3=l3, router_dir="here")
    assert f"role {role} hands prompts from one worker to another through an external store" in said
    assert f"l3 is {l3}; name one with l3 (file, redis or mooncake), or leave role out" in said
    assert "\n" not in said


def test_a_role_needs_a_router() -> None:
    said = refused(role="prefill", l3="file")
    assert "role prefill is for routers; name one with router_dir or redis_url, or leave role out" in said


def test_a_decode_worker_waits_for_what_was_computed_for_it() -> None:
    said = refused(role="decode", prefetch="best_effort", **NEEDED)
    assert "prefetch is timeout or wait_complete there" in said
    assert resolve({"role": "prefill", "prefetch": "best_effort", **NEEDED}, {}).settings.role == "prefill"


def test_another_role_is_refused() -> None:
    assert "role" in refused(role="encode", **NEEDED)


def test_serve_says_what_a_role_needs_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["agentcache", "serve", "--role", "prefill", "--router-dir", "here"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert "name one with l3 (file, redis or mooncake)" in err
    assert (out, "Traceback" in err) == ("", False)

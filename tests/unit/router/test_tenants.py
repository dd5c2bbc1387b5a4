"""API keys: which tenant a request is of, and what a file of tenants must look like."""

import hashlib
from pathlib import Path

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.router.tenants import (
    EVERYBODY,
    OPEN_SESSION_LIMIT,
    SESSION_LIMIT,
    VARIABLE,
    Tenant,
    Tenants,
    load_tenants,
)
from agentcache.web.headers import RequestHeaders
from tests.house.source import ROOT

ACME, BETA = "sk-acme-0001", "sk-beta-0001"
DIGEST = hashlib.sha256(BETA.encode()).hexdigest()
TWO = f"""
[[tenant]]
name = "acme"
keys = ["{ACME}", "sk-acme-0002"]
session_limit = 3

[[tenant]]
name = "beta"
keys = ["sha256:{DIGEST}"]
"""


def headers(**said: str) -> RequestHeaders:
    return RequestHeaders([(name.replace("_", "-").encode(), value.encode()) for name, value in said.items()])


def bearer(key: str) -> RequestHeaders:
    return headers(authorization=f"Bearer {key}")


def from_text(tmp_path: Path, text: str, admin: str = "") -> Tenants:
    file, admin_file = tmp_path / "tenants.toml", tmp_path / "admin"
    file.write_text(text)
    admin_file.write_text(admin)
    return load_tenants(str(file), "", str(admin_file) if admin else "")


def fault(tmp_path: Path, text: str) -> str:
    with pytest.raises(CacheError) as caught:
        from_text(tmp_path, text)
    assert caught.value.kind is Kind.BAD_CONFIG
    assert str(tmp_path / "tenants.toml") in caught.value.message
    return caught.value.message


def refusal(tenants: Tenants, sent: RequestHeaders) -> str:
    with pytest.raises(CacheError) as caught:
        tenants.authenticate(sent)
    assert caught.value.kind is Kind.UNAUTHORIZED
    return caught.value.message


def test_without_tenants_everybody_is_one_whatever_key_is_sent() -> None:
    tenants = load_tenants("", "")
    for sent in (headers(), bearer("EMPTY"), headers(x_api_key="any")):
        assert tenants.authenticate(sent) == EVERYBODY == Tenant("default", OPEN_SESSION_LIMIT)
    assert tenants.names == ("default",)
    tenants.require_admin(headers())


def test_a_key_names_its_tenant_in_clear_or_hashed(tmp_path: Path) -> None:
    tenants = from_text(tmp_path, TWO)
    assert tenants.names == ("acme", "beta")
    assert tenants.authenticate(bearer(ACME)) == Tenant("acme", 3)
    assert tenants.authenticate(headers(authorization="bearer   sk-acme-0002")) == Tenant("acme", 3)
    assert tenants.authenticate(headers(x_api_key=BETA)) == Tenant("beta", SESSION_LIMIT)


@pytest.mark.parametrize(
    "sent", [headers(), headers(authorization="Basic abc"), headers(authorization="Bearer ")]
)
def test_no_key_is_refused_and_told_how_to_send_one(tmp_path: Path, sent: RequestHeaders) -> None:
    assert "x-api-key" in refusal(from_text(tmp_path, TWO), sent)


@pytest.mark.parametrize("key", ["wrong", ACME[:-1], ACME + " x", ACME.upper(), DIGEST, f"sha256:{DIGEST}"])
def test_a_key_that_nobody_has_is_refused_and_not_shown(tmp_path: Path, key: str) -> None:
    assert key not in refusal(from_text(tmp_path, TWO), bearer(key))


def test_of_two_keys_the_known_one_counts_unless_both_are(tmp_path: Path) -> None:
    tenants = from_text(tmp_path, TWO)
    assert tenants.authenticate(headers(authorization="Bearer x", x_api_key=BETA)).name == "beta"
    assert tenants.authenticate(headers(authorization=f"Bearer {ACME}", x_api_key="x")).name == "acme"
    assert (
        tenants.authenticate(headers(authorization=f"Bearer {ACME}", x_api_key="sk-acme-0002")).name == "acme"
    )
    assert "two tenants" in refusal(tenants, headers(authorization=f"Bearer {ACME}", x_api_key=BETA))


def test_tenants_from_the_environment() -> None:
    tenants = load_tenants("", f" acme = {ACME}, sk-acme-0002 ; beta=sha256:{DIGEST};")
    assert tenants.authenticate(bearer("sk-acme-0002")) == Tenant("acme", SESSION_LIMIT)
    assert tenants.authenticate(bearer(BETA)).name == "beta"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (";", "names no tenant"),
        ("acme", "NAME=KEY"),
        ("a b=12345678", "letters"),
        ("acme=short", "8 to 512"),
        ("acme=", "8 to 512"),
        (f"acme={ACME};acme=sk-acme-0003", "twice"),
        (f"acme={ACME};beta={ACME}", "acme has already"),
    ],
)
def test_what_is_wrong_with_the_variable(text: str, said: str) -> None:
    with pytest.raises(CacheError, match=said) as caught:
        load_tenants("", text)
    assert caught.value.kind is Kind.BAD_CONFIG
    assert VARIABLE in caught.value.message
    assert ACME not in caught.value.message


def test_a_file_and_a_variable_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="leave one of them out"):
        load_tenants(str(tmp_path / "tenants.toml"), "acme=12345678")


def entry(name: str = '"acme"', keys: str = '["12345678"]', more: str = "") -> str:
    return f"[[tenant]]\nname = {name}\nkeys = {keys}\n{more}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[tenant]\nname=1", "line 1"),
        ('[[tenant]]\nname = "a\nkeys', "line 2"),
        ("", "names no tenant"),
        ("tenant = 3", "names no tenant"),
        ("tenant = [3]", "tenant 1: must be a table"),
        ("tenants = []", "has tenants"),
        (entry(name="7"), "name must be text"),
        (entry(name='"a/b"'), "tenant 1, name: "),
        (entry(name='""'), "tenant 1, name: "),
        (entry(keys='"12345678"'), "keys must be a list"),
        (entry(keys="[]"), "at least one key"),
        (entry(keys='["12345678", 5]'), r"(acme), keys[1]: must be text"),
        (entry(keys='["has blank 1"]'), "no blanks"),
        (entry(keys='["sha256:abc"]'), "64 hexadecimal digits"),
        (entry(more="session_limit = -1"), "session_limit"),
        (entry(more="session_limit = true"), "session_limit"),
        (entry(more="limit = 1"), "no field 'limit'"),
        (entry(more='hints = "no"'), "hints must be true or false"),
        (entry(more="hints = 0"), "hints must be true or false"),
        (entry() + entry(keys='["abcdefgh"]'), "tenant 2 (acme): is there twice"),
        (entry() + entry(name='"beta"'), "tenant 2 (beta): has a key that acme has already"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    assert said in fault(tmp_path, text)


def test_a_hashed_key_and_the_same_in_clear_are_one_key(tmp_path: Path) -> None:
    assert "already" in fault(tmp_path, TWO + entry(name='"gamma"', keys=f'["{BETA}"]'))


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="cannot be read"):
        load_tenants(str(tmp_path / "none.toml"), "")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(CacheError, match="not UTF-8"):
        load_tenants(str(tmp_path / "bytes.toml"), "")


def test_any_number_of_sessions_is_a_limit_of_0(tmp_path: Path) -> None:
    tenants = from_text(tmp_path, entry(more="session_limit = 0"))
    assert tenants.authenticate(bearer("12345678")).session_limit == 0


@pytest.mark.parametrize(("more", "heard"), [("", True), ("hints = true", True), ("hints = false", False)])
def test_a_tenant_is_heard_on_its_waits_unless_the_file_says_no(
    tmp_path: Path, more: str, heard: bool
) -> None:
    tenants = from_text(tmp_path, entry(more=more))
    assert tenants.authenticate(bearer("12345678")).hints is heard


def test_the_operator_has_a_key_of_its_own(tmp_path: Path) -> None:
    tenants = from_text(tmp_path, TWO, admin="  sk-admin-0001\n")
    tenants.require_admin(bearer("sk-admin-0001"))
    tenants.require_admin(headers(x_api_key="sk-admin-0001"))
    for sent in (headers(), bearer(ACME)):
        with pytest.raises(CacheError, match="for the operator"):
            tenants.require_admin(sent)
    refusal(tenants, bearer("sk-admin-0001"))


def test_with_tenants_and_no_admin_key_nobody_is_the_operator(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="--admin-key-file"):
        from_text(tmp_path, TWO).require_admin(bearer(ACME))


def test_an_admin_key_holds_without_tenants_too(tmp_path: Path) -> None:
    (tmp_path / "admin").write_text("sk-admin-0001")
    tenants = load_tenants("", "", str(tmp_path / "admin"))
    assert tenants.authenticate(headers()) == EVERYBODY
    with pytest.raises(CacheError):
        tenants.require_admin(headers())


@pytest.mark.parametrize("written", [None, "short"])
def test_an_admin_key_that_is_none(tmp_path: Path, written: str | None) -> None:
    file = tmp_path / "admin"
    if written:
        file.write_text(written)
    with pytest.raises(CacheError) as caught:
        load_tenants("", "", str(file))
    assert caught.value.kind is Kind.BAD_CONFIG


def test_the_page_shows_a_file_that_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "router.md").read_text(encoding="utf-8")
    tenants = from_text(tmp_path, page.split("```toml\n")[1].split("```")[0])
    assert tenants.names == ("acme", "beta")
    assert tenants.authenticate(bearer("sk-beta-0001")) == Tenant("beta", SESSION_LIMIT)
    assert tenants.authenticate(bearer("test")) == tenants.authenticate(bearer(ACME))


def test_files_may_be_named_from_ones_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "tenants.toml").write_text(TWO)
    (tmp_path / "admin").write_text("sk-admin-0001")
    tenants = load_tenants("~/tenants.toml", "", "~/admin")
    tenants.require_admin(bearer("sk-admin-0001"))
    assert tenants.names == ("acme", "beta")

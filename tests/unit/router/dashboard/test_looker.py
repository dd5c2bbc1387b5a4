"""Who may look: whoever may ask for `/v1/workers`, a browser with the key as password."""

import base64
from pathlib import Path

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.router.dashboard.looker import require_operator
from agentcache.router.tenants import Tenants, load_tenants
from agentcache.web.headers import RawHeaders

KEY = "operator-key"


@pytest.fixture
def tenants(tmp_path: Path) -> Tenants:
    key = tmp_path / "key"
    key.write_text(KEY)
    return load_tenants("", "acme=sk-acme-0001", str(key))


def sent(value: bytes) -> RawHeaders:
    return [(b"host", b"router"), (b"authorization", value)]


def basic(pair: bytes) -> bytes:
    return b"Basic " + base64.b64encode(pair)


@pytest.mark.parametrize(
    "value",
    [
        b"Bearer operator-key",
        basic(b"anybody:operator-key"),
        basic(b":operator-key"),
        b"basic  " + base64.b64encode(b"a:operator-key"),
    ],
)
def test_the_operator_passes(tenants: Tenants, value: bytes) -> None:
    require_operator(tenants, sent(value))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"Basic",
        b"Basic not!base64",
        basic(b"operator-key"),
        basic(b"operator-key:"),
        basic(b"a:operator-key:more"),
        basic(b"a:sk-acme-0001"),
        b"Bearer sk-acme-0001",
        b"Digest operator-key",
    ],
)
def test_nobody_else_passes(tenants: Tenants, value: bytes) -> None:
    with pytest.raises(CacheError) as refused:
        require_operator(tenants, sent(value))
    assert refused.value.kind is Kind.UNAUTHORIZED


def test_anybody_passes_where_there_are_no_keys() -> None:
    require_operator(load_tenants("", ""), [])


def test_nobody_passes_where_there_are_tenants_and_no_operator() -> None:
    with pytest.raises(CacheError, match="--admin-key-file"):
        require_operator(load_tenants("", "acme=sk-acme-0001"), sent(basic(b"a:sk-acme-0001")))

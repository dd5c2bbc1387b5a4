"""Whatever headers and fields a request has, they are one identity or one clear refusal."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentcache.errors import CacheError, Kind
from agentcache.ids import checked_id
from agentcache.router.forwarding import header_value
from agentcache.router.identity import Identity, identify
from agentcache.router.sender_names import TABLE, Place
from agentcache.web.fields import Fields
from agentcache.web.headers import RequestHeaders

NAMES = [row.name for row in TABLE if row.place is Place.HEADER]
OURS = [
    f"x-agentcache-{name}"
    for name in ("session", "parent", "generation", "strict", "superseded", "expected-s")
]
VALUES = st.one_of(
    st.binary(max_size=300), st.sampled_from([b"", b"a", b"b", b"a/b", b"1", b"0", b"true", b" a "])
)
HEADERS = st.lists(st.tuples(st.sampled_from(NAMES + OURS), VALUES), max_size=12)
FIELDS = sorted({part for row in TABLE if row.place is Place.BODY for part in row.name.split(".")})
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=12)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(FIELDS), inner)),
    max_leaves=12,
)


@given(HEADERS, st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_whatever_is_sent_is_an_identity_or_one_clear_refusal(
    headers: list[tuple[str, bytes]], body: dict[str, Any]
) -> None:
    raw = RequestHeaders([(name.encode(), value) for name, value in headers])
    found = outcome(raw, body)
    if isinstance(found, CacheError):
        assert found.kind in (Kind.BAD_REQUEST, Kind.BAD_SESSION_ID)
        assert str(found.facts["param"]).startswith(("x-agentcache-", "session_id"))
        return
    for name in filter(None, (found.session, found.parent, found.family)):
        assert checked_id(name) == name
        assert header_value(name) == name.encode()  # what an answer says is what the session is called
    assert bool(found.session) == bool(found.source)
    assert found.parent != found.session or not found.session
    assert not (found.parent or found.parent_bad or found.final) or found.session
    assert found.said.isascii()
    assert outcome(raw, body) == found


def outcome(headers: RequestHeaders, body: dict[str, Any]) -> Identity | CacheError:
    try:
        return identify(headers, Fields(body))
    except CacheError as error:
        return error

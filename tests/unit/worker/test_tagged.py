"""The gate: whom it lets in, how often, and what it remembers of it."""

from dataclasses import replace

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.types import SessionId
from agentcache.web.headers import RequestHeaders
from agentcache.wire import TAG_VALID_S, TagSigner
from agentcache.worker.tagged import EVERYBODY, OPEN_GATE, Grant, TagGate, UsedTags
from tests.tagging import SECRET, Tagging


def sent(headers: dict[str, str]) -> RequestHeaders:
    return RequestHeaders([(name.encode(), value.encode()) for name, value in headers.items()])


def refused(said: str) -> pytest.RaisesExc[CacheError]:
    return pytest.RaisesExc(CacheError, match=said, check=lambda error: error.kind is Kind.UNAUTHORIZED)


@pytest.fixture
def tagging() -> Tagging:
    return Tagging()


@pytest.fixture
def gate(tagging: Tagging) -> TagGate:
    return TagGate(TagSigner(SECRET), "w1", tagging.now_ms, url=tagging.url)


def test_a_tag_lets_in_once(gate: TagGate, tagging: Tagging) -> None:
    headers = sent(tagging.headers("s", 7))
    assert gate.admit(headers).tag == Tagging().tag("s", 7)
    with refused("used before"):
        gate.admit(headers)
    with refused("used before"):
        gate.manage(headers, "/v1/sessions")


def test_a_tag_lets_in_while_it_is_valid(gate: TagGate, tagging: Tagging) -> None:
    old, older = sent(tagging.headers("s", 7)), sent(tagging.headers("s", 7))
    tagging.now += TAG_VALID_S * 1000
    gate.admit(old)
    tagging.now += 1
    with refused("older than"):
        gate.admit(older)
    tagging.now -= 2 * TAG_VALID_S * 1000 + 2  # the router's clock is ahead
    with refused("compare the machines' clocks"):
        gate.admit(older)


def test_what_was_not_signed_here_and_for_here_stays_out(gate: TagGate, tagging: Tagging) -> None:
    with refused("through the router|to a router"):
        gate.admit(sent({}))
    with refused("another worker"):
        gate.admit(sent(tagging.headers("s", 7, worker="w2")))
    stranger = Tagging(signer=TagSigner(b"x" * 32))
    with refused("was not signed"):
        gate.admit(sent(stranger.headers("s", 7)))
    with refused("is no tag"):
        gate.admit(sent({"x-agentcache-tag": "{}"}))
    with refused("from its routers only"):
        gate.admit(sent(tagging.operator()))  # operators manage, and do not generate


def test_every_byte_of_a_tag_counts(gate: TagGate, tagging: Tagging) -> None:
    whole = tagging.headers("s", 7)["x-agentcache-tag"]
    for at in range(0, len(whole), 7):
        other = "A" if whole[at] != "A" else "B"
        with refused("tag of this request"):
            gate.admit(sent({"x-agentcache-tag": whole[:at] + other + whole[at + 1 :]}))
    gate.admit(sent({"x-agentcache-tag": whole}))  # a refused one uses nothing up


def test_a_tag_is_for_one_life_of_a_worker(tagging: Tagging) -> None:
    """What a worker has seen it forgets with its end: a tag of before could be a replay."""
    signer, headers = (
        TagSigner(SECRET),
        [sent(tagging.headers("s", 7, incarnation=name)) for name in ("1", "2", "")],
    )
    gate = TagGate(signer, "w1", tagging.now_ms, incarnation="2")
    assert gate.admit(headers[1]).tag
    for other in (headers[0], headers[2]):
        with pytest.raises(CacheError, match="before its last start") as late:
            gate.admit(other)
        assert late.value.kind is Kind.NO_WORKER


def test_operators_manage_and_tenants_do_not_empty_caches(gate: TagGate, tagging: Tagging) -> None:
    for path in ("/v1/sessions", "/flush_cache", "/v1/cache/external", "/tokenize"):
        assert gate.manage(sent(tagging.operator()), path) == Grant(operator=True)
        with refused("operator's token"):
            gate.manage(sent({}), path)
        with refused("operator's token"):
            gate.manage(sent({"authorization": "Bearer " + "0" * 64}), path)
        for elsewhere in (replace(tagging, worker="w2"), replace(tagging, url="http://127.0.0.1:9")):
            with refused("operator's token"):
                gate.manage(sent(elsewhere.operator()), path)
    assert gate.manage(sent(tagging.headers()), "/v1/sessions/s").tag
    for path in ("/flush_cache", "/v1/cache", "/v1/cache/external"):
        with refused("operator's token"):
            gate.manage(sent(tagging.headers()), path)


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/v1/models", "/v1/models/tiny"])
def test_probes_are_open(gate: TagGate, path: str) -> None:
    assert gate.manage(sent({}), path) is EVERYBODY


@pytest.mark.parametrize("path", ["/healthy", "/v1/modelsx", "/", "/anything"])
def test_nothing_else_is(gate: TagGate, path: str) -> None:
    with refused("operator's token"):
        gate.manage(sent({}), path)


def test_without_a_secret_a_tag_is_a_header_like_any_other(tagging: Tagging) -> None:
    assert OPEN_GATE.admit(sent(tagging.headers("s", 7))) is OPEN_GATE.manage(sent({}), "/flush_cache")


def test_a_tenants_words_are_its_own() -> None:
    grant = Grant(Tagging().tag("s", 7))
    inside = grant.session("a/b", "session_id")
    assert (inside, grant.own(inside)) == ("acme/a/b", "a/b")
    assert grant.shows(inside)
    assert not grant.shows(SessionId("acme2/a/b"))
    told = grant.in_own_words(CacheError(Kind.SESSION_STALE, "no", session=inside, current=3))
    assert told.facts == {"session": "a/b", "current": 3}
    assert Grant(operator=True).session("acme/a/b", "session_id") == inside
    with pytest.RaisesExc(CacheError, check=lambda error: error.kind is Kind.BAD_SESSION_ID):
        grant.session("x" * 257, "session_id")


# memory


def test_used_tags_are_forgotten_when_they_are_no_longer_valid(tagging: Tagging) -> None:
    used = UsedTags(limit=100)
    for _ in range(10):
        used.take(tagging.tag(), tagging.now)
    tagging.now += TAG_VALID_S * 1000
    used.take(tagging.tag(), tagging.now)
    assert len(used) == 11
    tagging.now += 1
    used.take(tagging.tag(), tagging.now)
    assert len(used) == 2


def test_what_had_to_be_forgotten_too_early_is_not_believed_again(tagging: Tagging) -> None:
    used = UsedTags(limit=2)
    taken = []
    for _ in range(3):
        taken.append(tagging.tag())
        used.take(taken[-1], tagging.now)
        tagging.now += 1
    assert len(used) == 2
    with refused("older than what this busy worker remembers"):
        used.take(taken[0], tagging.now)
    with refused("used before"):
        used.take(taken[1], tagging.now)
    used.take(tagging.tag(), tagging.now)

"""Which session a request belongs to: every row of the table, precedence, conflicts, sub-agents, hints."""

import itertools
import re
from typing import Any

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.router.identity import Identity, identify
from agentcache.router.sender_names import TABLE, Place, Role, Row
from agentcache.web.fields import Fields
from agentcache.web.headers import RequestHeaders
from tests.house.source import ROOT

OWN = "x-agentcache-session"
SESSIONS = [row for row in TABLE if row.role is Role.SESSION]
PARENTS = [row for row in TABLE if row.role is Role.PARENT]
STRICT_ROW = "session_id"
LONG = "x" * 257


def identity(*headers: tuple[str, str], body: dict[str, Any] | None = None) -> Identity:
    raw = [(name.encode(), value.encode("utf-8")) for name, value in headers]
    return identify(RequestHeaders(raw), Fields(body or {}))


def sent(*said: tuple[Row, Any]) -> Identity:
    """The identity of a request with these rows."""
    headers = [(row.name, str(value)) for row, value in said if row.place is Place.HEADER]
    body: dict[str, Any] = {}
    for row, value in said:
        if row.place is Place.BODY:
            _put(body, row.name.split("."), value)
    return identity(*headers, body=body)


def _put(body: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        body = body.setdefault(name, {})
    body[path[-1]] = value


def named(row: Row) -> str:
    return row.name


def refusal(*headers: tuple[str, str], body: dict[str, Any] | None = None) -> tuple[Kind, object]:
    with pytest.raises(CacheError) as caught:
        identity(*headers, body=body)
    return caught.value.kind, caught.value.facts.get("param")


def row_of(name: str) -> Row:
    return next(row for row in TABLE if row.name == name)


def test_a_request_that_says_nothing_has_no_session() -> None:
    assert identity() == Identity()
    assert identity().said == "no session id"


@pytest.mark.parametrize("row", SESSIONS, ids=named)
def test_every_session_row_gives_the_session_and_says_so(row: Row) -> None:
    found = sent((row, "s-1"))
    assert (found.session, found.source, found.ignored) == ("s-1", row.name, ())
    assert found.said == f"id from {row.name}"


@pytest.mark.parametrize("row", [row for row in TABLE if row.place is Place.HEADER], ids=named)
def test_names_are_read_in_any_case_and_with_underscores(row: Row) -> None:
    base = () if row.role is Role.SESSION else ((OWN, "s"),)
    exact = identity((row.name, "true"), *base)
    assert identity((row.name.title(), "true"), *base) == exact
    assert identity((row.name.replace("-", "_").upper(), "true"), *base) == exact


@pytest.mark.parametrize(
    ("first", "second"), list(itertools.pairwise(SESSIONS)), ids=lambda row: row.name.split(".")[-1]
)
def test_of_two_rows_the_first_is_taken(first: Row, second: Row) -> None:
    assert (sent((second, "b"), (first, "a")).session) == "a"


@pytest.mark.parametrize("row", [row for row in SESSIONS if row.name != STRICT_ROW], ids=named)
def test_our_own_header_comes_before_every_row(row: Row) -> None:
    body: dict[str, Any] = {}
    if row.place is Place.BODY:
        _put(body, row.name.split("."), "other")
    headers = [(row.name, "other")] if row.place is Place.HEADER else []
    found = identity((OWN, "mine"), *headers, body=body)
    assert (found.session, found.source) == ("mine", OWN)


@pytest.mark.parametrize("row", [row for row in SESSIONS if row.name != STRICT_ROW], ids=named)
@pytest.mark.parametrize(
    "bad",
    [LONG, "a\x00b", "a\N{LINE SEPARATOR}z", "a\N{RIGHT-TO-LEFT OVERRIDE}z", "a\N{NO-BREAK SPACE}z"],
    ids=["long", "control", "separator", "bidi", "blank"],
)
def test_what_others_malform_is_ignored_and_named_and_the_next_row_is_taken(row: Row, bad: str) -> None:
    fallback = SESSIONS[-1] if row is not SESSIONS[-1] else SESSIONS[0]
    found = sent((row, bad), (fallback, "good"))
    assert (found.session, found.source) == ("good", fallback.name)
    assert [name.split(" (")[0] for name in found.ignored] == [row.name]
    assert f"ignored {row.name} (" in found.said


@pytest.mark.parametrize("row", [row for row in SESSIONS if row.name != STRICT_ROW], ids=named)
def test_blanks_around_others_ids_are_trimmed_and_a_blank_one_is_none(row: Row) -> None:
    assert sent((row, "  s \t")).session == "s"
    assert sent((row, "   ")) == Identity()


@pytest.mark.parametrize(
    "row", [row for row in SESSIONS if row.place is Place.BODY and row.name != STRICT_ROW], ids=named
)
@pytest.mark.parametrize("value", [7, True, ["s"], {"id": "s"}, 1.5])
def test_others_fields_of_a_wrong_type_are_ignored(row: Row, value: Any) -> None:
    found = sent((row, value))
    assert (found.session, found.ignored) == ("", (f"{row.name} (is no string)",))


@pytest.mark.parametrize("container", ["vllm_xargs", "nvext", "agent_context", "metadata"])
@pytest.mark.parametrize("value", [None, "text", 3, [], {"agent_context": "text"}])
def test_containers_of_any_shape_are_read(container: str, value: Any) -> None:
    assert identity(body={container: value}).session == ""


@pytest.mark.parametrize(
    "headers",
    [
        [("x-session-id", "a"), ("X-Session-ID", "b")],
        [("x-session-id", "a"), ("x_session_id", "b")],
    ],
)
def test_a_header_of_others_that_contradicts_itself_is_ignored(headers: list[tuple[str, str]]) -> None:
    found = identity(*headers, ("x-session-affinity", "c"))
    assert (found.session, found.ignored[0].split(" (")[0]) == ("c", "x-session-id")


def test_a_header_of_others_that_is_not_utf8_is_ignored() -> None:
    headers = RequestHeaders([(b"x-session-id", b"\xff\xfe"), (b"x-session-affinity", b"c")])
    assert identify(headers, Fields({})).session == "c"


def test_an_mcp_session_is_never_read() -> None:
    assert identity(("Mcp-Session-Id", "tool")) == Identity()
    assert identity(("Mcp-Session-Id", LONG)).ignored == ()


# our own names are the client's word: strictly read


def test_our_header_and_the_body_must_agree() -> None:
    assert identity((OWN, "a"), body={"session_id": "a"}).source == OWN
    assert refusal((OWN, "a"), body={"session_id": "b"}) == (Kind.BAD_REQUEST, "session_id")


def test_our_header_sent_twice_must_say_the_same() -> None:
    assert identity((OWN, "a"), (OWN, "a")).session == "a"
    assert refusal((OWN, "a"), (OWN, "b")) == (Kind.BAD_REQUEST, OWN)


@pytest.mark.parametrize("bad", ["", " ", LONG, "a\x01"])
def test_what_is_no_id_in_our_own_header_is_refused(bad: str) -> None:
    assert refusal((OWN, bad)) == (Kind.BAD_SESSION_ID, OWN)


@pytest.mark.parametrize("bad", ["", " a", LONG, "a\nb"])
@pytest.mark.parametrize("headers", [(), (("x-session-id", "good"),), ((OWN, "good"),)])
def test_what_is_no_id_in_the_body_is_refused_whoever_else_names_one(bad: str, headers: Any) -> None:
    assert refusal(*headers, body={"session_id": bad}) == (Kind.BAD_SESSION_ID, "session_id")


@pytest.mark.parametrize("value", [7, True, ["s"], {}])
def test_a_body_session_of_a_wrong_type_is_refused(value: Any) -> None:
    assert refusal(body={"session_id": value}) == (Kind.BAD_REQUEST, "session_id")


def test_a_null_session_in_the_body_is_none() -> None:
    assert identity(body={"session_id": None}) == Identity()


def test_the_longest_id_and_any_script_pass_unchanged() -> None:
    for session in ("x" * 256, "sëssion/één", "a b", "%2F|:"):
        assert identity((OWN, session)).session == session


def test_a_fence_needs_a_session_by_whatever_name() -> None:
    assert identity(("x-agentcache-generation", "7"), ("x-session-id", "s")).fence == 7
    assert refusal(("x-agentcache-generation", "7")) == (Kind.BAD_REQUEST, "x-agentcache-generation")
    assert identity((OWN, "s")).fence is None


@pytest.mark.parametrize("bad", ["x", "-1", "1.0", "9" * 20, "٣"])
def test_what_is_no_generation_is_refused(bad: str) -> None:
    assert refusal((OWN, "s"), ("x-agentcache-generation", bad))[1] == "x-agentcache-generation"


@pytest.mark.parametrize(("text", "seconds"), [("", 0.0), ("0", 0.0), ("2.5", 2.5), ("1e3", 1000.0)])
def test_when_the_session_is_expected_back(text: str, seconds: float) -> None:
    assert identity((OWN, "s"), ("x-agentcache-expected-s", text)).expected_s == seconds


@pytest.mark.parametrize("bad", ["soon", "nan", "inf", "-1", "1e10"])
def test_what_is_no_time_is_refused(bad: str) -> None:
    assert refusal((OWN, "s"), ("x-agentcache-expected-s", bad)) == (
        Kind.BAD_REQUEST,
        "x-agentcache-expected-s",
    )


def test_strict_is_a_flag() -> None:
    assert identity((OWN, "s"), ("x-agentcache-strict", "1")).strict
    assert refusal((OWN, "s"), ("x-agentcache-strict", "yes"))[1] == "x-agentcache-strict"


# sub-agents and parents

CLAUDE = ("x-claude-code-session-id", "c")
AGENT = ("x-claude-code-agent-id", "a1")


def test_an_agent_of_claude_code_is_a_session_below_the_main_one() -> None:
    found = identity(CLAUDE, AGENT)
    assert (found.session, found.parent) == ("c/a1", "c")
    assert found.source == "x-claude-code-session-id + x-claude-code-agent-id"


def test_an_agent_of_an_agent_is_below_that_one() -> None:
    found = identity(CLAUDE, AGENT, ("x-claude-code-parent-agent-id", "reviewer@team"))
    assert (found.session, found.parent) == ("c/a1", "c/reviewer@team")


def test_a_parent_agent_says_nothing_without_an_agent() -> None:
    found = identity(CLAUDE, ("x-claude-code-parent-agent-id", "p"))
    assert (found.session, found.parent, found.parent_bad) == ("c", "", False)


def test_no_two_pairs_of_session_and_agent_are_one_session() -> None:
    ids = ["a", "b", "a/b", "b/a", "/", "a/", "/b", "a%2Fb", "%2F"]
    seen: dict[str, tuple[str, str]] = {}
    for session, agent in itertools.product(ids, ["", *ids]):
        found = identity(("x-claude-code-session-id", session), ("x-claude-code-agent-id", agent))
        taken = (session if found.session else "", "" if found.ignored else agent)
        assert seen.setdefault(found.session, taken) == taken
        assert ("/" in session + agent) == bool(found.ignored)


def test_an_agent_that_is_no_id_leaves_the_session() -> None:
    for agent in (LONG, "a/b", "x" * 255):
        found = identity(CLAUDE, ("x-claude-code-agent-id", agent))
        assert (found.session, found.parent, len(found.ignored)) == ("c", "", 1)


def test_an_agent_without_a_session_is_ignored() -> None:
    assert identity(AGENT).ignored == ("x-claude-code-agent-id (without a session)",)


def test_an_agent_counts_where_another_name_gives_the_same_session() -> None:
    """A gateway that copies the session into its own header does not merge the sub-agents."""
    assert identity(CLAUDE, AGENT, ("x-session-id", "c")).session == "c/a1"
    assert identity(CLAUDE, AGENT, ("x-session-id", "other")).session == "other"
    assert identity(CLAUDE, AGENT, (OWN, "c")).session == "c"


def test_an_agent_that_is_its_own_parent_has_a_bad_parent() -> None:
    found = identity(CLAUDE, AGENT, ("x-claude-code-parent-agent-id", "a1"))
    assert (found.session, found.parent, found.parent_bad) == ("c/a1", "", True)


def test_a_malformed_parent_agent_leaves_the_main_session_as_parent() -> None:
    found = identity(CLAUDE, AGENT, ("x-claude-code-parent-agent-id", LONG))
    assert (found.session, found.parent, len(found.ignored)) == ("c/a1", "c", 1)


@pytest.mark.parametrize("row", PARENTS, ids=named)
def test_every_parent_row_gives_the_parent_of_its_own_session_or_of_one_it_does_not_name(row: Row) -> None:
    session = next(other for other in SESSIONS if other.group == row.group)
    assert sent((session, "s"), (row, "p")).parent == "p"
    assert sent((SESSIONS[-1], "s"), (row, "p")).parent == "p"
    assert sent((row, "p")) == Identity()


@pytest.mark.parametrize("row", PARENTS, ids=named)
def test_a_parent_of_another_session_is_not_this_one_s(row: Row) -> None:
    session = next(other for other in SESSIONS if other.group == row.group)
    headers = [(OWN, "mine")]
    body: dict[str, Any] = {}
    for other, value in ((session, "s"), (row, "p")):
        if other.place is Place.HEADER:
            headers.append((other.name, value))
        elif other.name != STRICT_ROW:
            _put(body, other.name.split("."), value)
    found = identity(*headers, body=body)
    assert (found.session, found.parent, found.parent_bad) == ("mine", "", False)


@pytest.mark.parametrize("row", PARENTS, ids=named)
@pytest.mark.parametrize("bad", [LONG, "a\x02", "s"], ids=["long", "control", "itself"])
def test_a_bad_parent_never_voids_a_good_session(row: Row, bad: str) -> None:
    session = next(other for other in SESSIONS if other.group == row.group)
    found = sent((session, "s"), (row, bad))
    assert (found.session, found.parent, found.parent_bad) == ("s", "", True)


@pytest.mark.parametrize("values", [[""], [LONG], ["s"], ["p", "q"]])
def test_our_own_bad_parent_is_reported_and_voids_nothing(values: list[str]) -> None:
    headers = [("x-agentcache-parent", value) for value in values]
    found = identity((OWN, "s"), *headers, ("x-parent-session-id", "other"))
    assert (found.session, found.parent, found.parent_bad) == ("s", "", True)


def test_our_own_parent_comes_before_others() -> None:
    found = identity(CLAUDE, AGENT, ("x-agentcache-parent", "p"), ("x-parent-session-id", "q"))
    assert (found.session, found.parent, found.parent_bad) == ("c/a1", "p", False)


def test_codex_threads_are_sessions_and_the_parent_is_a_thread() -> None:
    found = identity(
        ("session-id", "root"),
        ("thread-id", "child"),
        ("x-codex-parent-thread-id", "root"),
        body={"prompt_cache_key": "root"},
    )
    assert (found.session, found.parent, found.family) == ("child", "root", "root")
    assert identity(("session_id", "old")).source == "session-id"


def test_opencode_names_one_session_three_times() -> None:
    same = [(name, "s") for name in ("x-session-affinity", "X-Session-Id", "x-opencode-session")]
    found = identity(*same, ("x-parent-session-id", "p"))
    assert (found.session, found.parent, found.source) == ("s", "p", "x-session-id")


# hints


@pytest.mark.parametrize("name", ["x-claude-code-compaction", "x-claude-code-context-compacted"])
@pytest.mark.parametrize(
    ("value", "said"), [("auto", True), ("manual", True), ("true", True), ("false", False), ("0", False)]
)
def test_a_compaction_supersedes(name: str, value: str, said: bool) -> None:
    assert identity(CLAUDE, (name, value)).superseded is said
    assert identity(CLAUDE, (name, value), ("x-agentcache-superseded", "0")).superseded is False


def test_superseded_is_our_own_flag_too() -> None:
    assert identity((OWN, "s"), ("x-agentcache-superseded", "1")).superseded
    assert not identity((OWN, "s")).superseded


@pytest.mark.parametrize("prefix", ["nvext.agent_context", "agent_context"])
def test_dynamo_s_context_in_the_body(prefix: str) -> None:
    said = {"session_id": "d", "parent_session_id": "p", "session_final": True, "compaction": True}
    found = sent(*((row_of(f"{prefix}.{name}"), value) for name, value in said.items()))
    assert (found.session, found.parent, found.final, found.superseded) == ("d", "p", True, True)


@pytest.mark.parametrize(("value", "final"), [("true", True), ("1", True), ("false", False), ("yes", False)])
def test_the_last_request_of_a_session_says_so_by_no_other_word(value: str, final: bool) -> None:
    assert identity(("x-dynamo-session-id", "d"), ("x-dynamo-session-final", value)).final is final


def test_a_last_request_of_another_session_ends_nothing() -> None:
    dynamo = (("x-dynamo-session-id", "d"), ("x-dynamo-session-final", "true"))
    assert not identity(("x-session-id", "s"), *dynamo).final
    assert not identity(dynamo[1]).final


def test_a_prompt_cache_key_is_a_family_and_no_session() -> None:
    found = identity(body={"prompt_cache_key": " root "})
    assert (found.session, found.family) == ("", "root")
    assert identity(body={"prompt_cache_key": LONG}).ignored[0].startswith("prompt_cache_key (")


# the table and its page


def test_no_name_stands_in_the_table_twice() -> None:
    names = [(row.place, row.name) for row in TABLE]
    assert len(set(names)) == len(names)
    assert all(row.name == row.name.lower() for row in TABLE)
    assert all("_" not in row.name for row in TABLE if row.place is Place.HEADER)


def test_the_page_lists_every_row_in_this_order() -> None:
    page = (ROOT / "docs" / "router.md").read_text(encoding="utf-8")
    section = page.split("<!-- identity -->")[1]
    said = re.findall(r"^\| `([^`]+)` \| (header|body) \| ([^|]+?) \|", section, re.M)
    assert said == [(row.name, str(row.place), str(row.role)) for row in TABLE]

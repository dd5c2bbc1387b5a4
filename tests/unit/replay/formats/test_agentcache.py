"""Our own form: nothing of a session is lost in it, and nothing in it is ignored."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcache.replay.formats.agentcache import AgentcacheReader, told
from agentcache.replay.readers import open_trace
from agentcache.replay.sources import Document
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Link, Place, Session
from agentcache.waits import WaitKind
from tests.traces import GOLDEN, complaint, golden, written

GOLDEN_LINES = (GOLDEN / "agentcache.jsonl").read_text(encoding="utf-8").splitlines()


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in GOLDEN_LINES]


def test_every_field_is_read() -> None:
    first, second = golden("agentcache.jsonl")
    facts = Facts(
        Gap(WaitKind.HUMAN, 1.5, measured=False),
        2,
        7,
        3,
        0,
        "tool_calls",
        "m",
        (("bash", 0.25), ("read", None)),
    )
    asked, answered = {"role": "user", "content": "T"}, {"role": "assistant", "content": "A"}
    assert first == Session(
        "a",
        (Call(0, (asked,), answered, facts=facts), Call(1)),
        f"{GOLDEN / 'agentcache.jsonl'}, line 1",
        among=Place(start_s=12.5, group="task"),
        tenant="t",
    )
    assert second == Session(
        "a/b",
        (Call(0, blocks=(4, 5, 6)), Call(2, blocks=(9,))),
        f"{GOLDEN / 'agentcache.jsonl'}, line 2",
        64,
        "s",
        Place("a", Link.FORK, 1),
        Hidden("tools", 128),
    )


def test_every_field_is_written() -> None:
    assert [told(session) for session in golden("agentcache.jsonl")] == lines()


def test_the_golden_file_has_every_field() -> None:
    """So that a new one, in whichever value, is not forgotten."""
    plain: dict[type[Any], Any] = {
        Session: Session("", (), ""),
        Call: Call(-1),
        Facts: Facts(),
        Gap: Gap(),
        Place: Place(),
        Hidden: Hidden(),
    }
    missing = {(kind, field.name) for kind in plain for field in fields(kind)}

    def look(value: Any) -> None:
        for inner in value if isinstance(value, tuple) else ():
            look(inner)
        if type(value) not in plain:
            return
        for field in fields(value):
            inner = getattr(value, field.name)
            if inner != getattr(plain[type(value)], field.name):
                missing.discard((type(value), field.name))
            look(inner)

    look(tuple(golden("agentcache.jsonl")))
    assert missing == set()


texts = st.text(st.characters(), max_size=4)
seconds = st.floats(0, 1e9)
messages = st.fixed_dictionaries(
    {"role": texts},
    optional={
        "content": texts | st.lists(st.dictionaries(texts, texts)) | st.none(),
        "tool_calls": st.lists(st.integers() | st.booleans() | seconds),
    },
)
facts = st.builds(
    Facts,
    st.builds(Gap, st.sampled_from(WaitKind), st.none() | seconds, st.booleans()),
    st.none() | seconds,
    st.integers(0, 2**40),
    st.integers(0, 2**40),
    st.none() | st.integers(0, 2**40),
    texts,
    texts,
    st.lists(st.tuples(texts, st.none() | seconds), max_size=2).map(tuple),
)


@st.composite
def sessions(draw: Callable[..., Any]) -> Session:
    in_blocks = draw(st.booleans())
    calls, length = [], 0
    for _ in range(draw(st.integers(0, 3))):
        keep = draw(st.integers(0, length))
        new = tuple(draw(st.lists(st.integers(-(2**70), 2**70) if in_blocks else messages, max_size=3)))
        added, blocks = ((), new) if in_blocks else (new, ())
        calls.append(Call(keep, added, draw(st.just({}) | messages), blocks, draw(facts)))
        length = keep + len(new)
    among = Place("", Link.NONE, draw(st.integers(0, 5)), draw(st.none() | seconds), draw(texts))
    hidden = Hidden(draw(texts), draw(st.integers(0, 9)))
    block_tokens = draw(st.integers(1, 512)) if in_blocks else 0
    return Session(draw(texts), tuple(calls), "", block_tokens, draw(texts), among, hidden, draw(texts))


@given(sessions())
def test_any_session_comes_back(session: Session) -> None:
    class OneLine:
        def documents(self) -> list[Document]:
            return [Document(json.loads(json.dumps(told(session))), Path("t.jsonl"), 1)]

    (back,) = AgentcacheReader().sessions([OneLine()])  # type: ignore[list-item]
    assert replace(back, place="") == session
    assert repr(replace(back, place="")) == repr(session)


@pytest.mark.parametrize("version", [2, 0, "1", True, None, 1.0])
def test_another_version_is_refused(tmp_path: Path, version: Any) -> None:
    path = written(tmp_path, "t.jsonl", {**lines()[0], "agentcache_trace": version})
    said = (
        f", line 1: agentcache_trace is {version!r}, and this agentcache reads version 1. Repair or remove it"
    )
    assert complaint(path) == said


def changed(number: int, *way: Any, to: Any) -> list[Any]:
    """The golden lines with one field changed."""
    whole: list[Any] = lines()
    at = whole[number]
    for step in way[:-1]:
        at = at[step]
    at[way[-1]] = to
    return whole


@pytest.mark.parametrize(
    ("whole", "wrong"),
    [
        ([lines()[0], 5], "line 2 is not an object"),
        ([lines()[0], lines()[0]], "line 2: name is 'a', which another session has"),
        ([lines()[1]], "line 1: among.parent is 'a', which no session before it has as its name"),
        (changed(0, "name", to=None), "line 1: name is missing"),
        (changed(0, "name", to=5), "line 1: name is 5, not a text"),
        (changed(0, "calls", to=None), "line 1: calls is missing"),
        (changed(0, "calls", to={}), "line 1: calls is {}, not a list"),
        (changed(0, "call", to=[]), "line 1: call is no field of version 1"),
        (changed(0, "place", to="x"), "line 1: place is no field of version 1"),
        (changed(0, "calls", 0, "keep", to=None), "line 1: calls[0].keep is missing"),
        (
            changed(0, "calls", 0, "keep", to=1),
            "line 1: calls[0].keep is 1, more than the 0 of the call before",
        ),
        (
            changed(1, "calls", 1, "keep", to=4),
            "line 2: calls[1].keep is 4, more than the 3 of the call before",
        ),
        (changed(0, "calls", 0, "kept", to=0), "line 1: calls[0].kept is no field of version 1"),
        (changed(0, "calls", 0, "added", to=["T"]), "line 1: calls[0].added[0] is not an object"),
        (changed(0, "calls", 0, "added", to=[{}]), "line 1: calls[0].added[0].role is missing"),
        (changed(0, "calls", 0, "recorded", to=[]), "line 1: calls[0].recorded is [], not an object"),
        (
            changed(0, "calls", 0, "blocks", to=[1]),
            "line 1: calls[0].blocks is there, but this session is told in added",
        ),
        (
            changed(1, "calls", 0, "added", to=[{"role": "user"}]),
            "line 2: calls[0].added is there, but this session is told in blocks",
        ),
        (
            changed(1, "calls", 0, "blocks", to=[1, True]),
            "line 2: calls[0].blocks holds something that is not a whole number",
        ),
        (changed(1, "block_tokens", to=-64), "line 2: block_tokens is -64, not a whole number from 0 on"),
        (
            changed(1, "among", "link", to="child"),
            "line 2: among.link is 'child', none of none, spawn, fork",
        ),
        (changed(1, "among", "link", to="none"), "line 2: among.link is 'none' of the parent 'a'"),
        (changed(0, "among", "link", to="fork"), "line 1: among.link is 'fork' of the parent ''"),
        (changed(1, "hidden", "token", to=1), "line 2: hidden.token is no field of version 1"),
        (
            changed(0, "calls", 0, "facts", "gap", "measured", to=1),
            "line 1: calls[0].facts.gap.measured is 1, neither true nor false",
        ),
        (
            changed(0, "calls", 0, "facts", "gap", "kind", to="tools"),
            "line 1: calls[0].facts.gap.kind is 'tools', none of tool, human, unknown",
        ),
        (
            changed(0, "calls", 0, "facts", "tools", to=[["bash"]]),
            "line 1: calls[0].facts.tools[0] is not a name and its seconds",
        ),
        (
            changed(0, "calls", 0, "facts", "tools", to=[["a", 1], ["bash", "1"]]),
            "line 1: calls[0].facts.tools[1][1] is '1', not a number",
        ),
        (
            changed(0, "calls", 0, "facts", "api_s", to=float("inf")),
            "line 1: calls[0].facts.api_s is inf, not a number",
        ),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, whole: list[Any], wrong: str) -> None:
    assert complaint(written(tmp_path, "t.jsonl", *whole)) == f", {wrong}. Repair or remove it"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (GOLDEN_LINES[0].encode() + b"\n" + GOLDEN_LINES[1].encode()[:-9], ", line 2 is not JSON: "),
        (GOLDEN_LINES[0].encode() + b'\n{"agentcache_trace":1,"name":"\xff"}', ", line 2 is not JSON: "),
    ],
)
def test_damaged_bytes_are_named(tmp_path: Path, text: bytes, wrong: str) -> None:
    (tmp_path / "t.jsonl").write_bytes(text)
    assert complaint(tmp_path / "t.jsonl").startswith(wrong)


def test_lines_can_be_counted_without_parsing_them() -> None:
    assert open_trace(GOLDEN / "agentcache.jsonl").count() == 2


@pytest.mark.parametrize(
    ("value", "accepted"), [({"agentcache_trace": 9}, True), ({"name": "a"}, False), ([], False)]
)
def test_recognised_by_its_first_document(value: Any, accepted: bool) -> None:
    assert AgentcacheReader().accepts(Document(value, Path("t"), 1)) is accepted

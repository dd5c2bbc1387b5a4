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
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Link, Origin, Session
from agentcache.waits import WaitKind
from tests.traces import GOLDEN, golden, golden_lines, written


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
        origin=Origin(start_s=12.5, group="task"),
    )
    assert second == Session(
        "a/b",
        (Call(0, blocks=(4, 5, 6)), Call(2, blocks=(9,))),
        f"{GOLDEN / 'agentcache.jsonl'}, line 2",
        64,
        "s",
        Origin("a", Link.FORK, 1),
        Hidden("tools", 128),
    )


def test_every_field_is_written() -> None:
    assert [told(session) for session in golden("agentcache.jsonl")] == golden_lines("agentcache.jsonl")


def test_the_golden_file_has_every_field() -> None:
    """So that a new one, in whichever value, is not forgotten."""
    plain: dict[type[Any], Any] = {
        Session: Session("", (), ""),
        Call: Call(-1),
        Facts: Facts(),
        Gap: Gap(),
        Origin: Origin(),
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
    block_tokens = draw(st.integers(1, 512)) if in_blocks else 0
    calls, length = [], 0
    for _ in range(draw(st.integers(0, 3))):
        keep = draw(st.integers(0, length))
        new = tuple(draw(st.lists(st.integers(-(2**70), 2**70) if in_blocks else messages, max_size=3)))
        added, blocks = ((), new) if in_blocks else (new, ())
        length = keep + len(new)
        known = draw(facts)
        if in_blocks:
            whole = length * block_tokens
            known = replace(
                known, prompt_tokens=draw(st.just(0) | st.integers(whole, whole + block_tokens - 1))
            )
        calls.append(Call(keep, added, draw(st.just({}) | messages), blocks, known))
    origin = Origin("", Link.NONE, draw(st.integers(0, 5)), draw(st.none() | seconds), draw(texts))
    hidden = Hidden(draw(texts), draw(st.integers(0, 9)))
    return Session(draw(texts), tuple(calls), "", block_tokens, draw(texts), origin, hidden)


@pytest.mark.parametrize("tokens", [0, 192, 193, 255, 129])
def test_a_prompt_may_end_within_a_block_that_is_told_or_not(tmp_path: Path, tokens: int) -> None:
    call = {"keep": 0, "blocks": [1, 2, 3], "facts": {"prompt_tokens": tokens}}
    told_so = {"agentcache_trace": 1, "name": "a", "block_tokens": 64, "calls": [call]}
    (session,) = open_trace(written(tmp_path, "t.jsonl", told_so)).sessions()
    assert session.calls[0].facts.prompt_tokens == tokens


@given(sessions())
def test_any_session_comes_back(session: Session) -> None:
    class OneLine:
        def documents(self) -> list[Document]:
            return [Document(json.loads(json.dumps(told(session))), Path("t.jsonl"), 1)]

    (back,) = AgentcacheReader().sessions([OneLine()])  # type: ignore[list-item]
    assert replace(back, place="") == session
    assert repr(replace(back, place="")) == repr(session)

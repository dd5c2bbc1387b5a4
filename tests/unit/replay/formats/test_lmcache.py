"""LMCache's agent traces: golden lines in no order, and damaged ones."""

from pathlib import Path
from typing import Any

import pytest

from agentcache.replay.formats.lmcache import LmCacheReader
from agentcache.replay.sources import Document
from agentcache.replay.trace import Call, Facts, Gap, Place, Session
from tests.traces import complaint, golden, written


def call(prompt: str, answer: str, gap: Gap) -> Call:
    return Call(
        0,
        ({"role": "user", "content": prompt},),
        {"role": "assistant", "content": answer},
        facts=Facts(gap),
    )


def test_lines_are_put_in_order_and_prompts_stay_as_they_are() -> None:
    first, second = golden("lmcache.jsonl")
    assert first == Session(
        "s1",
        (
            call("Fix it.", "A1", Gap()),
            call("Fix it.\nok", "", Gap(seconds=1.5, measured=False)),
            call("Review it.", "A3", Gap(seconds=2.0, measured=False)),
        ),
        first.place,
        among=Place(start_s=1_760_428_436.0),
    )
    assert first.place.endswith("lmcache.jsonl, line 3")
    assert (second.name, len(second.calls)) == ("s2", 1)


def line(**changes: Any) -> dict[str, Any]:
    return {"timestamp": 1, "input": "T", "output": "A", "session_id": "s", **changes}


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        (5, "line 2 is not an object"),
        (line(timestamp="1"), "line 2: timestamp is '1', not a number"),
        (line(timestamp=None), "line 2: timestamp is missing"),
        (line(session_id=None), "line 2: session_id is missing"),
        (line(session_id=["s"]), "line 2: session_id is ['s'], not a text"),
        (line(input=["T"]), "line 2: input is ['T'], not a text"),
        (line(output=3), "line 2: output is 3, not a text"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, value: Any, wrong: str) -> None:
    path = written(tmp_path, "t.jsonl", line(), value)
    assert complaint(path) == f", {wrong}. Repair or remove it"


@pytest.mark.parametrize(("value", "accepted"), [(line(), True), ({"input": "T"}, False), ("x", False)])
def test_recognised_by_its_first_document(value: Any, accepted: bool) -> None:
    assert LmCacheReader().accepts(Document(value, Path("t"), 1)) is accepted

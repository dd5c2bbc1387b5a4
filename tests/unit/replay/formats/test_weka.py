"""Weka's traces: a golden agent with two sub-agents, worked out by hand, and damaged ones."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from agentcache.replay.formats.weka import WekaReader
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Link, Place, Session
from agentcache.waits import WaitKind
from tests.traces import GOLDEN, complaint, golden, written

OPUS, HAIKU = "claude-opus-4-5-20251101", "claude-haiku-4-5-20251001"
TOOLS, END = "tool_calls", "stop"


def test_an_agent_and_its_sub_agents_are_sessions() -> None:
    """Of 25 tokens in blocks of 4 six are whole; the unfinished answer of 100 tokens is taken to last 4.45 s.

    The first sub-agent is told at its end, 13 s after it began; the second one where it began.
    """
    agent, first, second = golden("weka.jsonl")
    assert agent == Session(
        "trace_7",
        (
            Call(0, blocks=(1, 2, 3, 4), facts=Facts(Gap(), 1.5, 17, 2, finish=TOOLS, model=OPUS)),
            Call(4, blocks=(5,), facts=Facts(Gap(WaitKind.TOOL, 2.5), 2.0, 21, 3, finish=END, model=OPUS)),
            Call(5, blocks=(6,), facts=Facts(Gap(WaitKind.HUMAN, 94.0), None, 25, 100, model=OPUS)),
            Call(
                1,
                blocks=(8,),
                facts=Facts(Gap(measured=False, seconds=2.05), 1.0, 9, 1, finish="length", model=OPUS),
            ),
        ),
        agent.place,
        block_tokens=4,
        scope="trace_7",
        hidden=Hidden("claude-opus-4-5/9", 9),
    )
    assert first == Session(
        "trace_7/a1",
        (
            Call(0, blocks=(20, 21), facts=Facts(Gap(seconds=1.0), 1.0, 8, 1, finish=TOOLS, model=HAIKU)),
            Call(2, blocks=(22,), facts=Facts(Gap(WaitKind.TOOL, 1.0), 1.0, 12, 2, finish=END, model=HAIKU)),
        ),
        agent.place,
        block_tokens=4,
        scope="trace_7",
        among=Place("trace_7", Link.SPAWN, after_call=2),
        hidden=Hidden("claude-haiku-4-5/4", 4),
    )
    assert (second.name, second.hidden) == ("trace_7/a1+2", Hidden())
    assert second.among == Place("trace_7", Link.SPAWN, after_call=2)
    assert second.calls[0].facts.gap == Gap(seconds=84.0)


def changed(*way: Any, to: Any) -> Any:
    """The golden document with one field changed."""
    document = json.loads((GOLDEN / "weka.jsonl").read_text(encoding="utf-8"))
    inner = copy.deepcopy(document)
    at = inner
    for step in way[:-1]:
        at = at[step]
    at[way[-1]] = to
    return inner


@pytest.mark.parametrize(
    ("document", "wrong"),
    [
        (changed("requests", to="many"), "requests is 'many', not a list"),
        (changed("requests", 1, to=7), "requests[1] is not an object"),
        (changed("block_size", to=0), "block_size is 0, not at least 1 token"),
        (changed("block_size", to="64"), "block_size is '64', not a whole number from 0 on"),
        (changed("tool_tokens", to=-1), "tool_tokens is -1, not a whole number from 0 on"),
        (changed("requests", 1, "t", to=None), "requests[1].t is missing"),
        (changed("requests", 1, "t", to=-1.5), "requests[1].t is -1.5, earlier than the one before it (0.0)"),
        (changed("requests", 1, "t", to=float("nan")), "requests[1].t is nan, not a number"),
        (changed("requests", 1, "in", to="21"), "requests[1].in is '21', not a whole number from 0 on"),
        (
            changed("requests", 1, "hash_ids", to=[1, 2]),
            "requests[1].hash_ids has 2 blocks, too few for 21 tokens",
        ),
        (
            changed("requests", 1, "hash_ids", to=[1, 2, 3, 4, "5"]),
            "requests[1].hash_ids holds something that is not a whole number",
        ),
        (changed("requests", 1, "stop", to=3), "requests[1].stop is 3, not a text"),
        (changed("requests", 1, "think_time", to=[]), "requests[1].think_time is [], not a number"),
        (changed("requests", 1, "input_types", to="text"), "requests[1].input_types is 'text', not a list"),
        (changed("requests", 2, "duration_ms", to="13"), "requests[2].duration_ms is '13', not a number"),
        (
            changed("requests", 2, "requests", 1, "t", to=-1),
            "requests[2].requests[1].t is -1, earlier than the one before it (0.0)",
        ),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, document: Any, wrong: str) -> None:
    good = changed("id", to=1)
    assert (
        complaint(written(tmp_path, "t.jsonl", good, document)) == f", line 2: {wrong}. Repair or remove it"
    )


def test_ids_that_are_equal_everywhere_have_no_scope(tmp_path: Path) -> None:
    path = written(tmp_path, "t.jsonl", changed("hash_id_scope", to="global"), changed("id", to=3))
    document = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    assert WekaReader().accepts(Document(document, path, 1))
    scopes = {session.scope for session in WekaReader().sessions([Source(path)])}
    assert scopes == {"", "3"}


@pytest.mark.parametrize("value", [{}, {"requests": []}, [], "x", {"block_size": 64, "requests": []}])
def test_recognised_by_its_first_document(value: Any) -> None:
    assert not WekaReader().accepts(Document(value, Path("t"), 1))

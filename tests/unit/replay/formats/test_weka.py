"""Weka's traces: a golden agent with two sub-agents, worked out by hand, and damaged ones."""

from pathlib import Path

from agentcache.replay.formats.weka import WekaReader
from agentcache.replay.sources import Source
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Link, Origin, Session
from agentcache.waits import WaitKind
from tests.traces import golden, golden_lines, written

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
        origin=Origin("trace_7", Link.SPAWN, after_call=2),
        hidden=Hidden("claude-haiku-4-5/4", 4),
    )
    assert (second.name, second.hidden) == ("trace_7/a1+2", Hidden())
    assert second.origin == Origin("trace_7", Link.SPAWN, after_call=2)
    assert second.calls[0].facts.gap == Gap(seconds=84.0)


def test_ids_that_are_equal_everywhere_have_no_scope(tmp_path: Path) -> None:
    (document,) = golden_lines("weka.jsonl")
    path = written(tmp_path, "t.jsonl", {**document, "hash_id_scope": "global"}, {**document, "id": 3})
    scopes = {session.scope for session in WekaReader().sessions([Source(path)])}
    assert scopes == {"", "3"}

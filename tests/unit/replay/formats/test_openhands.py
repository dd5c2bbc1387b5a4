"""OpenHands: golden event lists of both versions and training exports by hand, and damaged ones."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentcache.replay.formats.openhands import OpenHandsReader
from agentcache.replay.readers import open_trace
from agentcache.replay.sources import Document
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Place, Session
from agentcache.waits import WaitKind
from tests.traces import GOLDEN, complaint, golden, written

BEGIN = datetime(2026, 6, 1, 5, 40, tzinfo=UTC).timestamp()
SYSTEM, TASK = {"role": "system", "content": "S"}, {"role": "user", "content": "T"}
SUMMARY = {"role": "user", "content": "Listed."}
DONE = {"role": "assistant", "content": "Done"}


def called(name: str, function: str, arguments: str) -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": function, "arguments": arguments}}


def result(name: str, text: str) -> dict[str, str]:
    return {"role": "tool", "content": text, "tool_call_id": name}


def answer(text: str, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def test_events_of_version_0() -> None:
    """An action with its response's metadata, one without, and a condensation of the first and its observation."""
    (session,) = golden("openhands-0.jsonl")
    look = answer("Look", called("k1", "bash", '{"command": "ls"}'))
    read = answer("", called("event 6", "read", '{"path": "a.py"}'))
    assert session == Session(
        "task-1",
        (
            Call(
                0,
                (SYSTEM, TASK),
                look,
                facts=Facts(Gap(), 3.0, 90, 8, 64, "tool_calls", "m", (("bash", 2.5),)),
            ),
            Call(
                2,
                (look, result("k1", "a.py")),
                read,
                facts=Facts(Gap(WaitKind.TOOL, 2.5), 1.5, finish="tool_calls", tools=(("read", 0.5),)),
            ),
            Call(
                2,
                (SUMMARY, read, result("event 6", "x = 1")),
                DONE,
                facts=Facts(Gap(WaitKind.TOOL, 0.5), 2.5, finish="stop"),
            ),
        ),
        session.place,
        among=Place(start_s=BEGIN + 1, group="task-1"),
    )


def test_events_of_the_sdk() -> None:
    """Two actions of one response are one answer; the last of their results is what the next call waits for."""
    (session,) = golden("openhands-sdk.jsonl")
    both = answer("Both", called("k1", "terminal", '{"command":"ls"}'), called("k2", "terminal", "{}"))
    tools = (("terminal", 2.0), ("terminal", 3.0))
    assert session == Session(
        "openhands-sdk-1",
        (
            Call(0, (SYSTEM, TASK), both, facts=Facts(Gap(), 2.0, finish="tool_calls", tools=tools)),
            Call(2, (SUMMARY,), DONE, facts=Facts(Gap(WaitKind.TOOL, 3.0), 3.0, finish="stop")),
        ),
        session.place,
        among=Place(start_s=BEGIN + 1),
        hidden=Hidden("tools ff89aeb789d4", 14),
    )


def test_results_are_in_the_prompt_that_follows_them(tmp_path: Path) -> None:
    log = lines("openhands-sdk.jsonl")
    del log[0]["history"][7]
    (session,) = open_trace(written(tmp_path, "t.jsonl", *log)).sessions()
    assert session.calls[1].keep == 2
    assert session.calls[1].added[1:] == (result("k1", "a.py"), result("k2", "no command"))


def test_actions_of_one_response_are_carried_out_one_after_the_other(tmp_path: Path) -> None:
    """The answer was whole at the first of them; the next call waits for the last."""
    log = lines("openhands-0.jsonl")
    events = log[0]["history"][:5]
    metadata = {**events[3]["tool_call_metadata"], "tool_call_id": "k2"}
    events.append(
        {**events[3], "id": 5, "timestamp": "2026-06-01T05:40:06.6", "tool_call_metadata": metadata}
    )
    metadata = {**events[4]["tool_call_metadata"], "tool_call_id": "k2"}
    events.append({**events[4], "id": 6, "timestamp": "2026-06-01T05:40:09", "tool_call_metadata": metadata})
    events.append({**log[0]["history"][9], "id": 7})
    (session,) = open_trace(written(tmp_path, "t.jsonl", {"history": events})).sessions()
    first, second = session.calls
    assert (first.facts.api_s, first.facts.tools) == (3.0, (("bash", 2.5), ("bash", 5.0)))
    assert second.facts.gap == Gap(WaitKind.TOOL, 5.0)
    assert [message["content"] for message in second.added] == ["Look\nLook", "a.py", "a.py"]


def test_exports_for_training() -> None:
    """Two runs of one task; the second has calls of functions as they were before tools."""
    first, second = golden("openhands-export.jsonl")
    look = answer("A", called("k", "bash", "{}"))
    said = {"role": "assistant", "content": "B"}
    tools: tuple[tuple[str, float | None], ...] = (("bash", None),)
    assert first == Session(
        "t-1",
        (
            Call(0, (SYSTEM, TASK), look, facts=Facts(finish="tool_calls", tools=tools)),
            Call(
                2,
                (look, {**result("k", "R"), "name": "bash"}),
                said,
                facts=Facts(Gap(WaitKind.TOOL), finish="stop"),
            ),
        ),
        first.place,
        among=Place(group="t-1"),
        hidden=Hidden("tools 1915256b9af9", 13),
    )
    older = {"role": "assistant", "tool_calls": [called("", "bash", "{}")]}
    assert second == Session(
        "t-1+2",
        (
            Call(0, (TASK,), older, facts=Facts(finish="tool_calls", tools=tools)),
            Call(
                1,
                (older, {"role": "function", "content": "R", "name": "bash"}),
                said,
                facts=Facts(finish="stop"),
            ),
        ),
        second.place,
        among=Place(group="t-1"),
    )


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines()]


def test_a_bare_list_of_events(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(lines("openhands-0.jsonl")[0]["history"]), encoding="utf-8")
    (session,) = open_trace(path).sessions()
    (known,) = golden("openhands-0.jsonl")
    assert (session.name, session.calls, session.among.group) == ("run", known.calls, "")


def changed(name: str, *way: Any, to: Any) -> list[Any]:
    """The first line of a golden file with one field changed."""
    whole: list[Any] = lines(name)[:1]
    at = whole[0]
    for step in way[:-1]:
        at = at[step]
    at[way[-1]] = to
    return whole


V0, SDK, EXPORT = "openhands-0.jsonl", "openhands-sdk.jsonl", "openhands-export.jsonl"


@pytest.mark.parametrize(
    ("whole", "wrong"),
    [
        ([*lines(V0), 5], "line 2 is not an object"),
        (changed(V0, "history", 3, to="x"), "line 1: history[3] is not an object"),
        (
            changed(V0, "history", 3, "timestamp", to="soon"),
            "line 1: history[3].timestamp is 'soon', not a time as 2026-01-31T12:00:00Z",
        ),
        (
            changed(V0, "history", 3, "timestamp", to="2026-06-01T05:39:00"),
            "line 1: history[3].timestamp is earlier than that of the event before it",
        ),
        (changed(V0, "history", 3, "args", to=[]), "line 1: history[3].args is [], not an object"),
        (
            changed(
                V0, "history", 3, "tool_call_metadata", "model_response", "usage", "prompt_tokens", to=-1
            ),
            "line 1: history[3].tool_call_metadata.model_response.usage.prompt_tokens is -1, "
            "not a whole number from 0 on",
        ),
        (changed(V0, "history", 4, "content", to=7), "line 1: history[4].content is 7, not a text"),
        (changed(V0, "history", 4, "observation", to=None), "line 1: history[4].observation is missing"),
        (changed(SDK, "history", 1, "llm_message", to=None), "line 1: history[1].llm_message is missing"),
        (changed(SDK, "history", 3, "tool_call_id", to=None), "line 1: history[3].tool_call_id is missing"),
        (changed(SDK, "history", 3, "thought", to=[1]), "line 1: history[3].thought[0] is not an object"),
        (
            changed(SDK, "history", 7, "forgotten_event_ids", to="a1"),
            "line 1: history[7].forgotten_event_ids is 'a1', not a list",
        ),
        (changed(EXPORT, "messages", 2, "role", to=None), "line 1: messages[2].role is missing"),
        (
            changed(EXPORT, "messages", 3, "content", to=None),
            "line 1: messages[3].content is None, neither a text nor a list of parts",
        ),
        (
            changed(EXPORT, "messages", 2, "tool_calls", to=[1]),
            "line 1: messages[2].tool_calls[0] is not an object",
        ),
        (
            changed(EXPORT, "messages", to=[DONE, TASK]),
            "line 1: messages[0].role is 'assistant', but no answer can come first",
        ),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, whole: list[Any], wrong: str) -> None:
    assert complaint(written(tmp_path, "t.jsonl", *whole)) == f", {wrong}. Repair or remove it"


@pytest.mark.parametrize("name", [V0, SDK, EXPORT])
@pytest.mark.parametrize("damage", [b'{"history": [', b'{"history": "\xff"}'])
def test_damaged_bytes_are_named(tmp_path: Path, name: str, damage: bytes) -> None:
    whole = (GOLDEN / name).read_bytes()
    (tmp_path / "t.jsonl").write_bytes(whole + damage)
    assert complaint(tmp_path / "t.jsonl").startswith(f", line {len(whole.splitlines()) + 1} is not JSON: ")


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        (lines(V0)[0], True),
        (lines(SDK)[0]["history"], True),
        (lines(EXPORT)[0], True),
        ({"messages": []}, False),
        ({"messages": [], "tools": [], "trajectory_format": "mini-swe-agent-1.1"}, False),
        ({"history": [{"agent": "primary"}]}, False),
        ([], False),
        ([{"role": "user", "content": "T"}], False),
    ],
)
def test_recognised_by_its_first_document(value: Any, accepted: bool) -> None:
    assert OpenHandsReader().accepts(Document(value, Path("t"), 1)) is accepted

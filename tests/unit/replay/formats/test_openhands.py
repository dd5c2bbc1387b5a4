"""OpenHands: golden event lists of both versions and training exports by hand, and damaged ones."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentcache.replay.readers import open_trace
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Link, Origin, Session
from agentcache.waits import WaitKind
from tests.traces import complaint, golden, golden_lines, written

V0, SDK = "openhands-0.jsonl", "openhands-sdk.jsonl"
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
    session = golden("openhands-0.jsonl")[0]
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
        origin=Origin(start_s=BEGIN + 1, group="task-1"),
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
        origin=Origin(start_s=BEGIN + 1),
        hidden=Hidden("tools ff89aeb789d4", 14),
    )


def test_results_are_in_the_prompt_that_follows_them(tmp_path: Path) -> None:
    log = golden_lines("openhands-sdk.jsonl")
    del log[0]["history"][7]
    (session,) = open_trace(written(tmp_path, "t.jsonl", *log)).sessions()
    assert session.calls[1].keep == 2
    assert session.calls[1].added[1:] == (result("k1", "a.py"), result("k2", "no command"))


def test_actions_of_one_response_are_carried_out_one_after_the_other(tmp_path: Path) -> None:
    """The answer was whole at the first of them; the next call waits for the last."""
    log = golden_lines("openhands-0.jsonl")
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
        origin=Origin(group="t-1"),
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
        origin=Origin(group="t-1"),
    )


def test_a_bare_list_of_events(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(golden_lines("openhands-0.jsonl")[0]["history"]), encoding="utf-8")
    (session,) = open_trace(path).sessions()
    known = golden("openhands-0.jsonl")[0]
    assert (session.name, session.calls, session.origin.group) == ("run", known.calls, "")


def browsing() -> list[dict[str, Any]]:
    """A log in which an agent asks another."""
    events: list[dict[str, Any]] = golden_lines(V0)[1]["history"]
    return events


def test_a_delegate_is_a_session_of_its_own() -> None:
    """Its events are between the action and its observation. The parent's answer was whole 1 s before it was asked."""
    _, main, child = golden(V0)
    ask = answer(
        "Ask", called("d1", "browse", '{"agent": "BrowsingAgent", "inputs": {"task": "Look it up"}}')
    )
    look = answer("", called("b1", "browser", '{"browser_actions": "goto()"}'))
    found = answer("Found", called("event 8", "finish", '{"outputs": {"content": "It is"}}'))
    start_s = BEGIN + 61
    assert main == Session(
        "task-2",
        (
            Call(
                0,
                (SYSTEM, TASK),
                ask,
                facts=Facts(Gap(), 3.0, model="m", finish="tool_calls", tools=(("browse", 7.0),)),
            ),
            Call(
                2,
                (ask, result("d1", "It is")),
                DONE,
                facts=Facts(Gap(WaitKind.TOOL, 7.0), 2.0, finish="stop"),
            ),
        ),
        main.place,
        origin=Origin(start_s=start_s, group="task-2"),
    )
    assert child == Session(
        "task-2/2",
        (
            Call(
                0,
                ({"role": "system", "content": "B"}, {"role": "user", "content": "TASK: Look it up"}),
                look,
                facts=Facts(Gap(seconds=1.0), 2.0, model="m", finish="tool_calls", tools=(("browser", 2.0),)),
            ),
            Call(
                2,
                (look, result("b1", "Page")),
                found,
                facts=Facts(Gap(WaitKind.TOOL, 2.0), 1.0, finish="tool_calls", tools=(("finish", None),)),
            ),
        ),
        child.place,
        origin=Origin("task-2", Link.SPAWN, 1, start_s + 4, "task-2"),
        hidden=Hidden("tools de68bec4d193", 13),
    )


def test_delegates_of_delegates(tmp_path: Path) -> None:
    """The inner one begins after its parent's first call, and what comes after it is its parent's again."""
    events = browsing()
    inner = [
        {**event, "id": 100 + event["id"], "timestamp": events[7]["timestamp"]} for event in events[2:11]
    ]
    path = written(tmp_path, "t.jsonl", {"instance_id": "t", "history": [*events[:8], *inner, *events[8:]]})
    sessions = list(open_trace(path).sessions())
    assert [(session.name, session.origin.parent, session.origin.after_call) for session in sessions] == [
        ("t", "", 0),
        ("t/2", "t", 1),
        ("t/2/102", "t/2", 2),
    ]
    assert [len(session.calls) for session in sessions] == [2, 3, 2]


def test_an_older_delegate_is_told_its_task_in_the_action(tmp_path: Path) -> None:
    events = browsing()
    path = written(tmp_path, "t.jsonl", {"history": [*events[:3], *events[5:]]})
    _, child = open_trace(path).sessions()
    assert child.calls[0].added == ({"role": "user", "content": "TASK: Look it up"},)


def test_a_log_that_ends_in_a_delegate_and_an_observation_of_none(tmp_path: Path) -> None:
    events = browsing()
    first, second = (
        list(open_trace(written(tmp_path, "t.jsonl", {"history": history})).sessions())
        for history in (events[:7], [*events[:2], events[10], events[11]])
    )
    assert [len(session.calls) for session in first] == [1, 1]
    assert [message["content"] for message in second[0].calls[0].added] == ["S", "T", "It is"]


def spread(folder: Path, name: str, *values: Any) -> None:
    """A file for each value, in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, value in enumerate(values):
        (folder / name.format(number)).write_text(json.dumps(value), encoding="utf-8")


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("{}/events", "{}.json"),
        ("{}/events", "event-{:05}-3f2a.json"),
        ("{}", "event_{:06}_3f2a.json"),
    ],
)
@pytest.mark.parametrize("golden_file", ["openhands-0.jsonl", "openhands-sdk.jsonl"])
def test_a_directory_of_events_is_a_conversation(
    tmp_path: Path, folder: str, name: str, golden_file: str
) -> None:
    """Ten come after nine; what is beside the events is none of them."""
    (tmp_path / "c1").mkdir()
    (tmp_path / "c1" / "base_state.json").write_text("{}", encoding="utf-8")
    events = golden_lines(golden_file)[-1]["history"]
    spread(tmp_path / folder.format("c1"), name, *events)
    sessions = list(open_trace(tmp_path).sessions())
    known = golden(golden_file)[-len(sessions) :]
    assert [session.calls for session in sessions] == [session.calls for session in known]
    assert [session.hidden for session in sessions] == [session.hidden for session in known]
    assert (sessions[0].name, sessions[0].place) == ("c1", str(tmp_path / "c1"))
    assert open_trace(tmp_path).count() == len(sessions)
    assert [len(session.calls) for session in open_trace(tmp_path / "c1").sessions()] == [
        len(session.calls) for session in sessions
    ]


def test_pages_of_events_are_their_events(tmp_path: Path) -> None:
    """What is in a page and in a file of its own is told once; a last page is not there until it is full."""
    events = browsing()
    spread(tmp_path / "c1" / "events", "{}.json", *events)
    (tmp_path / "c1" / "event_cache").mkdir()
    for start in (0, 5):
        page = tmp_path / "c1" / "event_cache" / f"{start}-{start + 5}.json"
        page.write_text(json.dumps(events[start : start + 5]), encoding="utf-8")
    both = [session.calls for session in open_trace(tmp_path).sessions()]
    assert both == [session.calls for session in golden(V0)[1:]]
    (tmp_path / "c1" / "event_cache" / "10-15.json").write_text(json.dumps(events[10:]), encoding="utf-8")
    pages = [session.calls for session in open_trace(tmp_path / "c1" / "event_cache").sessions()]
    assert pages == both


def test_events_one_a_line(tmp_path: Path) -> None:
    sessions = open_trace(written(tmp_path, "c1.jsonl", *browsing())).sessions()
    assert [(session.name, len(session.calls)) for session in sessions] == [("c1", 2), ("c1/2", 2)]


def test_sub_agents_of_the_sdk_are_in_directories_below_their_parents(tmp_path: Path) -> None:
    """The parent's first answer was whole at 3 s; its sub-agent was asked 1 s after that."""
    parent = golden_lines(SDK)[0]["history"]
    child = [{**event, "timestamp": f"2026-06-01T05:40:0{4 + at}"} for at, event in enumerate(parent[:4])]
    spread(tmp_path / "p" / "events", "event-{:05}-aa.json", *parent)
    spread(tmp_path / "p" / "subagents" / "k" / "events", "event-{:05}-bb.json", *child)
    first, second = open_trace(tmp_path).sessions()
    assert (first.name, first.origin) == ("p", Origin(start_s=BEGIN + 1))
    assert (second.name, second.origin) == ("p/k", Origin("p", Link.SPAWN, 1, BEGIN + 5))
    assert second.calls[0].facts.gap == Gap(seconds=2.0)


def test_a_wrong_event_of_a_directory_is_named_by_its_file(tmp_path: Path) -> None:
    events = browsing()
    spread(tmp_path / "c1" / "events", "{}.json", *events)
    seventh, page = tmp_path / "c1" / "events" / "7.json", tmp_path / "c1" / "event_cache" / "0-5.json"
    for damage, said in (
        ('{"source": "user"', " is not JSON: "),
        ("5", " is not an object. Repair or remove it"),
        (json.dumps({**events[7], "content": 5}), ": content is 5, not a text. Repair or remove it"),
        (
            json.dumps({**events[7], "timestamp": "2026-06-01T05:41:00"}),
            ": timestamp is '2026-06-01T05:41:00', earlier than the one before it. Repair or remove it",
        ),
    ):
        seventh.write_text(damage, encoding="utf-8")
        assert complaint(tmp_path).startswith(f"/c1/events/7.json{said}")
    page.parent.mkdir()
    page.write_text(json.dumps([*events[:4], 5]), encoding="utf-8")
    assert complaint(tmp_path) == "/c1/event_cache/0-5.json: [4] is not an object. Repair or remove it"

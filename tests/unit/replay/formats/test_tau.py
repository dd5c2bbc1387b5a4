"""tau-bench: a golden conversation with a tool and a customer, and damaged ones."""

from agentcache.replay.formats.tau import TauBenchReader
from agentcache.replay.sources import Source
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Message, Origin, Session
from agentcache.waits import WaitKind
from tests.traces import GOLDEN, golden

CALLS = [{"id": "c1", "type": "function", "function": {"name": "find_flight", "arguments": "{}"}}]


def said(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def test_a_conversation_waits_for_tools_and_for_people() -> None:
    first, second = golden("tau.json")
    asks: Message = {"role": "assistant", "tool_calls": CALLS}
    found: Message = {"role": "tool", "content": "HAT1", "tool_call_id": "c1", "name": "find_flight"}
    assert first == Session(
        "3-1",
        (
            Call(
                0,
                (said("system", "Policy."), said("user", "A flight, please.")),
                asks,
                facts=Facts(finish="tool_calls", tools=(("find_flight", None),)),
            ),
            Call(
                2, (asks, found), said("assistant", "HAT1?"), facts=Facts(Gap(WaitKind.TOOL), finish="stop")
            ),
            Call(
                4,
                (said("assistant", "HAT1?"), said("user", "Yes.")),
                said("assistant", "Booked."),
                facts=Facts(Gap(WaitKind.HUMAN), finish="stop"),
            ),
        ),
        first.place,
        origin=Origin(group="3"),
    )
    assert (second.name, second.origin.group, len(second.calls)) == ("3-1+2", "3", 1)


def test_tools_that_the_file_hides_are_the_same_for_all_its_sessions() -> None:
    sessions = TauBenchReader(tools_tokens=1200).sessions([Source(GOLDEN / "tau.json")])
    assert {session.hidden for session in sessions} == {Hidden("tools of tau", 1200)}

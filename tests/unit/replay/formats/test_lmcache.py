"""LMCache's agent traces: golden lines in no order, and damaged ones."""

from agentcache.replay.trace import Call, Facts, Gap, Origin, Session
from tests.traces import golden


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
        origin=Origin(start_s=1_760_428_436.0),
    )
    assert first.place.endswith("lmcache.jsonl, line 3")
    assert (second.name, len(second.calls)) == ("s2", 1)

"""TraceLab's rounds: golden ones with the made-up blocks worked out by hand, and damaged ones."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentcache.replay.formats.tracelab import TraceLabReader
from agentcache.replay.sources import Document
from agentcache.replay.sources import sources as open_sources
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Place, Session
from agentcache.waits import WaitKind
from tests.traces import GOLDEN, complaint, golden, written

BEGIN = datetime(2026, 6, 1, 5, 40, tzinfo=UTC).timestamp()


def test_prompts_grow_by_what_they_are_longer() -> None:
    """330, 400 and 390 tokens are 5, 6 and 6 blocks of 64; the first 130 were found before anything was sent."""
    first, second = golden("tracelab.jsonl")
    tools = (("Bash", 1.5), ("Read", None))
    assert first == Session(
        "a",
        (
            Call(
                0,
                blocks=(0, 1, 2, 3, 4),
                facts=Facts(Gap(), 3.0, 330, 20, 130, "tool_calls", "large-1", tools),
            ),
            Call(5, blocks=(5,), facts=Facts(Gap(WaitKind.TOOL, 1.5), 1.5, 400, 9, 320, "stop", "large-1")),
            Call(6, blocks=(), facts=Facts(Gap(WaitKind.HUMAN, 13.0), 1.25, 390, 9, 192, "stop", "large-1")),
        ),
        first.place,
        block_tokens=64,
        scope="a",
        among=Place(start_s=BEGIN + 1),
        hidden=Hidden("codex/large-1/shop", 130),
    )
    assert (second.name, second.hidden, second.scope) == ("b", Hidden(), "b")


def rounds() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / "tracelab.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_shorter_prompt_keeps_what_the_provider_found(tmp_path: Path) -> None:
    log = rounds()[:2]
    log.append({**log[1], "input_tokens_total": 260, "prefix_tokens": 192})
    (session,) = TraceLabReader().sessions(open_sources(written(tmp_path, "t.jsonl", *log)))
    assert list(session.block_prompts()) == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5], [0, 1, 2, 6]]


def changed(*way: Any, to: Any) -> list[Any]:
    """The golden rounds with one field of the second one changed."""
    log: list[Any] = rounds()
    at = log[1]
    for step in way[:-1]:
        at = at[step]
    at[way[-1]] = to
    return log


@pytest.mark.parametrize(
    ("log", "wrong"),
    [
        ([rounds()[0], 5], "line 2 is not an object"),
        (changed("input_tokens_total", to=None), "line 2: input_tokens_total is missing"),
        (
            changed("input_tokens_total", to=1.5),
            "line 2: input_tokens_total is 1.5, not a whole number from 0 on",
        ),
        (changed("timing_events", to={}), "line 2: timing_events is {}, not a list"),
        (changed("timing_events", 0, "timestamp", to=None), "line 2: timing_events[0].timestamp is missing"),
        (
            changed("timing_events", 0, "timestamp", to="5 pm"),
            "line 2: timing_events[0].timestamp is '5 pm', not a time as 2026-01-31T12:00:00Z",
        ),
        (changed("tools", to=["Bash"]), "line 2: tools[0] is not an object"),
        (
            changed("tools", to=[{"tool_name": "Bash", "tool_wall_latency_ms": "1"}]),
            "line 2: tools[0].tool_wall_latency_ms is '1', not a number",
        ),
        ([*rounds(), rounds()[1]], "line 5: session_id is 'a' again: sort the lines by session"),
        ([rounds()[1], rounds()[0]], "line 2: timing_events begin earlier than those of the round before"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, log: list[Any], wrong: str) -> None:
    assert complaint(written(tmp_path, "t.jsonl", *log)) == f", {wrong}. Repair or remove it"


@pytest.mark.parametrize(
    ("value", "accepted"), [(rounds()[0], True), ({"session_id": "a"}, False), ([], False)]
)
def test_recognised_by_its_first_document(value: Any, accepted: bool) -> None:
    assert TraceLabReader().accepts(Document(value, Path("t"), 1)) is accepted

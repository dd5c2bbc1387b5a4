"""TraceLab's rounds: golden ones with the made-up blocks worked out by hand, and damaged ones."""

from datetime import UTC, datetime
from pathlib import Path

from agentcache.replay.formats.tracelab import TraceLabReader
from agentcache.replay.sources import sources as open_sources
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Origin, Session
from agentcache.waits import WaitKind
from tests.traces import block_prompts, golden, golden_lines, written

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
        origin=Origin(start_s=BEGIN + 1),
        hidden=Hidden("codex/large-1/shop", 130),
    )
    assert (second.name, second.hidden, second.scope) == ("b", Hidden(), "b")


def test_a_shorter_prompt_keeps_what_the_provider_found(tmp_path: Path) -> None:
    log = golden_lines("tracelab.jsonl")[:2]
    log.append({**log[1], "input_tokens_total": 260, "prefix_tokens": 192})
    (session,) = TraceLabReader().sessions(open_sources(written(tmp_path, "t.jsonl", *log)))
    assert block_prompts(session) == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5], [0, 1, 2, 6]]

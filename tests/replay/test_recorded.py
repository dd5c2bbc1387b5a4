"""The readers over recorded traces; the counts were taken with other programs, before these readers were there."""

import json
import os
from itertools import islice, pairwise
from pathlib import Path
from statistics import median

import pytest
from click.testing import CliRunner

from agentcache import cli
from agentcache.replay.formats.sweagent import SweAgentReader
from agentcache.replay.inspecting import contents, spread
from agentcache.replay.readers import Trace, open_trace
from agentcache.replay.trace import Link
from agentcache.waits import WaitKind
from tests.traces import block_prompts

pytestmark = pytest.mark.data


def data(name: str) -> Path:
    return Path(os.environ["AGENTCACHE_DATA"]) / name


@pytest.fixture
def recorded() -> Trace:
    return open_trace(data("miniswe-gemini3-swebench-verified/trajs_a.jsonl.xz"))


def test_all_sessions_and_calls_are_there(recorded: Trace) -> None:
    sessions = list(recorded.sessions())
    calls = [len(session.calls) for session in sessions]
    assert len(sessions) == recorded.count() == 261
    assert (sum(calls), min(calls), max(calls), median(calls)) == (10_460, 13, 145, 35)
    assert len({session.name for session in sessions}) == 261
    assert calls[:8] == [20, 32, 36, 28, 21, 26, 25, 31]


def test_every_prompt_extends_the_one_before_it(recorded: Trace) -> None:
    for session in islice(recorded.sessions(), 20):
        before: list[object] = []
        for call, prompt in zip(session.calls, session.prompts(), strict=True):
            assert prompt[: len(before)] == before
            assert [message["role"] for message in prompt[:2]] == ["system", "user"]
            assert {frozenset(message) for message in prompt} == {frozenset({"role", "content"})}
            before = [*prompt, call.recorded]


def test_characters_of_the_first_session(recorded: Trace) -> None:
    session = next(recorded.sessions())
    assert session.name == "astropy__astropy-12907"
    lengths = [sum(len(message["content"]) for message in prompt) for prompt in session.prompts()]
    assert lengths[:3] == [6543, 17302, 19052]


@pytest.mark.parametrize(
    ("name", "sessions", "calls", "per_session", "prompt_tokens"),
    [
        ("weka-claude-code", 331 + 34, 19_200 + 410, None, None),
        ("miniswe-gemini3-swebench-verified", 261, 10_460, (35, 66, 145), (13_620, 30_502, 106_497)),
        ("tau-bench-gpt4o-airline", 200, 2_454, (11, 20, 30), None),
        ("sweagent-demos", 24, 242, None, None),
        ("claude-code-session-share", 3 + 6, 79, None, (50_042, 81_771, 86_733)),
        ("lmcache-agent-trace/miniswe.jsonl.xz", 20, 402, (14, 30, 30), None),
        ("lmcache-agent-trace/magagent.jsonl.xz", 25, 746, (33, 42, 44), None),
        ("lmcache-agent-trace/taubench.jsonl.xz", 24, 471, (20, 39, 43), None),
        ("tracelab-examples/example_sessions.tar.xz/derived", 2, 19, (9, 10, 10), None),
        ("mooncake-fast25", 3_993, 3_993, (1, 1, 1), (11_587, 38_640, 191_378)),
        ("azure-llm-2023/AzureLLMInferenceTrace_code.csv.xz", 8_819, 8_819, (1, 1, 1), (1_469, 5_194, 7_437)),
        (
            "azure-llm-2023/AzureLLMInferenceTrace_conv.csv.xz",
            19_366,
            19_366,
            (1, 1, 1),
            (1_020, 2_735, 14_050),
        ),
    ],
)
def test_every_set_is_read_whole(
    name: str,
    sessions: int,
    calls: int,
    per_session: tuple[int, int, int] | None,
    prompt_tokens: tuple[int, int, int] | None,
) -> None:
    """Sessions, calls; calls of a session and prompt tokens at p50, p90 and most.

    Between two values the other programs took the upper one, or the middle.
    """
    found = contents(data(name))
    assert (len(found.calls), sum(found.calls)) == (sessions, calls)
    for expected, values in ((per_session, found.calls), (prompt_tokens, found.prompt_tokens)):
        told = spread(values)
        if expected:
            assert (told.p50, told.p90, told.most) == pytest.approx(expected, abs=1, rel=0.001)


def test_waits_of_people_and_of_tools_in_weka() -> None:
    """p50 and p90 of the waits for tools, and of those for people; sub-agents do not begin at their ends."""
    found = contents(data("weka-claude-code"))
    tool, human = spread(found.waits[WaitKind.TOOL].seconds), spread(found.waits[WaitKind.HUMAN].seconds)
    assert (tool.p50, tool.p90, tool.most) == (8.0, 73.0, 77_589.0)
    assert (human.p50, human.p90) == (168.0, 1_784.0)
    assert (found.links[Link.SPAWN], found.links[Link.FORK]) == (34, 0)
    trace = open_trace(data("weka-claude-code"))
    children = [session for session in trace.sessions() if session.origin.parent]
    late = [child.calls[0].facts.gap.seconds or 0.0 for child in children]
    assert median(late) < 1.0
    assert all(child.origin.after_call > 0 for child in children)


def test_blocks_are_the_prompts_of_weka() -> None:
    """All ids of every prompt come back from the changes; nearly all prompts go on but for their last blocks."""
    near = pairs = 0
    for session in islice(open_trace(data("weka-claude-code")).sessions(), 60):
        before: list[int] = []
        for call, prompt in zip(session.calls, block_prompts(session), strict=True):
            assert len(prompt) == call.facts.prompt_tokens // 64
            pairs += bool(before)
            near += bool(before) and call.keep >= len(before) - 3
            before = prompt
    assert 0.96 < near / pairs < 0.995


def test_the_tool_s_part_of_the_waits_of_mini_swe_agent(recorded: Trace) -> None:
    """What is left of the gaps when the answers are taken off."""
    gaps = [call.facts.gap for session in recorded.sessions() for call in session.calls[1:]]
    tool = spread(gap.seconds for gap in gaps if gap.seconds is not None)
    assert (tool.count, round(tool.p50, 2), round(tool.p90, 1)) == (10_199, 0.61, 4.5)
    assert {(gap.kind, gap.measured) for gap in gaps} == {(WaitKind.TOOL, False)}


def test_a_window_breaks_the_prefixes_of_swe_agent() -> None:
    """Half of the later calls, and more in longer sessions, no longer go on from the prompt before."""
    path, extending = data("sweagent-demos"), {}
    for window in (0, 5):
        readers = (SweAgentReader(window=window), *open_trace(path).readers)
        calls = [session.calls for session in open_trace(path, readers).sessions()]
        pairs = [pair for one in calls for pair in pairwise(one)]
        extending[window] = sum(
            after.keep == before.keep + len(before.added) for before, after in pairs
        ) / len(pairs)
    assert extending[0] == 1.0
    assert extending[5] < 0.6


def test_agents_that_share_a_session_of_lmcache() -> None:
    assert contents(data("lmcache-agent-trace/magagent.jsonl.xz")).extending_share == 0.4397


def test_buckets_of_mooncake_are_spread_in_order() -> None:
    starts = [session.origin.start_s or 0.0 for session in open_trace(data("mooncake-fast25")).sessions()]
    assert starts == sorted(starts)
    assert starts[-1] == pytest.approx(1022, abs=1)


@pytest.mark.parametrize(
    ("name", "sessions", "unbounded"),
    [
        ("weka-claude-code", 8, 0.946),
        ("miniswe-gemini3-swebench-verified", 4, 0.963),
        ("tau-bench-gpt4o-airline", 8, 0.942),
        ("sweagent-demos", 8, 0.886),
        ("claude-code-session-share", 9, 0.67),
        ("lmcache-agent-trace/miniswe.jsonl.xz", 4, 0.947),
        ("lmcache-agent-trace/magagent.jsonl.xz", 4, 0.837),
        ("lmcache-agent-trace/taubench.jsonl.xz", 8, 0.745),
        ("tracelab-examples/example_sessions.tar.xz/derived", 2, 0.901),
        ("mooncake-fast25", 1_000, 0.167),
        ("azure-llm-2023", 100, 0.0),
    ],
)
def test_every_set_is_replayed(name: str, sessions: int, unbounded: float) -> None:
    """Its first sessions, as the command does it; `unbounded`: what an unlimited cache has of the prompts."""
    options = ["--sessions", str(sessions), "--seeds", "1", "--processes", "1", "--policy", "unbounded"]
    asked = CliRunner().invoke(cli.cli, ["replay", str(data(name)), *options, "--json"])
    assert (asked.exit_code, asked.exception) == (0, None)
    rows = json.loads(asked.stdout)["rows"]
    rates = {(row["policy"], row["capacity"]): row["hit_rate"] for row in rows}
    for (policy, capacity), rate in rates.items():
        assert 0 <= rate <= rates["unbounded", capacity] < 1, policy
        assert rates["unbounded", capacity] == pytest.approx(unbounded, abs=0.02)

"""The readers over recorded trajectories; the counts were taken with another program."""

import os
from itertools import islice
from pathlib import Path
from statistics import median

import pytest

from agentcache.replay.readers import Trace, open_trace

pytestmark = pytest.mark.data


@pytest.fixture
def recorded() -> Trace:
    return open_trace(
        Path(os.environ["AGENTCACHE_DATA"]) / "miniswe-gemini3-swebench-verified" / "trajs_a.jsonl.xz"
    )


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

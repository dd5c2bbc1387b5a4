"""The sample that we ship, and the generator that made it."""

from pathlib import Path

from agentcache.replay.readers import open_trace
from agentcache.replay.sample import SAMPLE, observation, sections


def test_sample_has_the_promised_shape() -> None:
    sessions = list(open_trace(SAMPLE).sessions())
    assert SAMPLE.stat().st_size <= 200_000
    assert len(sessions) >= 3
    assert all(10 <= len(session.calls) <= 14 for session in sessions)
    systems = {next(session.prompts())[0]["content"] for session in sessions}
    assert len(systems) == 1
    assert 4_000 <= len(systems.pop()) <= 8_000


def test_sample_is_append_only_and_holds_no_path_of_the_machine_that_made_it() -> None:
    for session in open_trace(SAMPLE).sessions():
        length = 0
        for call in session.calls:
            assert call.keep == length
            length += len(call.added)
    text = SAMPLE.read_text(encoding="utf-8")
    assert not [word for word in ("/root", "/home", "/tmp", str(Path.cwd())) if word in text]


def test_sections_are_cut_at_their_marks() -> None:
    assert sections("=== a\n1\n2\n=== b c\n3\n", "=== ") == [("a", "1\n2\n"), ("b c", "3\n")]


def test_long_output_is_cut_in_the_middle() -> None:
    text = observation(1, "x" * 4000 + "y" * 4000)
    assert text.startswith("<returncode>1</returncode>\n<output>\nxxx")
    assert "[2000 characters left out]" in text
    assert text.endswith("yyy</output>")
    assert (text.count("x"), text.count("y")) == (3000, 3000)

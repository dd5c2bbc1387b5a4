"""Stop strings: the text before the first one, however the stream was cut."""

from hypothesis import given
from hypothesis import strategies as st

from agentcache.worker.stops import StopStrings, partial_suffix


def run(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    matcher = StopStrings(stops)
    text = "".join(matcher.push(piece) for piece in pieces)
    return text + matcher.flush(), matcher.stopped


def test_the_text_is_cut_before_the_stop() -> None:
    assert run(["END"], ["one E", "ND two"]) == ("one ", True)


def test_the_first_of_several_stops_wins() -> None:
    assert run(["zz", "b"], ["abzz"]) == ("a", True)


def test_what_might_become_a_stop_is_held_and_given_back() -> None:
    matcher = StopStrings(["END"])
    assert matcher.push("x EN") == "x "
    assert matcher.flush() == "EN"


def test_nothing_follows_the_cut() -> None:
    matcher = StopStrings(["."])
    assert matcher.push("a.b") == "a"
    assert matcher.push("c") == ""
    assert matcher.flush() == ""


def test_no_stops_hold_nothing() -> None:
    assert StopStrings([]).push("abc") == "abc"
    assert partial_suffix("abc", []) == 0


@given(
    text=st.text(alphabet="ab.", max_size=30),
    stops=st.lists(st.text(alphabet="ab.", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 30), max_size=6),
)
def test_any_split_gives_the_same_text(text: str, stops: list[str], cuts: list[int]) -> None:
    marks = sorted(min(cut, len(text)) for cut in cuts)
    pieces = [text[a:b] for a, b in zip([0, *marks], [*marks, len(text)], strict=True)]
    whole, stopped = run(stops, list(text))
    assert run(stops, pieces) == (whole, stopped)
    assert stopped == any(stop in text for stop in stops)
    assert all(stop not in whole for stop in stops)

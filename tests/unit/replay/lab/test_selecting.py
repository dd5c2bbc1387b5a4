"""Which sessions of a trace are replayed."""

from collections.abc import Iterator

from agentcache.replay.lab.selecting import Selection
from agentcache.replay.paged import PAGE_TOKENS
from agentcache.replay.trace import Call, Facts, Gap, Place, Session


def session(name: str, tokens: int = 10, hours: float = 0.0, parent: str = "") -> Session:
    first = Facts(prompt_tokens=1)
    last = Facts(Gap(seconds=hours * 1800), hours * 1800, prompt_tokens=tokens)
    return Session(name, (Call(0, facts=first), Call(0, facts=last)), name, PAGE_TOKENS, among=Place(parent))


def chosen(selection: Selection, *sessions: Session) -> list[str]:
    return [one.name for one in selection.page(sessions, encode=lambda _: []).sessions]


def test_sessions_with_a_prompt_or_a_life_that_is_too_long_are_left_out() -> None:
    selection = Selection(longest_tokens=100, longest_h=2)
    assert chosen(
        selection, session("a", 100, 2.0), session("b", 101), session("c", hours=2.1), session("d")
    ) == ["a", "d"]


def test_a_child_goes_with_its_parent() -> None:
    selection = Selection(longest_tokens=100)
    family = (session("p", 101), session("c", parent="p"), session("g", parent="c"), session("q"))
    assert chosen(selection, *family) == ["q"]


def test_no_more_are_read_than_asked_for() -> None:
    read: list[str] = []

    def sessions() -> Iterator[Session]:
        for name in "abc":
            read.append(name)
            yield session(name)

    workload = Selection(sessions=2).page(sessions(), encode=lambda _: [])
    assert [one.name for one in workload.sessions] == read == ["a", "b"]


def test_text_is_measured_in_the_tokens_that_are_replayed() -> None:
    said = Session("s", (Call(0, ({"role": "user", "content": "x" * 100},)),), "here")
    selection = Selection(longest_tokens=100)
    assert selection.page([said], encode=lambda text: [0] * len(text)).sessions == ()

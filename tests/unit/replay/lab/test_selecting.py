"""Which sessions of a trace are replayed."""

from collections.abc import Iterator

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.selecting import Selection
from agentcache.replay.paged import PAGE_TOKENS, Workload
from agentcache.replay.trace import Call, Facts, Gap, Origin, Session


def session(name: str, tokens: int = 10, hours: float = 0.0, parent: str = "") -> Session:
    first = Facts(prompt_tokens=1)
    last = Facts(Gap(seconds=hours * 1800), hours * 1800, prompt_tokens=tokens)
    return Session(
        name, (Call(0, facts=first), Call(0, facts=last)), name, PAGE_TOKENS, origin=Origin(parent)
    )


def paged(selection: Selection, *sessions: Session) -> Workload:
    return selection.page(sessions, encode=lambda _: [])


def chosen(selection: Selection, *sessions: Session) -> list[str]:
    return [one.name for one in paged(selection, *sessions).sessions]


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
    text = Session("s", (Call(0, ({"role": "user", "content": "x" * 100},)),), "here")
    with pytest.raises(CacheError, match="1 with a prompt or an answer over"):
        Selection(longest_tokens=100).page([text], encode=lambda text: [0] * len(text))


def test_an_answer_may_be_what_is_too_long() -> None:
    facts = Facts(prompt_tokens=10, output_tokens=10**15)
    endless = Session("s", (Call(0, blocks=(), facts=facts),), "here", PAGE_TOKENS)
    assert chosen(Selection(), endless, session("d")) == ["d"]


def test_what_is_left_out_is_told_with_the_reasons() -> None:
    selection = Selection(longest_tokens=100, longest_h=2)
    empty = Session("e", (), "here", PAGE_TOKENS)
    family = (session("p", 101), session("c", parent="p"), session("g", parent="c"), session("q"))
    more = (session("long", hours=2.1), empty, session("lost", parent="nobody"))
    assert selection.left_out(paged(selection, *family, *more)) == (
        "left out (sessions: 6, calls: 10, prompt tokens: 146): "
        "1 with a prompt or an answer over --longest-tokens 100, 2 below one of these, "
        "1 longer than --longest-h 2, 1 without calls, 1 whose parent is not in the trace"
    )
    assert selection.left_out(paged(selection, session("q"))) == ""


@pytest.mark.parametrize(
    ("sessions", "why"),
    [
        (
            [session("b", 101)],
            "left out (sessions: 1, calls: 2, prompt tokens: 102): "
            "1 with a prompt or an answer over --longest-tokens 100",
        ),
        (
            [Session("e", (), "here", PAGE_TOKENS)],
            "left out (sessions: 1, calls: 0, prompt tokens: 0): 1 without calls",
        ),
        (
            [
                Session(
                    "t",
                    (Call(0, ({"role": "user", "content": "x"},), facts=Facts(api_s=7 * 3600.0)),),
                    "here",
                )
            ],
            "left out (sessions: 1, calls: 1, prompt tokens: not told): 1 longer than --longest-h 6",
        ),
        ([], "it has none"),
    ],
)
def test_where_none_is_left_the_trace_and_the_reason_are_named(sessions: list[Session], why: str) -> None:
    with pytest.raises(CacheError) as refused:
        Selection(longest_tokens=100).page(sessions, lambda _: [], "x.jsonl")
    assert refused.value.kind is Kind.BAD_TRACE
    assert refused.value.message == f"no session of x.jsonl can be replayed: {why}"

"""Traces in pages: equal prefixes are equal ids, and nothing else is."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from agentcache.errors import CacheError, Kind
from agentcache.replay.paged import ROOT, Left, LeftOut, page, rendered
from agentcache.replay.trace import LATEST_S, Call, Facts, Gap, Hidden, Link, Message, Origin, Session

PAGE = 4


def encode(text: str) -> list[int]:
    """A token a character."""
    return [ord(character) for character in text]


def blocks(
    *prompts: tuple[int, Sequence[int], int], scope: str = "", hidden: Hidden | None = None
) -> Session:
    """A session by (blocks kept, blocks added, tokens of the prompt) of its calls."""
    calls = tuple(
        Call(keep, blocks=tuple(added), facts=Facts(prompt_tokens=tokens, output_tokens=PAGE))
        for keep, added, tokens in prompts
    )
    return Session("s", calls, "here", PAGE, scope, hidden=hidden or Hidden())


def said(role: str, text: str) -> Message:
    return {"role": role, "content": text}


def test_equal_prefixes_are_equal_ids_and_equal_pages_elsewhere_are_not() -> None:
    one, other = page([blocks((0, [1, 2, 3], 12)), blocks((0, [1, 9, 3], 12))], encode, PAGE).sessions
    first, second = one.calls[0].prompt, other.calls[0].prompt
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert first[2] != second[2]


def test_every_page_knows_the_one_before_it() -> None:
    workload = page([blocks((0, [1, 2, 3], 12))], encode, PAGE)
    prompt = workload.sessions[0].calls[0].prompt
    assert workload.before[prompt].tolist() == [ROOT, *prompt[:-1].tolist()]


def test_blocks_of_another_scope_are_others() -> None:
    one, other = page([blocks((0, [1], 4), scope="a"), blocks((0, [1], 4), scope="b")], encode, PAGE).sessions
    assert one.calls[0].prompt != other.calls[0].prompt


def test_what_is_hidden_under_one_name_is_shared_across_scopes_and_only_so_far() -> None:
    tools = Hidden("tools", 2 * PAGE)
    one, other = page(
        [
            blocks((0, [1, 2, 3], 12), scope="a", hidden=tools),
            blocks((0, [7, 8, 3], 12), scope="b", hidden=tools),
        ],
        encode,
        PAGE,
    ).sessions
    shared = one.calls[0].prompt == other.calls[0].prompt
    assert shared.tolist() == [True, True, False]


def test_an_answer_fills_the_pages_that_the_next_prompt_goes_on_with() -> None:
    (session,) = page([blocks((0, [1, 2], 9), (2, [3, 4, 5], 21))], encode, PAGE).sessions
    first, second = session.calls
    assert first.output.tolist() == second.prompt[2:3].tolist()
    assert second.extends
    assert len(second.output) == 1
    assert second.output[0] not in second.prompt


def test_an_answer_that_the_next_prompt_does_not_hold_is_like_nobody_elses() -> None:
    (session,) = page([blocks((0, [1, 2], 8), (1, [6], 8), (0, [1, 2], 8))], encode, PAGE).sessions
    first, second, third = session.calls
    assert not second.extends
    assert first.output[0] not in np.concatenate((second.prompt, third.prompt))
    assert first.prompt.tolist() == third.prompt.tolist()


def test_at_least_one_token_is_computed() -> None:
    (session,) = page([blocks((0, [1, 2], 8), (2, [], 9))], encode, PAGE).sessions
    assert [call.reusable for call in session.calls] == [1, 2]


def test_a_larger_block_is_cut_into_pages() -> None:
    session = Session("s", (Call(0, blocks=(5,), facts=Facts(prompt_tokens=9)),), "here", block_tokens=8)
    prompt = page([session], encode, PAGE).sessions[0].calls[0].prompt
    assert len(prompt) == 2
    assert prompt[0] != prompt[1]


def test_messages_are_encoded_as_a_template_writes_them_and_cut_into_pages() -> None:
    question, answer, more = said("user", "what?"), said("assistant", "that"), said("user", "and?")
    session = Session("s", (Call(0, (question,), answer), Call(1, (answer, more), answer)), "here")
    first, second = page([session], encode, PAGE).sessions[0].calls
    text = rendered(question)
    assert first.prompt_tokens == len(text)
    assert first.output_tokens == len(rendered(answer))
    assert len(first.prompt) == len(text) // PAGE
    assert second.extends
    whole = (len(text) + len(rendered(answer))) // PAGE
    assert [*first.prompt.tolist(), *first.output.tolist()] == second.prompt[:whole].tolist()


def test_a_rewritten_message_changes_all_that_follows_it() -> None:
    first, second, other = said("user", "a" * 40), said("user", "b" * 40), said("user", "c" * 40)
    session = Session("s", (Call(0, (first, second)), Call(1, (other,))), "here")
    before, after = page([session], encode, PAGE).sessions[0].calls
    kept = len(rendered(first)) // PAGE
    assert before.prompt[:kept].tolist() == after.prompt[:kept].tolist()
    assert before.prompt[-1] != after.prompt[-1]
    assert not after.extends


def test_what_a_log_of_messages_hides_stands_first() -> None:
    session = Session("s", (Call(0, (said("user", "hello"),)),), "here", hidden=Hidden("system", 3 * PAGE))
    twice = page([session, session], encode, PAGE)
    call = twice.sessions[0].calls[0]
    assert call.prompt_tokens == 3 * PAGE + len(rendered(said("user", "hello")))
    assert twice.sessions[1].calls[0].prompt.tolist() == call.prompt.tolist()


def test_children_are_linked_by_the_index_of_their_parent_and_empty_sessions_left_out() -> None:
    call = Call(0, blocks=(1,), facts=Facts(prompt_tokens=5))
    empty = Session("empty", (), "here", PAGE)
    parent = Session("parent", (call,), "here", PAGE)
    child = Session("child", (call,), "here", PAGE, origin=Origin("parent", after_call=1))
    workload = page([empty, parent, child], encode, PAGE)
    assert [session.name for session in workload.sessions] == ["parent", "child"]
    assert workload.left_out == {LeftOut.NO_CALLS: Left(1)}
    assert workload.sessions[1].parent == 0
    assert workload.sessions[1].after_call == 1
    assert workload.calls == 2
    assert workload.prompt_tokens == 10
    assert workload.mean_peak_pages == 1


ONE_CALL = (Call(0, blocks=(1,), facts=Facts(prompt_tokens=5)),)


def named(name: str, parent: str = "", tokens: int = 5) -> Session:
    (call,) = ONE_CALL
    calls = (replace(call, facts=Facts(prompt_tokens=tokens)),)
    return Session(name, calls, "here", PAGE, origin=Origin(parent, Link.SPAWN if parent else Link.NONE))


def too_long(calls: Sequence[Facts]) -> LeftOut | None:
    return LeftOut.LONG_PROMPT if calls[0].prompt_tokens > 100 else None


def test_a_session_without_its_parent_is_left_out_and_counted() -> None:
    workload = page([named("child", "absent"), named("grandchild", "child")], encode, PAGE)
    assert workload.sessions == ()
    assert workload.left_out == {
        LeftOut.PARENT_UNKNOWN: Left(1, 1, 5),
        LeftOut.PARENT_LEFT_OUT: Left(1, 1, 5),
    }


def test_a_child_is_never_given_to_a_namesake_of_its_parent() -> None:
    """Files of one directory may call their sessions alike."""
    sessions = [named("p"), named("p", tokens=101), named("c", "p"), named("p"), named("c", "p")]
    workload = page(sessions, encode, PAGE, too_long)
    assert [(session.name, session.parent) for session in workload.sessions] == [
        ("p", -1),
        ("p", -1),
        ("c", 1),
    ]
    assert workload.left_out == {
        LeftOut.LONG_PROMPT: Left(1, 1, 101),
        LeftOut.PARENT_LEFT_OUT: Left(1, 1, 5),
    }


def test_what_is_left_out_for_what_is_recorded_is_never_cut() -> None:
    """Numbers that no machine holds in pages."""
    endless = Facts(prompt_tokens=10**15)
    hidden = Hidden("system", 10**15)
    sessions = [
        Session("length", (Call(0, facts=endless),), "here"),
        Session("blocks", (Call(0, blocks=(1,), facts=endless),), "here", PAGE),
        Session("text", (Call(0, (said("user", "hello"),)),), "here", hidden=hidden),
    ]
    left = page(sessions, encode, PAGE, too_long).left_out
    assert left == {LeftOut.LONG_PROMPT: Left(3, 3, 2 * 10**15)}


@pytest.mark.parametrize(
    ("origin", "facts", "what"),
    [
        (Origin(start_s=9e13), Facts(), r"start_s is 9e\+13"),
        (Origin(), Facts(Gap(seconds=2 * LATEST_S)), r"calls\[1\].gap is 8e\+09"),
        (Origin(), Facts(api_s=1e300), r"calls\[1\].api_s is 1e\+300"),
    ],
)
def test_a_time_that_no_clock_has_is_named(origin: Origin, facts: Facts, what: str) -> None:
    call = Call(0, blocks=(5,), facts=facts)
    session = Session("s", (*ONE_CALL, call), "x.jsonl, line 3", PAGE, origin=origin)
    with pytest.raises(CacheError, match=rf"^bad_trace: x.jsonl, line 3: {what} seconds") as refused:
        page([session], encode, PAGE)
    assert refused.value.kind is Kind.BAD_TRACE


def test_a_request_of_which_only_the_length_is_known_shares_nothing() -> None:
    request = Call(0, facts=Facts(prompt_tokens=9))
    stream = [Session(name, (request,), "here", origin=Origin(start_s=1.0)) for name in "ab"]
    workload = page(stream, encode, PAGE)
    one, other = (session.calls[0].prompt for session in workload.sessions)
    assert (len(one), len(other)) == (2, 2)
    assert one[0] != other[0]
    assert workload.requests


def test_sessions_that_go_on_are_no_stream_of_requests() -> None:
    assert not page([blocks((0, [1], 4), (1, [2], 8))], encode, PAGE).requests


@pytest.mark.parametrize("block_tokens", [2, 6])
def test_blocks_that_are_no_whole_pages_are_refused(block_tokens: int) -> None:
    session = Session(
        "s", (Call(0, blocks=(5,), facts=Facts(prompt_tokens=9)),), "x.jsonl, line 3", block_tokens
    )
    with pytest.raises(
        CacheError, match=r"x.jsonl, line 3 has blocks of \d tokens, no multiple of 4"
    ) as refused:
        page([session], encode, PAGE)
    assert refused.value.kind is Kind.BAD_TRACE


def test_a_prompt_of_no_tokens_finds_nothing() -> None:
    session = Session("s", (Call(0, facts=Facts()),), "here", PAGE)
    assert page([session], encode, PAGE).sessions[0].calls[0].reusable == 0

"""Traces as chats whose words are pages: the prompts that a worker reads are the pages of the trace."""

import json
from itertools import islice

import numpy as np
import pytest

from agentcache.errors import CacheError, Kind
from agentcache.replay.paged import PagedCall, Workload, page
from agentcache.replay.routed.pages import (
    TOOL,
    PageTokenizer,
    Turn,
    in_whole_pages,
    spoken_by,
    tools_of,
    waits_for,
    words,
)
from agentcache.replay.synth import synthesize
from agentcache.replay.trace import Call, Facts, Gap, Session
from agentcache.router.tool_results import results_in
from agentcache.waits import WaitKind
from agentcache.worker.tools import Called, ToolCallParser


def made(kind: str = "swe-agent", sessions: int = 3) -> Workload:
    return in_whole_pages(page(synthesize(kind, sessions, 1), lambda text: text.encode()[::4]))


def told(*calls: Call) -> Session:
    return Session("s", calls, "here", block_tokens=64)


def call(
    keep: int, blocks: tuple[int, ...], tokens: int, kind: WaitKind = WaitKind.TOOL, **facts: object
) -> Call:
    return Call(keep, blocks=blocks, facts=Facts(Gap(kind, 1.0), prompt_tokens=tokens, **facts))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["swe-agent", "claude-code"])
def test_a_worker_reads_the_pages_of_the_trace(kind: str) -> None:
    workload = made(kind)
    tokenizer = PageTokenizer({})
    for session in workload.sessions:
        before: PagedCall | None = None
        answered: tuple[str, ...] = ()
        for one in session.calls:
            messages = Turn(one, before, answered).messages()
            rendered = tokenizer.render(messages)
            assert rendered.tokens == tuple(one.prompt.tolist())
            assert 0 <= rendered.user_end_tokens <= len(rendered.tokens)
            kept = before is not None and np.array_equal(one.prompt[:1], before.prompt[:1])
            assert results_in({"messages": messages}) == frozenset(answered if kept else ())
            before, answered = one, (f"call-{one.turn}",)


def test_prompts_and_answers_have_a_page_at_least() -> None:
    workload = in_whole_pages(page([told(call(0, (), 10, output_tokens=3))], lambda _: []))
    [[one]] = [session.calls for session in workload.sessions]
    assert (len(one.prompt), len(one.output), one.reusable) == (1, 1, 0)
    assert (one.prompt_tokens, one.output_tokens) == (64, 64)
    assert one.output[0] != one.prompt[0]
    assert workload.before[one.output[0]] == one.prompt[0]
    assert len(workload.before) == max(one.prompt[0], one.output[0]) + 1


def test_the_last_page_of_a_prompt_is_computed() -> None:
    for session in made().sessions:
        assert all(one.reusable == len(one.prompt) - 1 for one in session.calls)


def test_answers_that_call_read_as_calls_of_the_traces_tools() -> None:
    named = (("bash", 1.0), ('a "quoted" one', None))
    session = told(call(0, (1,), 64, tools=named, finish="tool_calls"), call(1, (2,), 128, finish="stop"))
    workload = in_whole_pages(page([session], lambda _: []))
    [paged] = workload.sessions
    assert (tools_of(paged, 0), tools_of(paged, 1)) == (("bash", 'a "quoted" one'), ())
    reader = PageTokenizer(spoken_by(workload)).detokenizer()
    parts = ToolCallParser().push("".join(map(reader.push, paged.calls[0].output.tolist())))
    assert [part.name for part in parts if isinstance(part, Called)] == [
        "bash",
        'a "quoted" one',
    ]
    assert reader.push(int(paged.calls[1].output[-1])) == reader.flush() == ""


def test_whom_a_session_waits_for_is_told_as_to_the_lab() -> None:
    kinds = (WaitKind.UNKNOWN, WaitKind.TOOL, WaitKind.HUMAN)
    session = told(*(call(at, (at,), 64 * (at + 1), kind) for at, kind in enumerate(kinds)))
    [paged] = in_whole_pages(page([session], lambda _: [])).sessions
    assert [waits_for(paged, turn) for turn in range(3)] == [WaitKind.TOOL, WaitKind.HUMAN, WaitKind.HUMAN]
    assert tools_of(paged, 0) == (TOOL,)


def test_a_prompt_over_the_context_is_refused() -> None:
    tokenizer = PageTokenizer({})
    for refused in (
        lambda: tokenizer.encode("1 2 3", 2),
        lambda: tokenizer.render([{"role": "user", "content": "1 2 3"}], at_most=2),
    ):
        with pytest.raises(CacheError) as error:
            refused()
        assert error.value.kind is Kind.PROMPT_TOO_LONG


def test_heads_end_where_their_messages_do() -> None:
    chat = [
        {"role": "system", "content": "1 2"},
        {"role": "user", "content": "3"},
        {"role": "tool", "content": "4"},
    ]
    rendered = PageTokenizer({}).render(chat, heads=(1, 3))
    assert (rendered.tokens, rendered.user_end_tokens, rendered.head_tokens) == ((1, 2, 3, 4), 3, (2, 4))
    assert PageTokenizer({}).spell(rendered.tokens) == words([1, 2, 3, 4]) == "1 2 3 4"


def test_the_trace_as_it_was_read_stays_as_it_was() -> None:
    read = page(islice(synthesize("swe-agent", 2, 1), 2), lambda text: text.encode()[::4])
    before = json.dumps([one.prompt.tolist() for session in read.sessions for one in session.calls])
    in_whole_pages(read)
    assert before == json.dumps([one.prompt.tolist() for session in read.sessions for one in session.calls])

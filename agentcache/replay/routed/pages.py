"""A workload in pages as chats that a worker takes: every page of the trace is one token, and one word of a message.

    prompt of call n:   user: the pages that it shares with the prompt before ┆ assistant: its call ┆ tool: the rest
    answer of call n:   the pages that the trace says, the last of which reads as a call of the trace's tool

A worker for such chats has pages of one token (`PAGE`), and pools and speeds in pages.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from agentcache.engine.parts import NO_LIMIT, too_long
from agentcache.engine.tokenizer import Rendered
from agentcache.replay.paged import ROOT, PagedCall, PagedSession, Workload
from agentcache.waits import WaitKind, kind_of

PAGE = 1
TOOL = "tool"
"""What a tool is called of which the trace does not say the name."""

Message = dict[str, Any]


def in_whole_pages(workload: Workload) -> Workload:
    """The workload as a worker can have it whose tokens are its pages.

    A prompt has a page at least, of which one is computed; so has an answer; and both end with a page.
    """
    before = list(map(int, workload.before))
    sessions = tuple(
        replace(session, calls=tuple(_whole(call, before, workload.page_tokens) for call in session.calls))
        for session in workload.sessions
    )
    content = workload.content
    if len(content):  # pages of their own say what nobody else's do
        added = len(before) - len(content)
        content = np.concatenate((content, content.max() + 1 + np.arange(added, dtype=np.int32)))
    return replace(workload, sessions=sessions, before=np.array(before, dtype=np.int32), content=content)


def _whole(call: PagedCall, before: list[int], page_tokens: int) -> PagedCall:
    prompt, output = call.prompt, call.output
    if not len(prompt):
        prompt = _own(ROOT, before)
    if not len(output):
        output = _own(int(prompt[-1]), before)
    facts = replace(
        call.facts, prompt_tokens=len(prompt) * page_tokens, output_tokens=len(output) * page_tokens
    )
    return replace(call, prompt=prompt, output=output, reusable=len(prompt) - 1, facts=facts)


def _own(previous: int, before: list[int]) -> "np.ndarray[Any, np.dtype[np.int32]]":
    before.append(previous)
    return np.array([len(before) - 1], dtype=np.int32)


def waits_for(session: PagedSession, turn: int) -> WaitKind:
    """Whom a session waits for after a turn, as its answer says it (as `lab.scripts`)."""
    if finish := session.calls[turn].facts.finish:
        return kind_of(finish)
    wait = min(turn + 1, len(session.calls) - 1)
    return session.calls[wait].kind if wait else WaitKind.UNKNOWN


def tools_of(session: PagedSession, turn: int) -> tuple[str, ...]:
    """What an answer calls; () for one that calls nothing."""
    if waits_for(session, turn) is not WaitKind.TOOL:
        return ()
    named = dict.fromkeys(name for name, _ in session.calls[turn].facts.tools if name)
    return tuple(named) or (TOOL,)


@dataclass(frozen=True, slots=True)
class Turn:
    """One call as a chat request. `answered`: the ids of the calls that the answer before it had."""

    call: PagedCall
    before: PagedCall | None
    answered: tuple[str, ...] = ()

    def messages(self) -> list[Message]:
        """What the answer before this brought, and its results, come last."""
        prompt = self.call.prompt
        kept = _shared(self.before.prompt, prompt) if self.before else 0
        said: list[Message] = [{"role": "user", "content": words(prompt[:kept])}] if kept else []
        rest = words(prompt[kept:])
        if not (kept and self.answered):
            return [*said, {"role": "user", "content": rest}] if rest or not said else said
        calls = [
            {"id": one, "type": "function", "function": {"name": TOOL, "arguments": "{}"}}
            for one in self.answered
        ]
        said.append({"role": "assistant", "content": "", "tool_calls": calls})
        results = [{"role": "tool", "tool_call_id": one, "content": ""} for one in self.answered]
        results[-1]["content"] = rest
        return [*said, *results]


def words(pages: Sequence[int] | np.ndarray[Any, Any]) -> str:
    """Pages as text."""
    return " ".join(map(str, pages.tolist() if isinstance(pages, np.ndarray) else pages))


def _shared(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> int:
    """How many leading pages are equal; ids are whole prefixes, so the last that is equal says it."""
    length = min(len(one), len(other))
    unequal = np.flatnonzero(one[:length] != other[:length])
    return int(unequal[0]) if len(unequal) else length


class PageTokenizer:
    """Words to pages and back, as a worker's tokenizer: a word is the number of a page, a page one token.

    `spoken` says what a page reads as in an answer; the others read as nothing. Roles, tools and calls take no token.
    """

    stop_tokens: tuple[int, ...] = ()
    special_tokens: tuple[int, ...] = ()
    bytes_per_token = 0

    def __init__(self, spoken: Mapping[int, str]) -> None:
        self._spoken = spoken

    def encode(self, text: str, at_most: int = NO_LIMIT) -> tuple[int, ...]:
        """Errors: PROMPT_TOO_LONG; ValueError for words that are no numbers."""
        tokens = tuple(map(int, text.split()))
        if len(tokens) > at_most:
            raise too_long(at_most)
        return tokens

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
        at_most: int = NO_LIMIT,
        heads: Sequence[int] = (),
    ) -> Rendered:
        """The contents of all messages, one after the other. Errors: as `encode`."""
        ends = [0]
        tokens: list[int] = []
        for message in messages:
            tokens += map(int, str(message.get("content") or "").split())
            ends.append(len(tokens))
        if len(tokens) > at_most:
            raise too_long(at_most)
        asked = [at for at, message in enumerate(messages, 1) if message["role"] == "user"]
        return Rendered(tuple(tokens), ends[asked[-1]] if asked else 0, tuple(ends[head] for head in heads))

    def spell(self, tokens: Sequence[int]) -> str:
        return words(tokens)

    def detokenizer(self) -> "_Reader":
        return _Reader(self._spoken)


@dataclass(frozen=True, slots=True)
class _Reader:
    spoken: Mapping[int, str] = field(default_factory=dict)

    def push(self, token: int) -> str:
        return self.spoken.get(token, "")

    def flush(self) -> str:
        return ""


def spoken_by(workload: Workload) -> dict[int, str]:
    """What the last pages of answers read as: calls of the trace's tools."""
    return {page: "".join(map(_called, tools)) for page, tools in _last_pages(workload)}


def _last_pages(workload: Workload) -> Iterator[tuple[int, tuple[str, ...]]]:
    for session in workload.sessions:
        for call in session.calls:
            if tools := tools_of(session, call.turn):
                yield int(call.output[-1]), tools


def _called(tool: str) -> str:
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': {}})}</tool_call>"

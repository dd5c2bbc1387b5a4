"""A trace made ready for replay in pages: every prompt is an array of page ids, every id a whole prefix.

    sessions of messages ─► tokens ─┐
                                    ├─► pages, each an id that stands for itself and all before it
    sessions of blocks ─────────────┘

Two prompts share a prefix of n pages where their first n ids are equal, and nowhere else. A cache that works in pages
of one token (`page_tokens` 1) takes the ids for tokens, and its pools' slots for pages.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from agentcache.errors import CacheError, Kind
from agentcache.replay.trace import LATEST_S, Facts, Message, Session
from agentcache.waits import WaitKind

PAGE_TOKENS = 64
Pages = NDArray[np.int32]
Encode = Callable[[str], Sequence[int]]
"""The tokens of a text."""

ROOT = 0
"""The id before every first page."""


class LeftOut(StrEnum):
    """Why a session of a trace is not in its workload."""

    NO_CALLS = "no_calls"
    LONG_PROMPT = "long_prompt"
    LONG_LIFE = "long_life"
    PARENT_LEFT_OUT = "parent_left_out"
    PARENT_UNKNOWN = "parent_unknown"  # the trace has no session of that name before it


@dataclass(frozen=True, slots=True)
class Left:
    """How much of a trace was left out for one reason; `prompt_tokens` as far as they are known."""

    sessions: int = 0
    calls: int = 0
    prompt_tokens: int = 0

    def and_(self, calls: Sequence[Facts]) -> "Left":
        """With one session more."""
        tokens = sum(call.prompt_tokens for call in calls)
        return Left(self.sessions + 1, self.calls + len(calls), self.prompt_tokens + tokens)


LeaveOut = Callable[[Sequence[Facts]], LeftOut | None]
"""Whether a session with these calls is to be left out. Asked twice: of what is recorded, and of what is replayed."""


def nobody(_: Sequence[Facts]) -> LeftOut | None:
    """Leaves no session out."""
    return None


@dataclass(frozen=True, slots=True, eq=False)
class PagedCall:
    """One call of a session. `extends`: the prompt goes on from the one before it.

    Shapes  prompt, output: int32[pages], whole pages; `output` are those that the answer fills, as far as the next
            prompt of the session holds it (the others are like nobody else's)
    Units   `reusable`: pages of the prompt that may come from a cache: at least one token is computed
            `gap_s`: seconds since the end of the call before; None: not known
    """

    session: int
    turn: int
    prompt: Pages
    output: Pages
    reusable: int
    extends: bool
    gap_s: float | None
    kind: WaitKind
    facts: Facts

    @property
    def key(self) -> tuple[int, int]:
        """What tells it from all others of its workload."""
        return self.session, self.turn

    @property
    def prompt_tokens(self) -> int:
        return self.facts.prompt_tokens

    @property
    def output_tokens(self) -> int:
        return self.facts.output_tokens

    @property
    def peak_pages(self) -> int:
        return len(self.prompt) + len(self.output)


@dataclass(frozen=True, slots=True, eq=False)
class PagedSession:
    """`parent` is the index of another session, -1: none; `after_call` of its calls have ended when this one begins."""

    index: int
    name: str
    calls: tuple[PagedCall, ...]
    parent: int = -1
    after_call: int = 0
    start_s: float | None = None

    @property
    def peak_pages(self) -> int:
        return max(call.peak_pages for call in self.calls)


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Sessions in file order. `left_out`: what of the trace is not among them, and why.

    Shapes  before: int32[ids], the page before each page; `before[ROOT]` is ROOT
            content: int32[ids], what a page says, where several do not share pages that say the same; else empty
    """

    sessions: tuple[PagedSession, ...]
    before: Pages
    page_tokens: int = PAGE_TOKENS
    left_out: Mapping[LeftOut, Left] = field(default_factory=dict)
    content: Pages = field(default_factory=lambda: np.empty(0, dtype=np.int32))

    @property
    def requests(self) -> bool:
        """Whether this is a stream of single requests at recorded times: nobody waits for an answer to go on."""
        alone = (len(session.calls) == 1 and session.start_s is not None for session in self.sessions)
        return all(alone)

    @property
    def calls(self) -> int:
        return sum(len(session.calls) for session in self.sessions)

    @property
    def prompt_tokens(self) -> int:
        return sum(call.prompt_tokens for session in self.sessions for call in session.calls)

    @property
    def mean_peak_pages(self) -> float:
        """The unit of capacities: what a session holds at its largest, on the average."""
        return sum(session.peak_pages for session in self.sessions) / len(self.sessions)


def page(
    sessions: Iterable[Session],
    encode: Encode,
    page_tokens: int = PAGE_TOKENS,
    leave_out: LeaveOut = nobody,
) -> Workload:
    """Cut the sessions of a trace into pages. Without calls, or without its parent, a session is left out.

    Errors  CacheError(BAD_TRACE): blocks that are no whole pages, times that no clock has
    Cost    O(pages of all prompts) and the encoding of every message once
    """
    numbers = _Numbers()
    paged: list[PagedSession] = []
    left_out: dict[LeftOut, Left] = {}
    at: dict[str, int] = {}
    for session in sessions:
        _check_times(session)
        calls: tuple[PagedCall, ...] = ()
        facts = [call.facts for call in session.calls]
        why = _unready(session, at) or leave_out(_at_least(session, facts))
        if not why:
            calls = _Paging(session, encode, page_tokens, numbers).calls(len(paged))
            facts = [call.facts for call in calls]
            why = leave_out(facts)
        at[session.name] = _LEFT_OUT if why else len(paged)
        if why:
            left_out[why] = left_out.get(why, Left()).and_(facts)
        else:
            origin = session.origin
            parent = at[origin.parent] if origin.parent else -1
            paged.append(
                PagedSession(len(paged), session.name, calls, parent, origin.after_call, origin.start_s)
            )
    return Workload(tuple(paged), np.array(numbers.before, dtype=np.int32), page_tokens, left_out)


_LEFT_OUT = -2
"""In place of an index: the latest session of that name has none."""


def _unready(session: Session, at: Mapping[str, int]) -> LeftOut | None:
    """Why a session cannot be replayed, whatever is chosen."""
    parent = session.origin.parent
    if parent and parent not in at:
        return LeftOut.PARENT_UNKNOWN
    if parent and at[parent] == _LEFT_OUT:
        return LeftOut.PARENT_LEFT_OUT
    return None if session.calls else LeftOut.NO_CALLS


def _at_least(session: Session, facts: Sequence[Facts]) -> Sequence[Facts]:
    """What is known of the calls before they are cut: of a text, how much is hidden before it."""
    if session.block_tokens or not any(call.added for call in session.calls):
        return facts
    return [replace(one, prompt_tokens=session.hidden.tokens) for one in facts]


def _check_times(session: Session) -> None:
    """Errors: BAD_TRACE for times that cannot be counted in nanoseconds."""
    times = {"start_s": session.origin.start_s}
    for turn, call in enumerate(session.calls):
        times |= {f"calls[{turn}].gap": call.facts.gap.seconds, f"calls[{turn}].api_s": call.facts.api_s}
    for what, seconds in times.items():
        if abs(seconds or 0.0) > LATEST_S:
            said = f"{session.place}: {what} is {seconds:g} seconds, a time that no clock has"
            raise CacheError(Kind.BAD_TRACE, f"{said}. Repair or remove it")


@dataclass(slots=True)
class _Numbers:
    """Gives every prefix its number: a page after a prefix, known by what it says."""

    before: list[int] = field(default_factory=lambda: [ROOT])
    known: dict[tuple[int, object], int] = field(default_factory=dict)

    def after(self, previous: int, said: object) -> int:
        number = self.known.setdefault((previous, said), len(self.before))
        if number == len(self.before):
            self.before.append(previous)
        return number

    def of_its_own(self, previous: int, count: int) -> list[int]:
        """Pages like nobody else's."""
        numbers = []
        for _ in range(count):
            numbers.append(len(self.before))
            self.before.append(previous)
            previous = numbers[-1]
        return numbers


class _Paging:
    """One session's prompts, each grown from the one before it."""

    def __init__(self, session: Session, encode: Encode, page_tokens: int, numbers: _Numbers) -> None:
        self._session = session
        self._encode = encode
        self._page = page_tokens
        self._numbers = numbers

    def calls(self, index: int) -> tuple[PagedCall, ...]:
        grown = list(self._grown())
        paged = []
        for turn, (call, (prompt, tokens, answered)) in enumerate(
            zip(self._session.calls, grown, strict=True)
        ):
            after = grown[turn + 1][0] if turn + 1 < len(grown) else []
            output_tokens = answered or call.facts.output_tokens
            facts = replace(call.facts, prompt_tokens=tokens, output_tokens=output_tokens)
            filled = (facts.prompt_tokens + facts.output_tokens) // self._page - len(prompt)
            output = self._output(prompt, after, max(0, filled))
            extends = turn == 0 or prompt[: len(grown[turn - 1][0])] == grown[turn - 1][0]
            paged.append(
                PagedCall(
                    session=index,
                    turn=turn,
                    prompt=np.array(prompt, dtype=np.int32),
                    output=np.array(output, dtype=np.int32),
                    reusable=min(len(prompt), max(0, tokens - 1) // self._page),
                    extends=extends,
                    gap_s=call.facts.gap.seconds,
                    kind=call.facts.gap.kind,
                    facts=facts,
                )
            )
        return tuple(paged)

    def _output(self, prompt: list[int], after: list[int], filled: int) -> list[int]:
        """The pages that the answer fills: those of the next prompt where it goes on, or else nobody's."""
        if after[: len(prompt)] == prompt:
            return after[len(prompt) : len(prompt) + filled]
        return self._numbers.of_its_own(prompt[-1] if prompt else ROOT, filled)

    def _grown(self) -> Iterable[tuple[list[int], int, int]]:
        """The pages of every prompt, its tokens, and those of its answer where a tokenizer made them (or 0)."""
        if self._session.block_tokens:
            return self._in_blocks()
        if any(call.added for call in self._session.calls):
            return self._in_tokens()
        return self._unsaid()

    def _unsaid(self) -> Iterable[tuple[list[int], int, int]]:
        """Prompts of which nothing is known but their length are like nobody else's."""
        for call in self._session.calls:
            tokens = call.facts.prompt_tokens
            yield self._numbers.of_its_own(ROOT, tokens // self._page), tokens, 0

    def _in_blocks(self) -> Iterable[tuple[list[int], int, int]]:
        """Pages of whole blocks; a block is cut into as many pages as it has."""
        session = self._session
        parts, rest = divmod(session.block_tokens, self._page)
        if rest or not parts:
            faulty = (
                f"{session.place} has blocks of {session.block_tokens} tokens, no multiple of {self._page}"
            )
            raise CacheError(Kind.BAD_TRACE, f"{faulty}: its prompts cannot be cut into pages")
        history: list[int] = []
        for call in session.calls:
            history = history[: call.keep * parts]
            for block in call.blocks:
                for part in range(parts):
                    said = self._said(block, part, len(history))
                    history.append(self._numbers.after(history[-1] if history else ROOT, said))
            yield list(history), call.facts.prompt_tokens or len(history) * self._page, 0

    def _said(self, block: int, part: int, position: int) -> object:
        """What a block stands for: the same in all sessions of its scope, or in all that share its prefix."""
        shared = self._session.hidden
        if shared.name and position < shared.tokens // self._page:
            return (shared.name, position)
        return (self._session.scope, block, part)

    def _in_tokens(self) -> Iterable[tuple[list[int], int, int]]:
        hidden = self._session.hidden
        told: list[Sequence[int]] = []
        pages: list[int] = []
        beginning: list[object] = [(hidden.name, at) for at in range(hidden.tokens)]
        for call in self._session.calls:
            told = [*told[: call.keep], *(self._encode(rendered(message)) for message in call.added)]
            kept = len(beginning) + sum(map(len, told[: call.keep]))
            tokens = [*beginning, *(token for part in told for token in part)]
            pages = pages[: kept // self._page]
            whole = len(tokens) // self._page
            for at in range(len(pages), whole):
                said = tuple(tokens[at * self._page : (at + 1) * self._page])
                pages.append(self._numbers.after(pages[-1] if pages else ROOT, said))
            answered = len(self._encode(rendered(call.recorded))) if call.recorded else 0
            yield list(pages), len(tokens), answered


def rendered(message: Message) -> str:
    """A message as most chat templates write it."""
    parts = [message.get("content"), message.get("tool_calls")]
    said = [part if isinstance(part, str) else json.dumps(part, ensure_ascii=False) for part in parts if part]
    return f"<|im_start|>{message.get('role')}\n{''.join(said)}<|im_end|>\n"

"""One request: its place in the queue; once admitted what it has computed, may still publish, and has said."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from agentcache.cache import ActiveTurn, Prompt, Ticket
from agentcache.clock import Clock
from agentcache.engine.api import Admitted, Course, Finished, FinishReason, GenerateRequest, Token
from agentcache.engine.computing import END, Chooser, State
from agentcache.engine.publish import Need
from agentcache.errors import CacheError
from agentcache.types import ComponentName, Slots, Tokens


@dataclass(slots=True)
class Waiting:
    """A request in the queue: its place in its session, what it will ask the cache for, and how it came here."""

    request: GenerateRequest
    ticket: Ticket
    prompt: Prompt
    course: Course

    def seated(self, arrived: bool, clock: Clock) -> bool:
        """Whether it can take a free seat: its prefix has `arrived`. Notes from when on it waited for that alone."""
        if not (arrived or self.course.awaited_ns):
            self.course = replace(self.course, awaited_ns=clock.now_ns())
        return arrived


@dataclass(slots=True, eq=False)
class Work:
    """A request between admission and its end.

    `tokens` are the prompt and what was generated; the last generated one is not yet in `state`. `boundaries` are
    those still to be published, ascending, and `need` what that takes: planned once the turn is ready. `marked` are
    boundaries of what was cached where the client has marks. `leased` are the slots reserved for it. `started`: its
    slots are reserved and its prefix restored.
    """

    request: GenerateRequest
    course: Course
    turn: ActiveTurn
    state: State
    chooser: Chooser[Any]
    boundaries: tuple[int, ...] = ()
    marked: tuple[int, ...] = ()
    need: Need = field(default_factory=dict)
    planned: bool = False
    tokens: list[int] = field(init=False)
    leased: dict[ComponentName, Slots] = field(default_factory=dict)
    started: bool = False
    prefill_ns: int = 0
    first_token_ns: int = 0
    first_logits: str = ""

    def __post_init__(self) -> None:
        self.tokens = list(self.request.tokens)

    @property
    def prompt_tokens(self) -> int:
        return len(self.request.tokens)

    @property
    def completion_tokens(self) -> int:
        return len(self.tokens) - self.prompt_tokens

    def path(self, end: int) -> Tokens:
        """The first `end` tokens of prompt and answer. Shapes: int32[end]."""
        return np.array(self.tokens[:end], dtype=np.int32)

    def admitted(self) -> Admitted:
        turn, ticket = self.turn, self.turn.ticket
        return Admitted(
            self.request.request_id,
            turn.cached,
            turn.full_tokens,
            turn.miss,
            ticket.session,
            ticket.generation,
            ticket.state,
            ticket.parent_ignored,
            (*self.marked, *self.boundaries),
            turn.found,
            self.course,
        )

    def said(self, row: Any, now_ns: int) -> Token | FinishReason:
        """Choose the next token from a row of the runner's logits: the event to emit, or STOP.

        Errors  ENGINE_FAILED for logits that are no numbers
        """
        choice = self.chooser.choose(row)
        if not self.first_token_ns:
            self.first_token_ns = now_ns - self.course.submitted_ns
            self.first_logits = self.chooser.digest(row) if self.request.digest_logits else ""
        if choice.token == END or choice.token in self.request.stop_tokens:
            return FinishReason.STOP
        self.tokens.append(choice.token)
        return Token(self.request.request_id, choice.token, choice.top_margin)

    def finished(self, reason: FinishReason, error: CacheError | None) -> Finished:
        return Finished(
            self.request.request_id,
            reason,
            self.prompt_tokens,
            self.turn.cached,
            self.completion_tokens,
            self.first_token_ns,
            error,
            self.first_logits,
            self.prefill_ns,
        )

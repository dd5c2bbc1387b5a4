"""Replays sessions against a worker: several at once, each one turn after the other."""

import asyncio
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from agentcache.replay.client import Ask, WorkerClient
from agentcache.replay.outcome import Answer, Outcome, Refused
from agentcache.replay.trace import Session

NO_LIMIT = sys.maxsize
_LONGEST_NAME = 120
_NOT_IN_A_HEADER = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a trace is replayed: its first sessions, the first turns of each, tokens generated a turn.

    `at_once` sessions run at the same time.
    """

    sessions: int = NO_LIMIT
    turns: int = NO_LIMIT
    max_tokens: int = 16
    at_once: int = 4


@dataclass(frozen=True, slots=True)
class Mode:
    """How turns are sent. `run` begins every session id, so that two replays never meet in one session.

    A run without reuse sends no session: it must neither find nor leave anything. `keep_open` leaves the closing
    to the caller.
    """

    run: str
    reuse: bool = True
    digest: bool = False
    keep_open: bool = False

    def session_id(self, ordinal: int, name: str) -> str:
        """The id at the worker: unique in the run, and fit for a header whatever the trace calls the session."""
        readable = _NOT_IN_A_HEADER.sub("-", name)[:_LONGEST_NAME]
        return f"{self.run}-{ordinal}-{readable}" if self.reuse else ""


@dataclass(frozen=True, slots=True)
class Played:
    """One session as it was replayed: what became of each turn sent, of `in_trace` that the trace has."""

    name: str
    session: str
    turns: tuple[Outcome, ...]
    in_trace: int

    @property
    def answers(self) -> list[Answer]:
        return [turn for turn in self.turns if isinstance(turn, Answer)]

    @property
    def refusals(self) -> list[tuple[int, Refused]]:
        """Turns without an answer, with their numbers from 1."""
        return [(number, turn) for number, turn in enumerate(self.turns, 1) if isinstance(turn, Refused)]


OnTurn = Callable[[Outcome], None]
"""Told after every turn; for a progress bar."""


async def play(
    client: WorkerClient, sessions: Iterable[Session], limits: Limits, mode: Mode, on_turn: OnTurn
) -> list[Played]:
    """Replay the first sessions of a trace and answer them in its order.

    A session is taken from `sessions` only when its turn comes, so no more than `at_once` are in memory.

    Errors  CacheError(UNREACHABLE), and BAD_TRACE from the trace; sessions begun by then are closed first
    """
    waiting = enumerate(islice(sessions, limits.sessions))
    played: dict[int, Played] = {}

    async def take_turns() -> None:
        for ordinal, session in waiting:
            session_id = mode.session_id(ordinal, session.name)
            played[ordinal] = await play_session(client, session, session_id, (limits, mode), on_turn)

    tasks = [asyncio.create_task(take_turns()) for _ in range(min(limits.at_once, limits.sessions))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [played[ordinal] for ordinal in sorted(played)]


async def play_session(
    client: WorkerClient, session: Session, session_id: str, how: tuple[Limits, Mode], on_turn: OnTurn
) -> Played:
    """Replay one session. A turn that cannot fit is passed over; any other refusal ends the session."""
    limits, mode = how
    outcomes: list[Outcome] = []
    try:
        for messages in islice(session.prompts(), limits.turns):
            ask = Ask(messages, limits.max_tokens, session_id, mode.reuse, mode.digest)
            outcomes.append(await client.ask(ask))
            on_turn(outcomes[-1])
            if isinstance(outcomes[-1], Refused) and not outcomes[-1].skipped:
                break
    finally:
        if session_id and not mode.keep_open:
            await client.close_session(session_id)
    return Played(session.name, session_id, tuple(outcomes), len(session.calls))

"""Replays sessions against a worker: several at once, each one turn after the other."""

import asyncio
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from agentcache.replay.client import Ask, Prompt, WorkerClient
from agentcache.replay.families import Family, Member, families
from agentcache.replay.outcome import Answer, Outcome, Refused
from agentcache.replay.pacing import AT_ONCE, Pace
from agentcache.replay.spelling import TEXT_ONLY, Spelling
from agentcache.replay.trace import Session

NO_LIMIT = sys.maxsize
_LONGEST_NAME = 120
_NOT_IN_A_HEADER = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a trace is replayed: its first sessions, the first turns of each, tokens generated a turn.

    `at_once` sessions run at the same time, and their sub-agents beside them.
    """

    sessions: int = NO_LIMIT
    turns: int = NO_LIMIT
    max_tokens: int = 16
    at_once: int = 4


@dataclass(frozen=True, slots=True)
class Mode:
    """How turns are sent. `run` begins every session id, so that two replays never meet in one session.

    A run without reuse sends no session: it must neither find nor leave anything. `keep_open` leaves the closing
    to the caller. `spelling` of a trace that is told in blocks has the worker's vocabulary.
    """

    run: str
    reuse: bool = True
    digest: bool = False
    keep_open: bool = False
    spelling: Spelling = TEXT_ONLY
    pace: Pace = AT_ONCE

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

    A session is taken from `sessions` only when its turn comes, so no more than `at_once` are in memory, the next one,
    and the sub-agents that follow theirs in the trace: these begin when their parent has come so far, beside it.

    Errors  CacheError(UNREACHABLE), BAD_TRACE from the trace, BAD_REQUEST for a scale that is too small; sessions
            begun by then are closed first
    """
    waiting = families(islice(sessions, limits.sessions), mode.spelling)
    player = _Player(client, limits, mode, on_turn)

    async def take_turns() -> None:
        for family in waiting:
            await player.play(family, family.first, FROM_NOBODY)

    tasks = [asyncio.create_task(take_turns()) for _ in range(min(limits.at_once, limits.sessions))]
    try:
        await asyncio.gather(*tasks)
    finally:
        await _ended(tasks)
    return [player.played[ordinal] for ordinal in sorted(player.played)]


@dataclass(frozen=True, slots=True)
class Beginning:
    """The parent's session at the worker, and when the call ended after which a session begins."""

    parent: str = ""
    ended_ns: int = 0


FROM_NOBODY = Beginning()


class _Player:
    """Plays sessions one call after the other."""

    def __init__(self, client: WorkerClient, limits: Limits, mode: Mode, on_turn: OnTurn) -> None:
        self._client = client
        self._limits = limits
        self._mode = mode
        self._on_turn = on_turn
        self.played: dict[int, Played] = {}

    async def play(self, family: Family, member: Member, begins: Beginning) -> None:
        """One session, then what is left of its sub-agents; closed after them, so that they keep their parent.

        A turn that cannot fit is passed over; any other refusal ends the session.
        """
        session, session_id = member.session, self._mode.session_id(member.ordinal, member.session.name)
        turns = min(len(session.calls), self._limits.turns)
        children = family.begun_by(member, turns)
        begun: list[asyncio.Task[None]] = []
        outcomes: list[Outcome] = []
        ended_ns = begins.ended_ns

        def begin(some: Iterable[Member]) -> None:
            here = Beginning(session_id, ended_ns)
            begun.extend(asyncio.create_task(self.play(family, child, here)) for child in some)

        try:
            for turn, prompt in enumerate(islice(member.prompts, turns)):
                if turn or member is not family.first:
                    await self._mode.pace.wait(ended_ns, session.calls[turn].facts.gap)
                outcomes.append(await self._ask(prompt, session_id, begins.parent))
                ended_ns = self._mode.pace.clock.now_ns()
                begin(children.pop(turn + 1, ()))
                if isinstance(outcomes[-1], Refused) and not outcomes[-1].skipped:
                    break
            begin(child for some in children.values() for child in some)
            played = Played(session.name, session_id, tuple(outcomes), len(session.calls))
            self.played[member.ordinal] = played
            await asyncio.gather(*begun)
        finally:
            await _ended(begun)
            if session_id and not self._mode.keep_open:
                await self._client.close_session(session_id)

    async def _ask(self, prompt: Prompt, session_id: str, parent: str) -> Outcome:
        mode = self._mode
        ask = Ask(prompt, self._limits.max_tokens, session_id, mode.reuse, mode.digest, parent)
        outcome = await self._client.ask(ask)
        self._on_turn(outcome)
        return outcome


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """End those that still run, and wait until they have."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

"""The calls that `bench swebench` asks of an engine: which, in what order, at what moments of a scripted time.

A machine with a cache that loses nothing sets the times, once for all orders: what an engine does later changes nothing
of what it is asked, or when.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

from agentcache.engine.tokenizer import ChatTokenizer
from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.cells import Cell, Policy
from agentcache.replay.lab.replaying import replay_calls
from agentcache.replay.paged import page
from agentcache.replay.trace import Session

ROOM_FOR_ALL = 1.0
"""Of a cell whose policy has no room to fill."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A call arrives. `user_end_tokens` as in a request."""

    at_ns: int
    session: str
    turn: int
    tokens: tuple[int, ...]
    user_end_tokens: int


@dataclass(frozen=True, slots=True)
class Close:
    """A client says that its session is over."""

    at_ns: int
    session: str


Moment = Ask | Close


def choose(sessions: Iterable[Session], many: int, turns: int) -> list[Session]:
    """The first `turns` calls of `many` sessions that stand alone; a trace of fewer is told again under other names.

    A session told again begins with the number of its run, so it shares nothing with the first.
    Errors  BAD_TRACE where there is none, and for a session without text
    """
    found = list(islice((one for one in sessions if not one.origin.parent and one.calls), many))
    for one in found:
        if not one.has_text:
            said = f"{one.place} tells no text, and an engine is asked in text"
            raise CacheError(Kind.BAD_TRACE, f"{said}; --only lab replays it without an engine")
    if not found:
        raise CacheError(Kind.BAD_TRACE, "the trace has no session with a call; give one that has")
    told = (_again(one, run) for run in count(1) for one in found)
    return [replace(one, calls=one.calls[:turns]) for one in islice(told, many)]


def _again(session: Session, run: int) -> Session:
    if run == 1:
        return session
    first, *others = session.calls
    head, *rest = first.added
    head = {**head, "content": f"run {run}\n{head.get('content') or ''}"}
    calls = (replace(first, added=(head, *rest)), *others)
    return replace(session, name=f"{session.name} run {run}", calls=calls)


def write_script(
    sessions: Sequence[Session], batch: int, seed: int, tokenizer: ChatTokenizer
) -> list[Moment]:
    """Every call and close, in order, with `batch` sessions live on the average.

    Errors  BAD_REQUEST for messages that the tokenizer's template refuses
    """
    workload = page(sessions, tokenizer.encode)
    cell = Cell(Policy.UNBOUNDED, ROOM_FOR_ALL, live=batch)
    rendered = [[tokenizer.render(messages) for messages in session.prompts()] for session in sessions]
    moments: list[Moment] = []
    for done in replay_calls(workload, cell, seed):
        call, name = done.call, f"swebench-{done.call.session}"
        said = rendered[call.session][call.turn]
        moments.append(Ask(done.arrived_ns, name, call.turn, said.tokens, said.user_end_tokens))
        if call.turn + 1 == len(rendered[call.session]):
            moments.append(Close(done.ended_ns, name))
    return sorted(moments, key=lambda one: (one.at_ns, isinstance(one, Ask), one.session))


def prompts(script: Sequence[Moment]) -> dict[str, list[Ask]]:
    """The calls of each session, in turn."""
    by_session: dict[str, list[Ask]] = {}
    for moment in script:
        if isinstance(moment, Ask):
            by_session.setdefault(moment.session, []).append(moment)
    return by_session

"""A trace as Dynamo's `agentic_mooncake` version 2, from documentation: see `formats/dynamo.py`.

A session and its sub-agents are one play, in which block ids have a meaning of their own: what sessions share is lost.
So are text, whom a call waits for, and waits that are not known (they are told as 0). The form knows no forks: they are
told as spawned, with the ids of what they have of their parent.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any

from agentcache.replay.formats.dynamo import SCHEMA, VERSION
from agentcache.replay.paged import PagedCall, PagedSession, page
from agentcache.replay.trace import CHARACTERS_PER_TOKEN, Session


def dynamo_lines(sessions: Iterable[Session]) -> Iterator[Any]:
    """The header, then one line a call. Cost: the whole trace in memory, 4 bytes a page of each prompt."""
    workload = page(sessions, _as_tokens)
    yield {
        "schema": SCHEMA,
        "version": VERSION,
        "block_size": workload.page_tokens,
        "hash_id_scope": "local",
        "source": {"format": "agentcache", "digest": _digest(workload.sessions)},
    }
    yield from _Rows(workload.sessions, workload.page_tokens, len(workload.before))


def _digest(sessions: Iterable[PagedSession]) -> str:
    """What tells this trace from others: its names, times, lengths and pages."""
    digest = sha256()
    for session in sessions:
        digest.update(repr((session.name, session.parent, session.after_call, session.start_s)).encode())
        for call in session.calls:
            digest.update(repr((call.prompt_tokens, call.output_tokens, call.gap_s)).encode())
            digest.update(call.prompt.tobytes())
    return digest.hexdigest()


def _as_tokens(text: str) -> Sequence[int]:
    """Numbers of pieces of text, equal for equal pieces only: no tokenizer is asked."""
    pieces = (text[at : at + CHARACTERS_PER_TOKEN] for at in range(0, len(text), CHARACTERS_PER_TOKEN))
    return [int.from_bytes(piece.encode("utf-8", "surrogatepass"), "big") for piece in pieces]


class _Rows:
    """The rows of paged sessions. `unused`: the least id that no page has."""

    def __init__(self, sessions: Sequence[PagedSession], page_tokens: int, unused: int) -> None:
        self._sessions = sessions
        self._page = page_tokens
        self._unused = unused
        starts = (one.start_s for one in sessions if one.parent < 0 and one.start_s is not None)
        self._zero_s = min(starts, default=0.0)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for session in self._sessions:
            for call in session.calls:
                yield self._row(session, call)

    def _row(self, session: PagedSession, call: PagedCall) -> dict[str, Any]:
        begins = call.turn == 0 and session.parent < 0
        return {
            "request_id": _request(session, call.turn),
            "play_id": self._root(session).name,
            "session_id": session.name,
            "model": call.facts.model or "unknown",
            "input_length": max(1, call.prompt_tokens),
            "output_length": max(1, call.output_tokens),
            "hash_ids": self._ids(call),
            "not_before_ms": self._begins_ms(session) if begins else 0.0,
            "dependencies": [] if begins else [self._dependency(session, call)],
        }

    def _begins_ms(self, session: PagedSession) -> float:
        return 0.0 if session.start_s is None else _milliseconds(session.start_s - self._zero_s)

    def _root(self, session: PagedSession) -> PagedSession:
        while session.parent >= 0:
            session = self._sessions[session.parent]
        return session

    def _ids(self, call: PagedCall) -> list[int]:
        """The whole pages of the prompt, and for a rest an id that nothing else has."""
        tokens = max(1, call.prompt_tokens)
        ids: list[int] = call.prompt.tolist()[: tokens // self._page]
        while len(ids) * self._page < tokens:
            ids.append(self._unused)
            self._unused += 1
        return ids

    def _dependency(self, session: PagedSession, call: PagedCall) -> dict[str, Any]:
        """On the call before; a sub-agent's first one on its parent's last, or on the first where none had ended."""
        if call.turn:
            of, turn, relation = session, call.turn - 1, "sequence"
        else:
            of, turn, relation = self._sessions[session.parent], session.after_call - 1, "spawn"
        return {
            "request_id": _request(of, max(0, turn)),
            "trigger": "completion" if turn >= 0 else "dispatch",
            "delay_ms": _milliseconds(call.gap_s or 0.0),
            "relation": relation,
        }


def _request(session: PagedSession, turn: int) -> str:
    return f"{session.name}:{turn}"


def _milliseconds(seconds: float) -> float:
    """In whole microseconds, which is what a float of seconds since 1970 resolves."""
    return round(seconds * 1000, 3)

"""Reader for aiperf's `dag_jsonl`: conversations to be held, with branches.

From documentation (aiperf's models of the file), no recorded file was at hand. What is answered is not in the file:
prompts are told without the answers that aiperf puts between their messages, and `max_tokens` is taken for the length
of an answer. Definitions of tools come first in a prompt; how long they are is guessed from their text.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from agentcache.replay.formats.conversation import sent, wait_after
from agentcache.replay.formats.history import shared
from agentcache.replay.formats.record import Record, record_of
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import (
    CHARACTERS_PER_TOKEN,
    Call,
    Facts,
    Gap,
    Hidden,
    Link,
    Message,
    Origin,
    Session,
)

_MILLI = 1000
_WHOLE = "message_array_with_responses"
_TEMPLATES = ("orchestrator", "rounds", "spawns", "think_time_ms")


class AiperfReader:
    """`{session_id, turns: [{messages, forks?, spawns?, delay?}]}`, one conversation a line."""

    format = "aiperf dag_jsonl"
    description = "conversations to be held, with forks and spawns (.jsonl; from documentation)"
    document_is_session = True

    def accepts(self, first: Document) -> bool:
        value = first.value
        if (
            not isinstance(value, dict)
            or "session_id" not in value
            or not isinstance(value.get("turns"), list)
        ):
            return False
        turns = value["turns"]
        return not turns or (isinstance(turns[0], dict) and "messages" in turns[0])

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]:
        """Cost: a whole file in memory, since a branch may be told anywhere in it."""
        for source in files:
            records = [record_of(document.value, document) for document in source.documents()]
            yield from _Family(records).sessions()


@dataclass(frozen=True, slots=True)
class _Begun:
    """That a turn begins another conversation. `before`: the messages that a fork has already."""

    child: str
    origin: Origin
    before: Sequence[Message] = ()


class _Family:
    """The conversations of a file by name."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records: dict[str, Record] = {}
        for record in records:
            record.need("session_id", "turns")
            name = record.text("session_id")
            if name in self._records:
                raise record.bad("session_id", f"is {name!r}, which another conversation has")
            for template in _TEMPLATES:
                if template in record:
                    raise record.bad(template, "is there: an orchestrator sends nothing and is not read")
            self._records[name] = record

    def sessions(self) -> Iterator[Session]:
        """Parents before children, otherwise in the order of the file."""
        children = {child: record for record in self._records.values() for child in _named(record)}
        told: set[str] = set()
        for name in self._records:
            if name not in children:
                yield from self._below(_Begun(name, Origin()), told)
        for name, record in self._records.items():
            if name not in told:
                raise record.bad("session_id", f"is {name!r}, which begins only after itself")

    def _below(self, root: _Begun, told: set[str]) -> Iterator[Session]:
        waiting = [root]
        told.add(root.child)
        while waiting:
            begun = waiting.pop()
            session, branches = _session(self._records[begun.child], begun)
            yield session
            for at, branch in branches:
                field = f"{branch.origin.link}s"
                if branch.child not in self._records:
                    raise at.bad(field, f"names {branch.child!r}, which is no conversation of this file")
                if branch.child in told:
                    raise at.bad(field, f"names {branch.child!r}, which has begun elsewhere")
                told.add(branch.child)
            waiting += [branch for _, branch in reversed(branches)]


def _named(record: Record) -> Iterator[str]:
    yield from map(str, record.items("pre_session_spawns"))
    for turn in record.children("turns"):
        yield from (child for child, _ in _forks(turn))
        yield from (child for child, _ in _spawns(turn, 0))


def _forks(turn: Record) -> Iterator[tuple[str, bool]]:
    """Each child, and whether its parent goes on."""
    for fork in turn.items("forks"):
        if isinstance(fork, dict):
            yield str(fork.get("child")), fork.get("background") is True
        else:
            yield str(fork), False


def _spawns(turn: Record, number: int) -> Iterator[tuple[str, int]]:
    """Each child, and the turn of its parent that waits for it."""
    for spawn in turn.items("spawns"):
        if isinstance(spawn, dict):
            one = Record(spawn, turn.document, "spawns")
            join_at = one.count("join_at") if "join_at" in one else number + 1
            yield from ((str(child), join_at) for child in one.items("children"))
        else:
            yield str(spawn), number + 1


def _session(record: Record, begun: _Begun) -> tuple[Session, list[tuple[Record, _Begun]]]:
    """The conversation, and what its turns begin."""
    name, turns = record.text("session_id"), record.children("turns")
    calls: list[Call] = []
    branches = [
        (record, _Begun(str(child), Origin(name, Link.SPAWN))) for child in record.items("pre_session_spawns")
    ]
    history = list(begun.before)
    before: list[Message] = []
    joined: set[int] = set()
    for number, turn in enumerate(turns):
        turn.need("messages")
        authored = [sent(message) for message in turn.children("messages")]
        history = authored if record.text("context_mode") == _WHOLE else [*history, *authored]
        if not history:
            raise turn.bad("messages", "is empty")
        keep = shared(before, history)
        facts = _facts(turn, history[-1], number not in joined)
        calls.append(Call(keep, tuple(history[keep:]), facts=facts))
        before = history
        for child, _ in _forks(turn):
            branches.append((turn, _Begun(child, Origin(name, Link.FORK, number + 1), tuple(history))))
        for child, join_at in _spawns(turn, number):
            joined.add(join_at)
            branches.append((turn, _Begun(child, Origin(name, Link.SPAWN, number + 1))))
    hidden = tools_prefix(turns[0]) if turns else Hidden()
    return Session(name, tuple(calls), record.document.place, origin=begun.origin, hidden=hidden), branches


def _facts(turn: Record, last: Message, alone: bool) -> Facts:
    gap = Gap(wait_after(last), turn.seconds("delay", _MILLI) or 0.0, measured=alone)
    return Facts(gap, output_tokens=turn.count("max_tokens"), model=turn.text("model"))


def tools_prefix(record: Record) -> Hidden:
    """What definitions of tools are before the first message: equal for equal definitions."""
    tools: Sequence[Mapping[str, Any]] = record.items("tools")
    if not tools:
        return Hidden()
    text = json.dumps(tools, sort_keys=True)
    return Hidden(f"tools {sha256(text.encode()).hexdigest()[:12]}", len(text) // CHARACTERS_PER_TOKEN)

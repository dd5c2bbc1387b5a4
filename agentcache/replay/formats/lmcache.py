"""Reader for LMCache's agent traces: calls as text, each prompt one flat string, in any order.

A line says when its call was, not whether that is its start or its end: the time between two calls is the wait and
an answer together. Agents that share a session are told as one, prompts as they came.
"""

from collections.abc import Iterable, Iterator, Sequence

from agentcache.replay.formats.history import elapsed, said
from agentcache.replay.formats.record import Record, record_of
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import Call, Facts, Gap, Origin, Session
from agentcache.waits import WaitKind

_MICROSECONDS = 1_000_000


class LmCacheReader:
    """`{timestamp, input, output, session_id}`, one call a line. Cost: a whole file in memory, for its order."""

    format = "LMCache agent trace"
    description = "calls of agents as flat strings, with times (.jsonl)"
    document_is_session = False

    def accepts(self, first: Document) -> bool:
        value = first.value
        return isinstance(value, dict) and {"timestamp", "input", "output", "session_id"} <= value.keys()

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]:
        for source in files:
            sessions: dict[str, list[Record]] = {}
            for document in source.documents():
                record = record_of(document.value, document)
                record.need("input", "output", "session_id")
                record.needed("timestamp")
                sessions.setdefault(record.name("session_id"), []).append(record)
            for name, records in sessions.items():
                yield _session(name, sorted(records, key=_at_s))


def _at_s(record: Record) -> float:
    return record.needed("timestamp") / _MICROSECONDS


def _session(name: str, records: Sequence[Record]) -> Session:
    origin = Origin(start_s=_at_s(records[0]))
    return Session(name, tuple(_calls(records)), records[0].document.place, origin=origin)


def _calls(records: Sequence[Record]) -> Iterator[Call]:
    for turn, record in enumerate(records):
        gap = Gap()
        if turn:
            gap = Gap(WaitKind.UNKNOWN, elapsed(_at_s(records[turn - 1]), _at_s(record)), measured=False)
        prompt, answer = said("user", record.text("input")), said("assistant", record.text("output"))
        yield Call(0, (prompt,), answer, facts=Facts(gap))

"""Reader for TraceLab's round traces: times, tools and token counts of coding agents' calls, no content.

Prompts are made up of the counts: a call goes on from all of the prompt before it, unless it is shorter. Then as much
of it stays as the provider found in its cache. What the provider found for a session's very first call is taken for
the beginning of all sessions of this provider, model and project.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, groupby

from agentcache.replay.formats.history import elapsed
from agentcache.replay.formats.record import Record, record_of
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Origin, Session
from agentcache.waits import WaitKind

BLOCK_TOKENS = 64
_MILLI = 1000
_INPUTS = {"user_message": WaitKind.HUMAN, "tool_result": WaitKind.TOOL}


class TraceLabReader:
    """One call a line, the calls of a session together."""

    format = "TraceLab rounds"
    description = "times, tools and token counts of coding agents; prompts are made up of the counts (.jsonl)"
    document_is_session = False

    def accepts(self, first: Document) -> bool:
        value = first.value
        return isinstance(value, dict) and {"session_id", "round_index", "input_tokens_total"} <= value.keys()

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]:
        for source in files:
            records = (record_of(document.value, document) for document in source.documents())
            told: set[str] = set()
            for name, group in groupby(records, key=lambda record: record.name("session_id")):
                rounds = [_Round.of(record) for record in group]
                if name in told:
                    raise rounds[0].record.bad("session_id", f"is {name!r} again: sort the lines by session")
                told.add(name)
                yield _session(name, rounds)


@dataclass(frozen=True, slots=True)
class _Round:
    """One call. `asked_s`, `ended_s`: seconds since 1970, of the last thing sent and the last thing answered."""

    record: Record
    kind: WaitKind
    asked_s: float
    ended_s: float

    @classmethod
    def of(cls, record: Record) -> "_Round":
        record.need("session_id", "input_tokens_total", "timing_events")
        kind, asked_s, ended_s = WaitKind.UNKNOWN, 0.0, 0.0
        for event in record.children("timing_events"):
            event.need("event_type", "timestamp")
            at_s = event.moment("timestamp") or 0.0
            if event.text("event_type") in _INPUTS and at_s >= asked_s:
                kind, asked_s = _INPUTS[event.text("event_type")], at_s
            ended_s = max(ended_s, at_s)
        return cls(record, kind, asked_s or ended_s, ended_s)


def _session(name: str, rounds: Sequence[_Round]) -> Session:
    first = rounds[0].record
    origin = Origin(start_s=rounds[0].asked_s)
    calls = tuple(_calls(rounds))
    return Session(name, calls, first.document.place, BLOCK_TOKENS, name, origin, _hidden(first))


def _hidden(first: Record) -> Hidden:
    tokens = first.count("prefix_tokens")
    if first.count("round_index") or not tokens:
        return Hidden()
    return Hidden("/".join(first.text(name) for name in ("provider", "model", "project")), tokens)


def _calls(rounds: Sequence[_Round]) -> Iterator[Call]:
    numbers = count()
    before = 0
    for turn, now in enumerate(rounds):
        record = now.record
        if turn and now.asked_s < rounds[turn - 1].asked_s:
            raise record.bad("timing_events", "begin earlier than those of the round before")
        tokens = record.count("input_tokens_total")
        blocks = tokens // BLOCK_TOKENS
        keep = before if blocks >= before else min(blocks, record.count("prefix_tokens") // BLOCK_TOKENS)
        added = tuple(next(numbers) for _ in range(blocks - keep))
        yield Call(keep, blocks=added, facts=_facts(rounds, turn, tokens))
        before = blocks


def _facts(rounds: Sequence[_Round], turn: int, tokens: int) -> Facts:
    now = rounds[turn]
    record, tools = now.record, now.record.children("tools")
    gap = Gap(now.kind, elapsed(rounds[turn - 1].ended_s, now.asked_s)) if turn else Gap()
    return Facts(
        gap,
        elapsed(now.asked_s, now.ended_s),
        tokens,
        record.count("output_tokens"),
        record.count("prefix_tokens") if "prefix_tokens" in record else None,
        "tool_calls" if tools else "stop",
        record.text("model"),
        tuple((tool.text("tool_name"), tool.seconds("tool_wall_latency_ms", _MILLI)) for tool in tools),
    )

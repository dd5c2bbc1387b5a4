"""Reader for Dynamo's `agentic_mooncake`: requests as block ids, and which of them waits for which.

From documentation, no recorded file was at hand: version 2 by the types of Dynamo's mocker and the rows of its tests
(`dependencies`, one play is one run with ids of its own), and the rows before it (`wait_for`, without a header), by
Dynamo's guide. A guess: that `tool_events` of a row are the tools which the request before it called.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from agentcache.replay.formats.history import Names, shared
from agentcache.replay.formats.record import Record, record_of
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import ALONE, Call, Facts, Gap, Link, Origin, Session
from agentcache.waits import WaitKind

SCHEMA = "dynamo.agentic_mooncake"
VERSION = 2
_MILLI = 1000


@dataclass(frozen=True, slots=True)
class DynamoReader:
    """A header with the schema and then one request a line; or the requests alone, of any block size (the greatest
    power of two that fits all of them)."""

    format: str = "Dynamo agentic_mooncake"
    description: str = "requests as block ids, and what each waits for (.jsonl; from documentation)"
    document_is_session: bool = False

    def accepts(self, first: Document) -> bool:
        value = first.value
        if not isinstance(value, dict):
            return False
        return value.get("schema") == SCHEMA or {"request_id", "hash_ids"} <= value.keys()

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]:
        """Cost: a whole file in memory, since requests of sessions that wait for each other are mixed."""
        for source in files:
            yield from _read(source)


@dataclass(frozen=True, slots=True)
class _Wait:
    """For a request to end (or only to begin), and for some seconds after that."""

    request: str
    seconds: float
    ended: bool = True


@dataclass(frozen=True, slots=True)
class _Row:
    """One request, whichever version told it. `tools`: what was done before it."""

    record: Record
    play: str
    session: str
    waits: tuple[_Wait, ...]
    start_s: float | None
    kind: WaitKind = WaitKind.UNKNOWN
    tools: tuple[tuple[str, float | None], ...] = ()

    @property
    def prompt_tokens(self) -> int:
        return self.record.count("input_length") or self.record.count("input_tokens")

    @property
    def ids(self) -> Sequence[int]:
        ids: Sequence[int] = self.record.items("hash_ids")
        if not all(type(one) is int for one in ids):
            raise self.record.bad("hash_ids", "holds something that is not a whole number")
        return ids


@dataclass(slots=True)
class _Told:
    """A session as far as it is read, in order."""

    name: str
    scope: str
    place: str
    origin: Origin = ALONE
    rows: list[tuple[_Row, Gap]] = field(default_factory=list)


def _read(source: Source) -> Iterator[Session]:
    records = (record_of(document.value, document) for document in source.documents())
    first = next(records, None)
    if first is None:
        return
    if first.text("schema"):
        block_tokens = _header(first)
        rows = [_of_graph(record) for record in records]
    else:
        rows = [_of_waits(record) for record in chain([first], records)]
        block_tokens = _size(rows)
    for told in _Family(_own_clocks(rows)).told(rows):
        yield Session(
            told.name,
            tuple(_calls(told.rows, block_tokens)),
            told.place,
            block_tokens,
            told.scope,
            told.origin,
        )


def _header(record: Record) -> int:
    if record.text("schema") != SCHEMA:
        raise record.wrong("schema", f"not {SCHEMA}")
    if record.count("version") != VERSION:
        raise record.wrong("version", f"and this agentcache reads version {VERSION}")
    if record.text("hash_id_scope") not in ("", "local"):
        raise record.wrong("hash_id_scope", "not local")
    if not record.count("block_size"):
        raise record.wrong("block_size", "not at least 1 token")
    return record.count("block_size")


def _of_graph(record: Record) -> _Row:
    record.need("request_id", "play_id", "session_id", "hash_ids", "not_before_ms")
    waits = []
    for one in record.children("dependencies"):
        one.need("request_id", "trigger")
        if one.text("trigger") not in ("completion", "dispatch"):
            raise one.wrong("trigger", "neither completion nor dispatch")
        waits.append(
            _Wait(one.text("request_id"), _seconds(one, "delay_ms"), one.text("trigger") == "completion")
        )
    start_s = _seconds(record, "not_before_ms")
    return _Row(record, record.text("play_id"), record.text("session_id"), tuple(waits), start_s)


def _of_waits(record: Record) -> _Row:
    record.need("request_id", "hash_ids")
    name = "delay_ms" if "delay_ms" in record else "delay"
    tool_s = _seconds(record, "tool_wait_ms")
    seconds = _seconds(record, name) + tool_s
    events = record.children("tool_events")
    waits = []
    for number, one in enumerate(record.items("wait_for")):
        if not isinstance(one, str):
            raise record.bad(f"wait_for[{number}]", "is not a text")
        waits.append(_Wait(one, seconds))
    name = "timestamp" if "timestamp" in record else "created_time"
    start_s = _seconds(record, name) if name in record else None
    return _Row(
        record,
        "",
        record.text("session_id") or record.text("request_id"),
        tuple(waits),
        start_s,
        WaitKind.TOOL if tool_s or events else WaitKind.UNKNOWN,
        tuple((one.text("tool_class"), one.seconds("duration_ms", _MILLI)) for one in events),
    )


def _seconds(record: Record, name: str) -> float:
    return record.seconds(name, _MILLI) or 0.0


def _size(rows: Sequence[_Row]) -> int:
    """The last block of a prompt may be a part of one, which has an id or not."""
    fitting = [1 << power for power in range(12, -1, -1)]
    for row in rows:
        tokens, blocks = row.prompt_tokens, len(row.ids)
        fitting = [size for size in fitting if tokens // size <= blocks <= -(-tokens // size)]
        if not fitting:
            raise row.record.bad(
                "hash_ids", f"has {blocks} blocks, which fit {tokens} tokens at no size of the lines"
            )
    return max(fitting)


def _own_clocks(rows: Sequence[_Row]) -> bool:
    """Whether each play has a clock of its own: all begin at the same time, and there is more than one."""
    begins: dict[str, float | None] = {}
    for row in rows:
        begins.setdefault(row.play, row.start_s)
    return len(begins) > 1 and len(set(begins.values())) == 1


class _Family:
    """Puts the rows of a file together to sessions."""

    def __init__(self, own_clocks: bool) -> None:
        self._own_clocks = own_clocks
        self._names = Names()
        self._sessions: dict[tuple[str, str], _Told] = {}
        self._requests: dict[str, tuple[_Told, int]] = {}
        self._branched: dict[str, _Wait] = {}

    def told(self, rows: Iterable[_Row]) -> Iterable[_Told]:
        for row in rows:
            self._take(row)
        return self._sessions.values()

    def _take(self, row: _Row) -> None:
        record, request = row.record, row.record.text("request_id")
        if request in self._requests:
            raise record.bad("request_id", f"is {request!r}, which another request has")
        known = (row.play, row.session)
        if known not in self._sessions:
            self._sessions[known] = self._begun(row)
        told = self._sessions[known]
        told.rows.append((row, self._gap(row, told)))
        self._requests[request] = (told, len(told.rows) - 1)
        for child in record.items("branches"):
            self._branched.setdefault(str(child), _Wait(request, 0.0))

    def _begun(self, row: _Row) -> _Told:
        told = _Told(self._names.new(row.session), row.play, row.record.document.place)
        wait = self._first_wait(row)
        if wait:
            parent, turn = self._found(wait, row)
            told.origin = Origin(parent.name, Link.SPAWN, turn + wait.ended)
        elif not self._own_clocks:
            told.origin = Origin(start_s=row.start_s)
        return told

    def _first_wait(self, row: _Row) -> _Wait | None:
        return next(iter(row.waits), None) or self._branched.get(row.record.text("request_id"))

    def _found(self, wait: _Wait, row: _Row) -> tuple[_Told, int]:
        found = self._requests.get(wait.request)
        if found:
            return found
        name = "dependencies" if row.play else "wait_for"
        raise row.record.bad(name, f"names {wait.request!r}, and no line before it is that request")

    def _gap(self, row: _Row, told: _Told) -> Gap:
        """From the request before it; what waits for others too has no time of its own."""
        before = (
            [wait for wait in row.waits if self._found(wait, row)[0] is told] if told.rows else row.waits[:1]
        )
        if not before:
            return Gap(row.kind)
        (wait, *_) = before
        return Gap(row.kind, wait.seconds, measured=wait.ended and len(row.waits) == 1)


def _calls(rows: Sequence[tuple[_Row, Gap]], block_tokens: int) -> Iterator[Call]:
    before: Sequence[int] = ()
    for turn, (row, gap) in enumerate(rows):
        tokens, record = row.prompt_tokens, row.record
        ids = row.ids
        if len(ids) < tokens // block_tokens:
            raise record.bad("hash_ids", f"has {len(ids)} blocks, too few for {tokens} tokens")
        blocks = ids[: tokens // block_tokens]
        keep = shared(before, blocks)
        facts = Facts(
            gap,
            None,
            tokens,
            record.count("output_length") or record.count("output_tokens"),
            model=record.text("model"),
        )
        if turn + 1 < len(rows) and rows[turn + 1][0].kind is WaitKind.TOOL:
            facts = replace(facts, finish="tool_calls", tools=rows[turn + 1][0].tools)
        yield Call(keep, blocks=tuple(blocks[keep:]), facts=facts)
        before = blocks

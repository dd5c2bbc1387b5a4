"""Our own form of a trace, with nothing of a `Session` lost: one session a line, what has its default left out.

    {"agentcache_trace": 1, "name": "a", "calls": [{"keep": 0, "added": [{"role": "user", "content": "…"}]}]}

The fields are those of `trace.py`; `origin` is called `among` here. Only `place` is not written: it is where a session
was read, and that is here now.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any, TypeVar

from agentcache.replay.formats.record import Record, record_of
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Link, Message, Origin, Session
from agentcache.waits import WaitKind

VERSION = 1
MARK = "agentcache_trace"
"""The field that every line has, with the version of the form."""

_WRITTEN = {"origin": "among"}
"""What a field is called here, where that is not its name."""

_Choice = TypeVar("_Choice", bound=StrEnum)


def told(session: Session) -> dict[str, Any]:
    """The session as a line of JSON has it; equal sessions give equal lines, wherever they were read."""
    return {MARK: VERSION, **{name: value for name, value in _plain(session).items() if name != "place"}}


class AgentcacheReader:
    """What `told` makes, one session a line."""

    format = "agentcache"
    description = "what `agentcache trace convert` and `synth` write (.jsonl)"
    document_is_session = True

    def accepts(self, first: Document) -> bool:
        return isinstance(first.value, dict) and MARK in first.value

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]:
        """Errors: also for a name that is taken, and for a parent that is not before its child."""
        for source in files:
            names: set[str] = set()
            for document in source.documents():
                record = record_of(document.value, document)
                session = _session(record)
                if session.name in names:
                    raise record.bad("name", f"is {session.name!r}, which another session has")
                if session.origin.parent and session.origin.parent not in names:
                    among, parent = record.child("among"), session.origin.parent
                    raise among.bad("parent", f"is {parent!r}, which no session before it has as its name")
                names.add(session.name)
                yield session


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        found = ((one, getattr(value, one.name)) for one in fields(value))
        return {
            _WRITTEN.get(one.name, one.name): _plain(inner) for one, inner in found if inner != _default(one)
        }
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value


def _default(one: "Field[Any]") -> Any:
    return one.default if one.default_factory is MISSING else one.default_factory()


def _session(record: Record) -> Session:
    version = record.value.get(MARK)
    if type(version) is not int or version != VERSION:
        raise record.wrong(MARK, f"and this agentcache reads version {VERSION}")
    record.need("name", "calls")
    _refuse_others(record, Session, MARK)
    block_tokens = record.count("block_tokens")
    return Session(
        record.text("name"),
        tuple(_Calls(block_tokens).read(record.children("calls"))),
        record.document.place,
        block_tokens,
        record.text("scope"),
        _origin(record.child("among")),
        _hidden(record.child("hidden")),
    )


@dataclass(slots=True)
class _Calls:
    """Reads calls in order; `length` is that of the history so far, in blocks or in messages."""

    block_tokens: int
    length: int = field(default=0, init=False)

    def read(self, records: Sequence[Record]) -> Iterator[Call]:
        own, other = ("blocks", "added") if self.block_tokens else ("added", "blocks")
        for record in records:
            record.need("keep")
            _refuse_others(record, Call)
            if record.items(other):
                raise record.bad(other, f"is there, but this session is told in {own}")
            keep = record.count("keep")
            if keep > self.length:
                raise record.bad("keep", f"is {keep}, more than the {self.length} of the call before")
            added = tuple(_message(message) for message in record.children("added"))
            call = Call(
                keep,
                added,
                record.child("recorded").value,
                _blocks(record),
                _facts(record.child("facts")),
            )
            self.length = keep + len(record.items(own))
            self._check_length(record, call)
            yield call

    def _check_length(self, record: Record, call: Call) -> None:
        """A prompt that says how long it is ends where its blocks do, or less than a block from there."""
        tokens, held = call.facts.prompt_tokens, self.length * self.block_tokens
        if self.block_tokens and tokens and abs(tokens - held) >= self.block_tokens:
            raise record.child("facts").wrong("prompt_tokens", f"and its blocks hold {held}")


def _message(record: Record) -> Message:
    record.need("role")
    record.text("role")
    return record.value


def _blocks(record: Record) -> tuple[int, ...]:
    blocks = record.items("blocks")
    if not all(type(block) is int for block in blocks):
        raise record.bad("blocks", "holds something that is not a whole number")
    return tuple(blocks)


def _facts(record: Record) -> Facts:
    _refuse_others(record, Facts)
    return Facts(
        _gap(record.child("gap")),
        record.seconds("api_s"),
        record.count("prompt_tokens"),
        record.count("output_tokens"),
        record.count("cached_tokens") if "cached_tokens" in record else None,
        record.text("finish"),
        record.text("model"),
        tuple(_tool(record, number) for number in range(len(record.items("tools")))),
    )


def _tool(record: Record, number: int) -> tuple[str, float | None]:
    pair = record.items("tools")[number]
    at = f"tools[{number}]"
    if not isinstance(pair, list) or len(pair) != 2:
        raise record.bad(at, "is not a name and its seconds")
    named = Record({f"{at}[0]": pair[0], f"{at}[1]": pair[1]}, record.document, record.at)
    return named.text(f"{at}[0]"), named.seconds(f"{at}[1]")


def _gap(record: Record) -> Gap:
    _refuse_others(record, Gap)
    measured = record.value.get("measured", True)
    if not isinstance(measured, bool):
        raise record.wrong("measured", "neither true nor false")
    return Gap(_choice(record, "kind", WaitKind, WaitKind.UNKNOWN), record.seconds("seconds"), measured)


def _origin(record: Record) -> Origin:
    _refuse_others(record, Origin)
    link, parent = _choice(record, "link", Link, Link.NONE), record.text("parent")
    if (link is Link.NONE) != (parent == ""):
        raise record.bad("link", f"is {link.value!r} of the parent {parent!r}")
    return Origin(parent, link, record.count("after_call"), record.number("start_s"), record.text("group"))


def _hidden(record: Record) -> Hidden:
    _refuse_others(record, Hidden)
    return Hidden(record.text("name"), record.count("tokens"))


def _choice(record: Record, name: str, among: type[_Choice], default: _Choice) -> _Choice:
    text = record.text(name) or default.value
    if text not in list(among):
        raise record.wrong(name, f"none of {', '.join(among)}")
    return among(text)


def _refuse_others(record: Record, kind: type[Any], *more: str) -> None:
    """A field that this version does not know is one that was not written by it."""
    known = {_WRITTEN.get(one.name, one.name) for one in fields(kind)} - {"place"} | set(more)
    for name in record.value:
        if name not in known:
            raise record.bad(name, f"is no field of version {VERSION}")

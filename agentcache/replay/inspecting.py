"""What is in a trace: how many sessions and calls, how long, with what waits. `agentcache trace inspect`."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from agentcache.replay.readers import READERS, open_trace
from agentcache.replay.trace import CHARACTERS_PER_TOKEN, Call, Link, Message, Session
from agentcache.waits import WaitKind


@dataclass(frozen=True, slots=True)
class Spread:
    """How many values there are, and the least one that half, nine tenths and all of them do not exceed."""

    count: int
    p50: float
    p90: float
    most: float


NOTHING = Spread(0, 0, 0, 0)


def spread(values: Iterable[float]) -> Spread:
    """Errors: none; of no values it is NOTHING."""
    ranked = sorted(values)
    if not ranked:
        return NOTHING
    p50, p90 = (ranked[ceil(len(ranked) * share) - 1] for share in (0.5, 0.9))
    return Spread(len(ranked), p50, p90, ranked[-1])


@dataclass(slots=True)
class Waits:
    """The waits of one kind. Seconds."""

    count: int = 0
    measured: int = 0
    seconds: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, int]:
        """`recorded` of them have a time, `measured` of those one of their own."""
        return {"count": self.count, "recorded": len(self.seconds), "measured": self.measured}


@dataclass(slots=True)
class Contents:
    """What was counted; tokens are those recorded, or where none are, estimated from the length of the text."""

    path: str
    formats: Sequence[str]
    links: Counter[Link] = field(default_factory=Counter)
    calls: list[int] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)
    estimated: int = 0
    output_tokens: list[int] = field(default_factory=list)
    waits: dict[WaitKind, Waits] = field(default_factory=lambda: {kind: Waits() for kind in WaitKind})
    later: int = 0
    extending: int = 0
    groups: set[str] = field(default_factory=set)
    with_hidden: int = 0

    def add(self, session: Session) -> None:
        self.links[session.origin.link] += 1
        self.calls.append(len(session.calls))
        self.groups |= {session.origin.group} - {""}
        self.with_hidden += session.hidden.tokens > 0
        for turn, (call, extends, characters) in enumerate(_walked(session)):
            self._add_tokens(call, characters)
            if turn:
                self.later += 1
                self.extending += extends
                self._add_wait(call)

    def _add_tokens(self, call: Call, characters: int) -> None:
        tokens = call.facts.prompt_tokens
        if not tokens and characters:
            tokens = characters // CHARACTERS_PER_TOKEN
            self.estimated += 1
        self.prompt_tokens.append(tokens)
        if call.facts.output_tokens:
            self.output_tokens.append(call.facts.output_tokens)

    def _add_wait(self, call: Call) -> None:
        gap = call.facts.gap
        waits = self.waits[gap.kind]
        waits.count += 1
        if gap.seconds is not None:
            waits.measured += gap.measured
            waits.seconds.append(gap.seconds)

    @property
    def sub_agents(self) -> int:
        return self.links[Link.SPAWN] + self.links[Link.FORK]

    @property
    def extending_share(self) -> float:
        """Of the calls that are not a session's first: how many go on from all of the prompt before."""
        return round(self.extending / self.later, 4) if self.later else 0.0

    def as_json(self) -> dict[str, Any]:
        """Counts, tokens, seconds."""
        return {
            "path": self.path,
            "formats": list(self.formats),
            "sessions": len(self.calls),
            "sub_agents": {"spawned": self.links[Link.SPAWN], "forked": self.links[Link.FORK]},
            "groups": len(self.groups),
            "sessions_with_hidden_prefix": self.with_hidden,
            "calls": sum(self.calls),
            "calls_per_session": _as_json(self.calls),
            "prompt_tokens": {**_as_json(self.prompt_tokens), "estimated": self.estimated},
            "output_tokens": _as_json(self.output_tokens),
            "extending_share": self.extending_share,
            "waits_s": {
                kind: {**_as_json(waits.seconds), **waits.as_json()} for kind, waits in self.waits.items()
            },
        }

    def show(self, console: Console) -> None:
        """The table, then what is no distribution."""
        title = f"{self.path}: {', '.join(self.formats)}"
        for line in (title, self._table(), *self._lines()):
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        table = Table()
        for name in ("", "count", "p50", "p90", "most"):
            table.add_column(name, justify="right" if name else "left")
        table.add_row("calls a session", *_cells(spread(self.calls)))
        table.add_row("prompt tokens", *_cells(spread(self.prompt_tokens)))
        table.add_row("output tokens", *_cells(spread(self.output_tokens)), end_section=True)
        for kind, waits in self.waits.items():
            _, *shares = _cells(spread(waits.seconds), 2)
            table.add_row(f"waits ({kind}), s", f"{waits.count:,}", *shares)
        return table

    def _lines(self) -> Iterator[str]:
        agents = f", {self.sub_agents:,} of them sub-agents" if self.sub_agents else ""
        tasks = f", of {len(self.groups):,} tasks" if self.groups else ""
        yield f"{len(self.calls):,} sessions{agents}{tasks}; {sum(self.calls):,} calls."
        if self.later:
            yield f"{self.extending_share:.1%} of the later calls go on from all of the prompt before them."
        if self.estimated:
            yield f"Prompt tokens of {self.estimated:,} calls are estimated: {CHARACTERS_PER_TOKEN} characters each."
        unknown = sum(waits.count - len(waits.seconds) for waits in self.waits.values())
        split = sum(len(waits.seconds) - waits.measured for waits in self.waits.values())
        if unknown or split:
            yield f"Of {self.later:,} waits {unknown:,} are not recorded, {split:,} only together with an answer."


def contents(path: Path, most: int | None = None) -> Contents:
    """Read the trace at `path`, or the first `most` sessions of it.

    Errors  CacheError(BAD_TRACE)
    """
    trace = open_trace(path)
    found = Contents(str(path), trace.formats())
    for session in islice(trace.sessions(), most):
        found.add(session)
    return found


def inspect(path: Path, sessions: int | None, as_json: bool) -> int:
    """What the command does; answers its exit code."""
    found = contents(path, sessions)
    if as_json:
        print(json.dumps(found.as_json()))
    else:
        found.show(Console())
    return 0


def show_formats(as_json: bool) -> int:
    """What `agentcache trace formats` does; answers its exit code."""
    known = {reader.format: reader.description for reader in READERS}
    if as_json:
        print(json.dumps({"formats": known}))
        return 0
    width = max(map(len, known))
    for name, description in known.items():
        print(f"{name:<{width}}  {description}")
    return 0


def _walked(session: Session) -> Iterator[tuple[Call, bool, int]]:
    """Each call, whether it goes on from all of the prompt before, and how many characters its prompt has."""
    lengths: list[int] = []
    last: Message = {}
    blocks = 0
    for call in session.calls:
        if session.block_tokens:
            extends = call.keep == blocks
            blocks = call.keep + len(call.blocks)
        else:
            extends = call.keep == len(lengths) or _longer(last, call, len(lengths))
            lengths = [*lengths[: call.keep], *map(_length, call.added)]
            last = call.added[-1] if call.added else last
        yield call, extends, sum(lengths)


def _longer(last: Message, call: Call, messages: int) -> bool:
    """A prompt of one message may go on inside of it."""
    if messages != 1 or len(call.added) != 1:
        return False
    return str(call.added[0].get("content")).startswith(str(last.get("content")))


def _length(message: Message) -> int:
    return sum(len(str(value)) for name, value in message.items() if name in ("content", "tool_calls"))


def _as_json(values: Iterable[float]) -> dict[str, float]:
    found = spread(values)
    return {"count": found.count, "p50": found.p50, "p90": found.p90, "max": found.most}


def _cells(found: Spread, digits: int = 0) -> tuple[str, ...]:
    if not found.count:
        return ("0", "", "", "")
    return (f"{found.count:,}", *(f"{value:,.{digits}f}" for value in (found.p50, found.p90, found.most)))

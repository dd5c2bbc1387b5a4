"""Makes trace files: of other traces (`agentcache trace convert`), and of nothing (`agentcache trace synth`)."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from agentcache.replay.as_dynamo import dynamo_lines
from agentcache.replay.formats.agentcache import told
from agentcache.replay.formats.history import Names
from agentcache.replay.readers import open_trace
from agentcache.replay.synth import synthesize
from agentcache.replay.trace import Session
from agentcache.replay.writing import print_lines, write_lines

Form = Callable[[Iterable[Session]], Iterator[Any]]
"""Makes the lines of a file; sessions have names of their own, and parents come before children."""


def _own(sessions: Iterable[Session]) -> Iterator[Any]:
    return map(told, sessions)


FORMS: Mapping[str, Form] = {"agentcache": _own, "dynamo": dynamo_lines}


def convert(path: Path, form: str, out: Path | None, sessions: int | None) -> int:
    """What `agentcache trace convert` does; answers its exit code.

    Errors  CacheError(BAD_TRACE), and BAD_REQUEST if it cannot be written
    """
    return _put(FORMS[form](named(islice(open_trace(path).sessions(), sessions))), out)


def synth(kind: str, sessions: int, seed: int, out: Path | None) -> int:
    """What `agentcache trace synth` does; answers its exit code. Errors: BAD_REQUEST."""
    return _put(_own(synthesize(kind, sessions, seed)), out)


def named(sessions: Iterable[Session]) -> Iterator[Session]:
    """The sessions of a trace as those of one file: what is called as one before it is called by another name."""
    names = Names()
    latest: dict[str, str] = {}
    for session in sessions:
        latest[session.name] = names.new(session.name)
        origin = replace(session.origin, parent=latest.get(session.origin.parent, session.origin.parent))
        yield replace(session, name=latest[session.name], origin=origin)


def _put(lines: Iterable[Any], out: Path | None) -> int:
    if out is None:
        return 0 if print_lines(lines) else 1
    count = 0

    def counted() -> Iterator[Any]:
        nonlocal count
        for line in lines:
            count += 1
            yield line

    write_lines(counted(), out)
    print(f"{out}: {count:,} lines", file=sys.stderr)
    return 0

"""Trace files for tests of their readers: golden ones made by hand, and damaged ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.replay.readers import open_trace
from agentcache.replay.trace import Session

GOLDEN = Path(__file__).parent / "replay" / "golden"


def golden(name: str) -> list[Session]:
    """The sessions of a golden file; what `place` begins with is the same on every machine."""
    return list(open_trace(GOLDEN / name).sessions())


def golden_lines(name: str) -> list[Any]:
    """What the lines of a golden file say."""
    return [json.loads(line) for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines()]


def block_prompts(session: Session) -> list[list[int]]:
    """The blocks that each call sends, as `Session.prompts` tells the messages."""
    prompts: list[list[int]] = []
    history: list[int] = []
    for call in session.calls:
        history = [*history[: call.keep], *call.blocks]
        prompts.append(history)
    return prompts


def written(folder: Path, name: str, *documents: Any) -> Path:
    """A file of these documents, one a line."""
    path = folder / name
    path.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
    return path


def complaint(path: Path) -> str:
    """What is said of a damaged trace, after its place."""
    with pytest.raises(CacheError) as caught:
        list(open_trace(path).sessions())
    assert caught.value.kind is Kind.BAD_TRACE
    assert caught.value.message.startswith(str(path))
    return caught.value.message.removeprefix(str(path))

"""Trials of `bench tree --ttft` in a file: a run that was broken off goes on where it was."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from agentcache.bench.options import need_place
from agentcache.bench.tree_ttft_run import Talk, Trial, Turn
from agentcache.errors import CacheError, Kind

Terms = Mapping[str, Any]
"""What the trials of one book have in common."""


def terms_of(talk: Talk, threads: int) -> Terms:
    """All but how many trials there are to be."""
    return {name: value for name, value in asdict(talk).items() if name != "trials"} | {"threads": threads}


def forget(_: str) -> None:
    """Keeps nothing."""


@dataclass(slots=True)
class Book:
    """Trials by model; `write` is given all of it, as JSON, with every trial that is added."""

    terms: Terms
    write: Callable[[str], None] = forget
    trials: dict[str, list[Trial]] = field(default_factory=dict)

    def of(self, model: str) -> list[Trial]:
        return self.trials.setdefault(model, [])

    def add(self, model: str, trial: Trial) -> None:
        self.of(model).append(trial)
        told = {
            name: [{core: [asdict(turn) for turn in turns] for core, turns in one.items()} for one in trials]
            for name, trials in self.trials.items()
        }
        self.write(json.dumps({"terms": dict(self.terms), "trials": told}))


def open_book(path: Path, terms: Terms) -> Book:
    """The book at `path`, begun if nothing is there.

    Errors  BAD_CONFIG for a file that is no book, is a book of other terms, or cannot be written
    """
    need_place(path)
    book = Book(terms, partial(_replace, path))
    if not path.exists():
        return book
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        theirs = kept["terms"]
        for model, trials in kept["trials"].items():
            book.trials[model] = [_trial(trial) for trial in trials]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        message = f"{path} holds no trials of this benchmark; name another file, or remove it"
        raise CacheError(Kind.BAD_CONFIG, message) from error
    if theirs != terms:
        other = ", ".join(f"{name} {theirs.get(name)}" for name in terms if theirs.get(name) != terms[name])
        raise CacheError(
            Kind.BAD_CONFIG, f"{path} holds trials with {other}; ask for the same, or name another file"
        )
    return book


def _trial(told: Mapping[str, list[dict[str, Any]]]) -> Trial:
    return {core: [Turn(**turn) for turn in turns] for core, turns in told.items()}


def _replace(path: Path, text: str) -> None:
    """Whole or not at all."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)

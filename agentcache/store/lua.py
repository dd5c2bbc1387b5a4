"""The scripts of the session store, each with what it uses put before it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

USES = "-- uses "


@dataclass(frozen=True, slots=True)
class Script:
    """A script as the server gets it. `digest` is the name under which the server keeps it."""

    name: str
    text: str
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "digest", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        )


class Scripts:
    """Scripts by name, each with the same constants before it."""

    def __init__(self, constants: Mapping[str, int | str]) -> None:
        self._head = "\n".join(f"local {name} = {_quoted(value)}" for name, value in constants.items())
        self._made: dict[str, Script] = {}

    def __getitem__(self, name: str) -> Script:
        if name not in self._made:
            self._made[name] = Script(name, f"{self._head}\n{_whole(name)}")
        return self._made[name]


def _quoted(value: int | str) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


@cache
def _whole(name: str) -> str:
    """A script and what it uses. Its first line names that: `-- uses base view`."""
    body = _read(name)
    parts = body.partition("\n")[0].removeprefix(USES).split()
    return "\n".join([*map(_read, parts), body])


def _read(name: str) -> str:
    return files("agentcache.store").joinpath("scripts", f"{name}.lua").read_text(encoding="utf-8")

"""The scripts of the session store, each with what it uses put before it."""

import hashlib
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


@cache
def script(name: str) -> Script:
    """A script by its name. Its first line names the parts it uses: `-- uses base view`."""
    body = _read(name)
    first = body.partition("\n")[0]
    parts = first.removeprefix(USES).split() if first.startswith(USES) else []
    return Script(name, "\n".join([*map(_read, parts), body]))


def _read(name: str) -> str:
    return files("agentcache.store").joinpath("scripts", f"{name}.lua").read_text(encoding="utf-8")

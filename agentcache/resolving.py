"""Settings in four layers, flag > environment > file > default, every value with its origin; for any of our programs.

The environment and the file come in by argument.
"""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from agentcache.errors import CacheError, Kind

ENV_PREFIX = "AGENTCACHE_"
DEFAULT_FILE = "agentcache.toml"
OTHER_VARIABLES = frozenset(
    {"AGENTCACHE_CONFIG", "AGENTCACHE_DATA", "AGENTCACHE_URL", "AGENTCACHE_ROUTER_TENANTS"}
)
"""Variables with our prefix that are no settings: the settings file, the tests' data, the server that examples use,
the API keys of a router's tenants."""

Chosen = TypeVar("Chosen", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Resolved(Generic[Chosen]):
    """Settings, and for every field where its value came from ("flag --port", "default", …)."""

    settings: Chosen
    origins: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Program(Generic[Chosen]):
    """Whose settings are resolved: their model, the prefix of their variables, their table in the file ("" : its top).

    `others` are the prefixes and tables of other programs, which are theirs alone.
    """

    model: type[Chosen]
    prefix: str = ENV_PREFIX
    table: str = ""
    others: tuple[tuple[str, str], ...] = ()

    @property
    def fields(self) -> Mapping[str, object]:
        return self.model.model_fields

    def variable(self, name: str) -> str:
        """How the environment spells a field. What begins with the table's name does not say it twice."""
        own = name.removeprefix(f"{self.table}_") if self.table else name
        return f"{self.prefix}{own.upper()}"


@dataclass(frozen=True, slots=True)
class _Layer:
    """Values of one source. `names` says how that source spells each field."""

    values: Mapping[str, Any]
    names: Mapping[str, str]


def resolve_for(
    program: Program[Chosen],
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    file: Path | None = None,
) -> Resolved[Chosen]:
    """Merge the four layers and validate.

    Caller  `flags` holds only what was said on the command line; `file` None takes AGENTCACHE_CONFIG, or
            ./agentcache.toml if it exists
    Errors  CacheError(BAD_CONFIG): an unknown key (with the nearest known one), a wrong value (with its
            origin), a named file that cannot be read
    """
    layers = (
        _from_file(program, file, environ),
        _from_environment(program, environ),
        _from_flags(program, flags),
    )
    values: dict[str, Any] = {}
    origins = dict.fromkeys(program.fields, "default")
    for layer in layers:
        values.update(layer.values)
        origins.update(layer.names)
    try:
        return Resolved(program.model(**values), origins)
    except ValidationError as error:
        raise CacheError(Kind.BAD_CONFIG, explain(error, origins)) from None


def _from_flags(program: Program[Chosen], flags: Mapping[str, object]) -> _Layer:
    names = {name: f"flag --{name.replace('_', '-')}" for name in flags}
    for name, origin in names.items():
        _require_known(name, origin, program.fields)
    return _Layer(flags, names)


def _from_environment(program: Program[Chosen], environ: Mapping[str, str]) -> _Layer:
    variables = {program.variable(name): name for name in program.fields}
    theirs = tuple(prefix for prefix, _ in program.others)
    found = [
        name
        for name in environ
        if name.startswith(program.prefix)
        and name not in OTHER_VARIABLES
        and (name in variables or not name.startswith(theirs))
    ]
    for variable in found:
        _require_known(variable, "the environment", variables)
    return _Layer(
        {variables[variable]: environ[variable] for variable in found},
        {variables[variable]: f"env {variable}" for variable in found},
    )


def _from_file(program: Program[Chosen], file: Path | None, environ: Mapping[str, str]) -> _Layer:
    named = file or Path(environ.get("AGENTCACHE_CONFIG") or DEFAULT_FILE)
    if file is None and "AGENTCACHE_CONFIG" not in environ and not named.is_file():
        return _Layer({}, {})
    try:
        content = tomllib.loads(named.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CacheError(Kind.BAD_CONFIG, f"cannot read the settings file {named}: {error}") from None
    place = f"[{program.table}] of {named}" if program.table else str(named)
    values = _own_part(program, content, place)
    for key in values:
        _require_known(key, place, program.fields)
    return _Layer(values, dict.fromkeys(values, f"file {named}"))


def _own_part(program: Program[Chosen], content: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """What a settings file says to this program."""
    if not program.table:
        tables = {table for _, table in program.others if isinstance(content.get(table), dict)}
        return {key: value for key, value in content.items() if key not in tables}
    own = content.get(program.table, {})
    if not isinstance(own, dict):
        raise CacheError(Kind.BAD_CONFIG, f"{place} must be a table, not {own!r}")
    return own


def _require_known(key: str, origin: str, known: Mapping[str, object]) -> None:
    if key in known:
        return
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
    raise CacheError(Kind.BAD_CONFIG, f"unknown setting {key!r} in {origin}; did you mean {near[0]!r}?")


def explain(error: ValidationError, origins: Mapping[str, str]) -> str:
    """One line a fault: the field, where its value came from, what is allowed."""
    lines = []
    for fault in error.errors(include_url=False):
        field = ".".join(str(part) for part in fault["loc"])
        said = fault["msg"].removeprefix("Value error, ")
        lines.append(f"{field} ({origins[field]}): {said}, not {fault['input']!r}" if field else said)
    return "; ".join(lines)

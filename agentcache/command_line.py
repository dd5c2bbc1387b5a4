"""What our commands do alike: an option for every setting, one line for every fault, and the exit codes.

Exit codes: 0 complete, 1 incomplete or failed, 2 a wrong command line or setting, 130 interrupted.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from pydantic import BaseModel

from agentcache.errors import CacheError, Kind
from agentcache.resolving import Chosen, Program, Resolved, resolve_for

Command = TypeVar("Command", bound=Callable[..., Any])
USAGE_KINDS = frozenset(
    {Kind.BAD_CONFIG, Kind.BAD_REQUEST, Kind.BAD_TRACE, Kind.BAD_CHECKPOINT, Kind.UNSUPPORTED_MODEL}
)
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def settings_options(model: type[BaseModel]) -> Callable[[Command], Command]:
    """Give a command one option for every setting of `model`, and --config; it receives only what was said."""

    def with_options(command: Command) -> Command:
        for name, field in reversed(model.model_fields.items()):
            flag = f"--{name.replace('_', '-')}"
            text = f"{field.description}  [default: {_shown(field.default)}]"
            if field.annotation is bool:
                command = click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=text)(command)
            else:
                shown = _metavar(field.annotation)
                command = click.option(flag, name, default=None, metavar=shown, help=text)(command)
        return click.option(
            "--config",
            "file",
            type=click.Path(path_type=Path),
            default=None,
            help="settings file  [default: agentcache.toml, if there]",
        )(command)

    return with_options


def resolve_said(program: Program[Chosen], file: Path | None, flags: dict[str, Any]) -> Resolved[Chosen]:
    """The settings of a program from what was said on its command line, and this process's environment."""
    said = {name: value for name, value in flags.items() if value is not None}
    return resolve_for(program, said, os.environ, file)


def run_command(command: click.Command, name: str) -> None:
    """Run the command line of this process: every fault that we name ends as one line on stderr and an exit code."""
    try:
        command.main(prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        error.show(sys.stderr)
        sys.exit(error.exit_code)
    except CacheError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2 if error.kind in USAGE_KINDS else 1)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)


def _metavar(annotation: Any) -> str:
    """How `--help` shows what a setting takes; the settings check it, whichever way it comes."""
    parts = [part for part in get_args(annotation) if part is not type(None)]
    if parts and not isinstance(parts[0], type):
        return "|".join(map(str, parts))
    return {int: "INTEGER", float: "NUMBER"}.get(parts[0] if parts else annotation, "TEXT")


def _shown(default: Any) -> str:
    return "none" if default in (None, "", ()) else str(default)

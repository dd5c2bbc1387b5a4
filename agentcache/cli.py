"""The command `agentcache`: reads the command line, calls one function of the package, answers its exit code.

With --json a command prints one JSON object on stdout and nothing else; everything else goes to stderr. Exit codes:
0 complete, 1 incomplete or failed, 2 a wrong command line or setting, 130 interrupted.
"""

import importlib.metadata
import json
import pkgutil
from pathlib import Path
from typing import Any

import click

from agentcache.command_line import HELP, resolve_said, run_command, settings_options
from agentcache.config import WORKER, Settings, without_password
from agentcache.replay.flags import COUNT, FRACTION, lab_flags
from agentcache.router.settings import ROUTER, RouterSettings

NATURAL = click.IntRange(min=0)
PORT = click.IntRange(0, 65535)


def _start(target: str, *arguments: object, **options: object) -> None:
    """Call `module:function` and end with its exit code.

    The module is found by name only when its command runs, because the engine's imports take seconds that
    `agentcache --help` should not.
    """
    raise SystemExit(pkgutil.resolve_name(target)(*arguments, **options))


@click.group(context_settings=HELP)
@click.version_option(package_name="agentcache", message="agentcache %(version)s")
def cli() -> None:
    """A session-aware prefix cache for agents on hybrid models."""


@cli.command()
@click.option("--with-router", is_flag=True, help="start a session router beside the worker, and join it")
@click.option(
    "--router-port", type=PORT, default=8000, show_default=True, help="of that router; 0: a free one"
)
@settings_options(Settings)
def serve(file: Path | None, with_router: bool, router_port: int, **flags: Any) -> None:
    """Start a worker: OpenAI-compatible HTTP over a model.

    Every option is also a setting, AGENTCACHE_PORT in the environment or `port` in agentcache.toml; what is said
    here goes first. `agentcache config` shows where each value comes from.
    """
    settings = resolve_said(WORKER, file, flags).settings
    if with_router:
        _start("agentcache.worker.with_router:serve_with_router", settings, router_port, file)
    _start("agentcache.worker.serve:serve", settings)


@cli.command()
@click.option("--forget-sessions", is_flag=True, help="delete every session in the store first")
@settings_options(RouterSettings)
def router(file: Path | None, forget_sessions: bool, **flags: Any) -> None:
    """Start a session router: one address for agents, in front of workers that cache their sessions.

    Every option is also a setting, AGENTCACHE_ROUTER_PORT in the environment or `port` below [router] in
    agentcache.toml; what is said here goes first. The command agentcache-router does the same.
    """
    settings = resolve_said(ROUTER, file, flags).settings
    _start("agentcache.router.serve:serve", settings, forget=forget_sessions)


@cli.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--sessions", type=COUNT, help="the first N sessions  [default: all]")
@click.option("--json", "as_json", is_flag=True, help="one JSON object on stdout")
@lab_flags("lab: ", policy="lru, session and ert", seeds="3")
@click.option("--url", help="against the worker or router there")
@click.option("--turns", type=COUNT, help="--url: the first N turns of each session  [all]")
@click.option("--max-tokens", type=COUNT, help="--url: tokens generated a turn  [16]")
@click.option("--concurrency", type=COUNT, help="--url: sessions at once, sub-agents beside  [4]")
@click.option("--compare-cold", type=NATURAL, help="--url: repeat N sessions with the cache off  [0]")
@click.option("--scale", type=COUNT, help="--url: tokens to send each block id as  [all that it has]")
@click.option("--speed", type=FRACTION, help="--url: wait for recorded gaps, divided by this  [do not wait]")
def replay(path: Path, **options: Any) -> None:
    """Replay recorded sessions: what an order, a room or a tier would give them.

    PATH is a trace in any format that `agentcache trace formats` lists, packed or not, or a directory of such files.

    In the lab, the real cache decides over slots without bytes, in the trace's own time; room is in mean session
    peaks (the most that a session's prompt and answer hold). The table shows hit rates, the share of the gap between
    LRU and an order that knows the future (good, and no proof of the best), and the time to the first token on a
    modelled machine. Sessions left out (--longest-tokens, --longest-h) are counted on stderr and in the JSON.

    With --url the sessions are sent to a worker. The recorded answers are the history; the worker's own are measured
    and dropped. Where a trace has block ids in place of text, each id is sent as tokens of its own; --scale makes long
    ones fit a small worker. Sub-agents run beside their parents. Exit code 1 if a turn was skipped or failed, or if
    the cache changed an answer.
    """
    said = {name: value for name, value in options.items() if value not in (None, ())}
    _start("agentcache.replay.cli:replay_trace", path, said)


@cli.command()
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="of a router or a worker")
@click.option("--once", is_flag=True, help="one look, and the end")
@click.option("--json", "as_json", is_flag=True, help="one JSON object a look on stdout")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="between two looks",
)
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    help="file with an API key, or the operator's token of a worker behind a router",
)
def top(**options: Any) -> None:
    """Show sessions, tiers and hit rates of a router or a worker.

    At a router the tiers are those of its workers, as far as they can be reached from here; their sessions are the
    tenant's whose key is sent. Anywhere but on a terminal looks follow each other as plain text. Ctrl-C ends it.
    """
    _start("agentcache.top.command:top", **options)


@cli.group()
def trace() -> None:
    """Look at recorded sessions, convert them, make some up."""


@trace.command("formats")
@click.option("--json", "as_json", is_flag=True, help="one JSON object on stdout")
def trace_formats(as_json: bool) -> None:
    """List the formats that can be read."""
    _start("agentcache.replay.inspecting:show_formats", as_json)


@trace.command("inspect")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--sessions", type=COUNT, default=None, help="the first N sessions  [default: all]")
@click.option("--json", "as_json", is_flag=True, help="one JSON object on stdout")
def inspect_trace(**options: Any) -> None:
    """Count what is in a trace: sessions, calls, tokens, waits.

    PATH is a trace in any format that `agentcache trace formats` lists, a directory of such files, or an archive of
    them (.tar), packed (.xz, .gz, .zst) or not; a file in an archive is named by both paths. The format is found by
    looking.
    """
    _start("agentcache.replay.inspecting:inspect", **options)


FORMS = ("agentcache", "dynamo")
OUT = click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="FILE.jsonl, or packed  [default: stdout]"
)


@trace.command("convert")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--to", "form", type=click.Choice(FORMS), default="agentcache", show_default=True)
@click.option("--sessions", type=COUNT, help="the first N sessions  [default: all]")
@OUT
def convert_trace(**options: Any) -> None:
    """Write a trace in another format.

    PATH is a trace as `inspect` takes it. `agentcache` is our own form, one session a line, which has all that we
    know of one. `dynamo` is the agentic_mooncake of NVIDIA Dynamo, version 2, for its replays.
    """
    _start("agentcache.replay.tracing:convert", **options)


KINDS = ("claude-code", "swe-agent")


@trace.command("synth")
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--sessions", type=COUNT, default=100, show_default=True, help="sub-agents not counted")
@click.option("--seed", type=NATURAL, default=0, show_default=True, help="equal seeds give equal traces")
@OUT
def synthesize_trace(**options: Any) -> None:
    """Make up sessions like those of a kind of agent.

    Lengths, waits and sub-agents are drawn by the medians and 90th percentiles of published traces; there is no text.
    """
    _start("agentcache.replay.tracing:synth", **options)


@cli.command()
@click.argument("trace", type=click.Path(path_type=Path), required=False)
@click.option("--sessions", type=COUNT, default=3, show_default=True, help="the first N sessions")
@click.option("--turns", type=COUNT, default=10, show_default=True, help="the first N turns of each")
@click.option("--max-tokens", type=COUNT, default=16, show_default=True, help="tokens generated a turn")
@click.option("--model", default="tiny-all", show_default=True, help="built-in name, directory, or smollm2")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("build/demo.json"),
    show_default=True,
    help="what was found, as JSON; the worker's log goes beside it",
)
@click.option("--json", "as_json", is_flag=True, help="one JSON object on stdout")
def demo(**options: Any) -> None:
    """Show what the cache does: on, off, compared.

    Starts a worker, replays TRACE (a PATH as `replay` takes it; without one, a sample of ours) with the cache on and
    off, and compares. Exit code 1 if an answer differs or a reference is left.
    """
    _start("agentcache.replay.cli:demo", **options)


PASSED_ON = {"ignore_unknown_options": True}
"""A benchmark reads its own options, --help too."""


@cli.group()
def bench() -> None:
    """Measure what the cache is worth on this machine."""


@bench.command(context_settings=PASSED_ON, add_help_option=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def ttft(options: tuple[str, ...]) -> None:
    """Time to the first token, warm against cold."""
    _start("agentcache.bench.ttft:main", options)


@bench.command(context_settings=PASSED_ON, add_help_option=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def grid(options: tuple[str, ...]) -> None:
    """What the chunk grid costs an agent's turns."""
    _start("agentcache.bench.grid:main", options)


@bench.command(context_settings=PASSED_ON, add_help_option=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def tree(options: tuple[str, ...]) -> None:
    """What the calls of the tree cores cost."""
    _start("agentcache.bench.tree:main", options)


@bench.command(context_settings=PASSED_ON, add_help_option=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def multiturn(options: tuple[str, ...]) -> None:
    """What the tiers are worth to long conversations."""
    _start("agentcache.bench.multiturn:main", options)


@bench.command(context_settings=PASSED_ON, add_help_option=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def steps(options: tuple[str, ...]) -> None:
    """What tiers cost a scheduler's step when nothing moves."""
    _start("agentcache.bench.steps:main", options)


@bench.command(context_settings=PASSED_ON, add_help_option=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def routed(options: tuple[str, ...]) -> None:
    """What the router adds to the time to the first byte."""
    _start("agentcache.bench.routed:main", options)


@bench.command(context_settings=PASSED_ON, add_help_option=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def store(options: tuple[str, ...]) -> None:
    """How many tags a second a router gets from its session store."""
    _start("agentcache.bench.store:main", options)


@bench.command(context_settings=PASSED_ON, add_help_option=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def policies(options: tuple[str, ...]) -> None:
    """Eviction orders against LRU and a bound, on traces."""
    _start("agentcache.bench.policies:main", options)


@bench.command(context_settings=PASSED_ON, add_help_option=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def agents(options: tuple[str, ...]) -> None:
    """Agents at a router against a bound, on a clock that jumps."""
    _start("agentcache.bench.agents:main", options)


@bench.command(context_settings=PASSED_ON, add_help_option=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def pause(options: tuple[str, ...]) -> None:
    """The first token after a pause in which others took the device."""
    _start("agentcache.bench.pause:main", options)


@bench.command(context_settings=PASSED_ON, add_help_option=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def dashboard(options: tuple[str, ...]) -> None:
    """What an open dashboard costs the router."""
    _start("agentcache.bench.dashboard:main", options)


@bench.command(context_settings=PASSED_ON, add_help_option=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def swebench(options: tuple[str, ...]) -> None:
    """Eviction orders on SWE-bench agents, in the lab and on an engine."""
    _start("agentcache.bench.swebench:main", options)


@cli.command("config")
@click.option("--json", "as_json", is_flag=True, help="one JSON object on stdout")
@settings_options(Settings)
def show_config(as_json: bool, file: Path | None, **flags: Any) -> None:
    """Print every setting and its origin."""
    resolved = resolve_said(WORKER, file, flags)
    values = resolved.settings.model_dump()
    values["l3_url"] = without_password(values["l3_url"])
    if as_json:
        print(json.dumps({k: {"value": v, "origin": resolved.origins[k]} for k, v in values.items()}))
        return
    width = max(len(name) for name in values)
    for name, value in values.items():
        print(f"{name:<{width}}  {value!s:<12}  {resolved.origins[name]}")


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="one JSON object on stdout")
def version(as_json: bool) -> None:
    """Print the version."""
    number = importlib.metadata.version("agentcache")
    print(json.dumps({"version": number}) if as_json else f"agentcache {number}")


def main() -> None:
    """Entry point."""
    run_command(cli, "agentcache")

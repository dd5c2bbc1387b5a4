"""The command `agentcache-router`, which is `agentcache router` too."""

from pathlib import Path
from typing import Any

import click

from agentcache.command_line import HELP, resolve_said, run_command, settings_options
from agentcache.router.serve import serve
from agentcache.router.settings import ROUTER, RouterSettings


@click.command("router", context_settings=HELP)
@click.option("--forget-sessions", is_flag=True, help="delete every session in the store first")
@settings_options(RouterSettings)
def router(file: Path | None, forget_sessions: bool, **flags: Any) -> None:
    """Start a session router: one address for agents, in front of workers that cache their sessions.

    Every option is also a setting, AGENTCACHE_ROUTER_PORT in the environment or `port` below [router] in
    agentcache.toml; what is said here goes first.
    """
    settings = resolve_said(ROUTER, file, flags).settings
    raise SystemExit(serve(settings, forget=forget_sessions))


def main() -> None:
    """Entry point."""
    run_command(router, "agentcache-router")


if __name__ == "__main__":
    main()

"""`agentcache top`: look now and then, and show it, until somebody has seen enough."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.live import Live

from agentcache.errors import CacheError, Kind
from agentcache.top.fetching import Fetch, checked_url, fetching
from agentcache.top.lately import Lately
from agentcache.top.looking import Counts, Look, look
from agentcache.top.showing import look_json, screen

PLAIN_WIDTH: Final = 160
"""Columns where there is no terminal that would say."""


@dataclass(frozen=True, slots=True)
class World:
    """What the command reads and writes; seconds of Unix time, and a sleep of seconds."""

    fetch: Fetch
    now_s: Callable[[], float]
    sleep: Callable[[float], None]
    console: Console


def top(url: str, once: bool, as_json: bool, interval_s: float, key_file: Path | None) -> int:
    """Show a router or a worker; the exit code. Ctrl-C ends it.

    Errors   CacheError(UNREACHABLE) when nobody answers at first; BAD_REQUEST for what is no address, BAD_CONFIG for
             a key that cannot be read
    """
    address = checked_url(url)
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PLAIN_WIDTH
    world = World(fetching(address, _key(key_file)), time.time, time.sleep, console)
    try:
        return show(world, address, Way(once, as_json, interval_s))
    except BrokenPipeError:  # whoever read it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


@dataclass(frozen=True, slots=True)
class Way:
    """How it is shown: once or every so often, as JSON or for people."""

    once: bool = False
    json: bool = False
    interval_s: float = 2.0


def show(world: World, url: str, way: Way) -> int:
    """The loop. On a terminal one screen is drawn over and over; anywhere else looks follow each other as text."""
    looks = _looks(world, url, way)
    console = world.console
    if way.json:
        for now, came in looks:
            print(json.dumps(look_json(now, came)), flush=True)
    elif way.once or not console.is_terminal:
        for now, came in looks:
            console.print(screen(now, came, sys.maxsize))
    else:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            for now, came in looks:
                live.update(screen(now, came, console.height), refresh=True)
    return 0


def _looks(world: World, url: str, way: Way) -> Iterator[tuple[Look, Counts | None]]:
    """Look after look, each with what came since the one before.

    One that nobody answers is an error at first, and later a note.
    """
    lately = Lately()
    last = look(world.fetch, url, world.now_s())
    lately.add(last)
    yield last, None
    while not way.once:
        world.sleep(way.interval_s)
        try:
            last = look(world.fetch, url, world.now_s())
        except CacheError as error:
            if error.kind is not Kind.UNREACHABLE:
                raise
            away_s = world.now_s() - last.at_s
            said = f"nobody answers at {url} since {away_s:.0f} s: this is how it was before"
            yield replace(last, notes=(said,)), None
        else:
            yield last, lately.add(last)


def _key(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        key = file.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CacheError(Kind.BAD_CONFIG, f"--key-file {file}: the key cannot be read: {error}") from None
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise CacheError(Kind.BAD_CONFIG, f"--key-file {file}: must hold one key and nothing else")
    return key

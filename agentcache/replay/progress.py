"""Progress on stderr: a bar on a terminal, a line now and then anywhere else (never silent for long)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from agentcache.clock import Clock
from agentcache.replay.outcome import Outcome

LINE_EVERY_NS = 5_000_000_000

Item = TypeVar("Item")


class Steps:
    """Counts steps of one named pass and shows them; `unit` is what one is called, in the plural."""

    def __init__(self, title: str, total: int, bar: Progress, clock: Clock, unit: str = "turns") -> None:
        self.done = 0
        self._title = title
        self._total = total
        self._clock = clock
        self._unit = unit
        self._bar = bar
        self._task = bar.add_task(title, total=total)
        self._said_ns = clock.now_ns()

    def advance(self, _: Outcome | None = None) -> None:
        """One step more."""
        self.done += 1
        self._bar.advance(self._task)
        if not self._bar.console.is_terminal:
            self._say()

    def _say(self) -> None:
        now_ns = self._clock.now_ns()
        if now_ns - self._said_ns >= LINE_EVERY_NS or self.done == self._total:
            self._said_ns = now_ns
            self._bar.console.print(
                f"{self._title}: {self.done} of {self._total} {self._unit}", highlight=False
            )


@contextmanager
def steps(title: str, total: int, console: Console, clock: Clock, unit: str = "turns") -> Iterator[Steps]:
    """Show a pass of `total` steps until the block ends."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield Steps(title, total, bar, clock, unit)


def said_while(title: str, items: Iterable[Item], console: Console, clock: Clock) -> Iterator[Item]:
    """The items, of which nobody knows how many there are: says that they come, and now and then how many came."""
    _say(title, console)
    said_ns = clock.now_ns()
    for number, item in enumerate(items, 1):
        if clock.now_ns() - said_ns >= LINE_EVERY_NS:
            said_ns = clock.now_ns()
            _say(f"{title}, {counted(number, 'session')}", console)
        yield item


def counted(number: int, what: str) -> str:
    """`1 session`, `2,000 sessions`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def in_millions(number: int) -> str:
    """`1.4 M`; below a million the number itself."""
    return f"{number / 1e6:,.1f} M" if number >= 1e6 else f"{number:,}"


def _say(text: str, console: Console) -> None:
    console.print(Text(text), soft_wrap=True)

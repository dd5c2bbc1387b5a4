"""Progress where nobody sees a bar: a line every five seconds and one at the end."""

import io

from rich.console import Console

from agentcache.clock import ManualClock
from agentcache.replay.outcome import Refused
from agentcache.replay.progress import LINE_EVERY_NS, steps

TURN = Refused(500, "500", "oops")


def lines(total: int, advances: list[int], terminal: bool = False) -> list[str]:
    clock, console = ManualClock(), Console(file=io.StringIO(), width=80, force_terminal=terminal)
    with steps("replaying", total, console, clock) as shown:
        for by_ns in advances:
            clock.advance(by_ns)
            shown.advance(TURN)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_line_now_and_then_and_at_the_end() -> None:
    assert lines(4, [0, LINE_EVERY_NS, 1, 1]) == ["replaying: 2 of 4 turns", "replaying: 4 of 4 turns"]


def test_a_pass_that_ends_early_says_no_more_than_it_did() -> None:
    assert lines(9, [LINE_EVERY_NS, 1]) == ["replaying: 1 of 9 turns"]


def test_a_terminal_sees_a_bar_and_no_lines() -> None:
    shown = "".join(lines(2, [0, LINE_EVERY_NS], terminal=True))
    assert "2/2" in shown
    assert "replaying: " not in shown

"""Progress where nobody sees a bar: a line every five seconds and one at the end."""

import io

from rich.console import Console

from agentcache.clock import ManualClock
from agentcache.replay.outcome import Refused
from agentcache.replay.progress import LINE_EVERY_NS, counted, in_millions, said_while, steps

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


def test_what_nobody_can_count_before_is_said_now_and_then() -> None:
    clock, console = ManualClock(), Console(file=io.StringIO(), width=80)
    came = []
    for item in said_while("a[b].jsonl: reading", "xyz", console, clock):
        came.append(item)
        clock.advance(LINE_EVERY_NS * (item == "x"))
    assert came == ["x", "y", "z"]
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "a[b].jsonl: reading\na[b].jsonl: reading, 2 sessions\n"


def test_numbers_in_words() -> None:
    assert [counted(number, "call") for number in (0, 1, 2000)] == ["0 calls", "1 call", "2,000 calls"]
    assert [in_millions(number) for number in (7, 12_345, 1_234_567)] == ["7", "12,345", "1.2 M"]

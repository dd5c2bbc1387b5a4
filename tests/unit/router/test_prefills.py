"""What a router remembers of prompts that were computed ahead."""

import pytest
import structlog

from agentcache.router import prefills
from agentcache.router.prefills import IN_VAIN, NO_TURN, REST_S, LastTurn, Prefills

REST_NS = int(REST_S * 1e9)


def test_the_last_turn_of_a_session_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefills, "SESSIONS", 2)
    memory = Prefills()
    assert memory.last_turn(("t", "a", "")) == NO_TURN
    for number, name in enumerate("abc"):
        memory.answered(("t", name, ""), LastTurn("d", number, number))
    assert memory.last_turn(("t", "a", "")) == NO_TURN
    assert memory.last_turn(("t", "c", "")) == LastTurn("d", 2, 2)


def test_who_computes_in_vain_rests_for_a_while_and_is_told_of_once() -> None:
    memory = Prefills()
    with structlog.testing.capture_logs() as lines:
        for number in range(IN_VAIN):
            assert memory.resting(("p", "q"), "d", number) == frozenset()
            memory.came("p", "d", found=False, now_ns=number)
    assert [(line["event"], line["worker"], line["decoder"]) for line in lines] == [
        ("prefill_in_vain", "p", "d")
    ]
    assert memory.resting(("p", "q"), "d", REST_NS) == frozenset({"p"})
    assert memory.resting(("p", "q"), "other", REST_NS) == frozenset()
    assert memory.resting(("p",), "d", REST_NS + IN_VAIN) == frozenset()


def test_what_arrives_now_and_then_is_not_in_vain() -> None:
    memory = Prefills()
    for number in range(4 * IN_VAIN):
        memory.came("p", "d", found=number % IN_VAIN == 0, now_ns=0)
    assert memory.resting(("p",), "d", 1) == frozenset()


def test_a_pair_that_has_rested_is_tried_with_one_prompt_at_a_time_until_one_arrives() -> None:
    """Else all that comes while the first waits for one that hangs waits as long."""
    memory = Prefills()
    with structlog.testing.capture_logs() as lines:
        for _ in range(IN_VAIN):
            memory.tries("p", "d", now_ns=0)
            assert memory.resting(("p",), "d", 0) == frozenset()
            memory.came("p", "d", found=False, now_ns=0)
        for again in (REST_NS, 3 * REST_NS):
            assert memory.resting(("p",), "d", again) == frozenset()
            memory.tries("p", "d", now_ns=again)
            assert memory.resting(("p",), "d", again + 1) == frozenset({"p"})
            memory.came("p", "d", found=False, now_ns=again + 2)
            assert memory.resting(("p",), "d", again + REST_NS) == frozenset({"p"})
    assert len(lines) == 1
    memory.tries("p", "d", now_ns=5 * REST_NS)
    memory.came("p", "d", found=True, now_ns=5 * REST_NS)
    memory.tries("p", "d", now_ns=5 * REST_NS)
    memory.came("p", "d", found=False, now_ns=5 * REST_NS)
    assert memory.resting(("p",), "d", 5 * REST_NS) == frozenset()

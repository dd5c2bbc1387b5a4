"""A router's own memory of sessions: short, bounded, and the latest word counts."""

from agentcache.clock import ManualClock
from agentcache.router.bindings import Bindings
from agentcache.store.api import SessionRef

A, B, C = (SessionRef("t", name) for name in "abc")
S = 1_000_000_000


def test_a_worker_is_believed_for_its_time_after_it_was_last_said() -> None:
    clock = ManualClock()
    bindings = Bindings(clock, life_s=10)
    bindings.learn(A, "w1")
    clock.advance(9 * S)
    assert bindings.find(A) == "w1"
    bindings.learn(A, "w2")
    clock.advance(9 * S)
    assert bindings.find(A) == "w2"
    clock.advance(S)
    assert bindings.find(A) == ""


def test_another_tenants_session_is_another() -> None:
    bindings = Bindings(ManualClock(), life_s=10)
    bindings.learn(A, "w1")
    assert bindings.find(SessionRef("u", "a")) == ""


def test_the_least_recently_said_goes_first() -> None:
    bindings = Bindings(ManualClock(), life_s=10, limit=2)
    for ref in (A, B, A, C):
        bindings.learn(ref, "w1")
    assert [bindings.find(ref) for ref in (A, B, C)] == ["w1", "", "w1"]
    assert len(bindings) == 2


def test_what_is_forgotten_is_unknown_and_nothing_is_kept_for_no_time() -> None:
    bindings = Bindings(ManualClock(), life_s=10)
    bindings.learn(A, "w1")
    bindings.forget(A)
    bindings.forget(B)
    assert bindings.find(A) == ""
    none = Bindings(ManualClock(), life_s=0)
    none.learn(A, "w1")
    assert (none.find(A), len(none)) == ("", 0)

"""What an external tier knows of its store."""

from agentcache.clock import ManualClock
from agentcache.tiers.api import Presence
from agentcache.tiers.rules import ExternalRules
from agentcache.tiers.standing import Standing
from agentcache.types import FULL

A = (FULL, b"a")


def test_an_answer_is_older_than_what_was_learnt_since_it_was_asked_for() -> None:
    clock = ManualClock(10**12)
    standing = Standing("memory", ExternalRules(), clock)
    asked_ns = clock.now_ns()
    clock.advance(5)
    standing.learn([A], Presence.HIT)
    standing.answered([(A, False)], asked_ns)
    assert standing.marked([A]) == [True]
    standing.answered([(A, False)], clock.advance(5))
    assert standing.marked([A]) == [False]


def test_counts_add_up_and_the_last_failure_is_said_in_words() -> None:
    standing = Standing("memory", ExternalRules(failures_to_open=2), ManualClock())
    standing.count(stored=2, missed=1)
    standing.count(stored=1, loaded=4, refused=1)
    standing.failed("no route")
    status = standing.status()
    assert (status.stored, status.loaded, status.missed, status.refused, status.failed) == (3, 4, 1, 1, 1)
    assert (status.backend, status.state, status.error) == ("memory", "up", "no route")
    standing.failed("no route")
    assert standing.status().state == "down"
    assert not standing.asking

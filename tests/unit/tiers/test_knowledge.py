"""What is believed of a store's objects, and for how long."""

from agentcache.tiers.api import Presence
from agentcache.tiers.knowledge import Knowledge
from agentcache.types import FULL

A, B, C = ((FULL, name) for name in (b"a", b"b", b"c"))


def test_answers_are_believed_for_a_while_and_then_asked_again() -> None:
    known = Knowledge(8, belief_ns=10)
    known.answered([(A, True), (B, False)], since_ns=90, now_ns=100)
    assert known.believed([A, B, C], 109) == [Presence.HIT, Presence.MISS, None]
    assert known.believed([A, B], 110) == [None, None]


def test_a_mark_outlives_the_belief_until_the_object_is_missed() -> None:
    known = Knowledge(8, belief_ns=10)
    known.learn([A], Presence.HIT, 100)
    assert known.believed([A], 200) == [None]
    assert known.marked(A)
    known.answered([(A, False)], since_ns=200, now_ns=201)
    assert not known.marked(A)


def test_a_store_during_the_question_knows_better_than_its_answer() -> None:
    known = Knowledge(8, belief_ns=10)
    known.learn([A], Presence.PENDING, 100)
    known.learn([A], Presence.HIT, 103)
    known.answered([(A, False)], since_ns=101, now_ns=105)
    assert known.believed([A], 105) == [Presence.HIT]


def test_pending_stays_until_it_is_given_up() -> None:
    known = Knowledge(8, belief_ns=10)
    known.learn([A, B], Presence.PENDING, 100)
    known.learn([B], Presence.HIT, 105)
    assert known.believed([A], 500) == [Presence.PENDING]
    known.give_up([A, B, C], 500)
    assert known.believed([A, C], 501) == [Presence.RETRY, None]
    assert known.marked(B)


def test_the_oldest_news_is_forgotten_first() -> None:
    known = Knowledge(2, belief_ns=10)
    known.learn([A, B], Presence.HIT, 100)
    known.learn([A], Presence.MISS, 101)
    known.learn([C], Presence.HIT, 102)
    assert known.believed([A, B, C], 102) == [Presence.MISS, None, Presence.HIT]
    assert len(known) == 2

"""The choice of a worker where some will come to it only once others have computed their prompts."""

from agentcache.router.place import Candidate, Choice, Wish, must_look, place
from tests.fleets import view_of


def test_a_home_is_not_overloaded_by_prompts_that_others_still_compute() -> None:
    workers = [Candidate(view_of("a", 7, coming=40)), Candidate(view_of("b"))]
    assert place(Wish(bound="a"), workers) == Choice("a", "sticky")
    assert not must_look(Wish(bound="a"), [each.view for each in workers])


def test_new_sessions_are_spread_by_what_will_come_too() -> None:
    workers = [Candidate(view_of("a", 1, coming=3)), Candidate(view_of("b", 2))]
    assert place(Wish(), workers) == Choice("b", "least load")
    assert place(Wish(near="a"), workers).worker == "a"
    many = [Candidate(view_of("a", coming=40)), Candidate(view_of("b", 2))]
    assert place(Wish(near="a"), many).worker == "b"

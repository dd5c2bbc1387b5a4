"""Which pages sessions want back, against the plain definition: those of any open session's last path."""

import random

from agentcache.keeping import Keeping
from agentcache.types import SessionId

A, B = SessionId("a"), SessionId("b")


def path(letters: str) -> tuple[bytes, ...]:
    """A page's hash names all before it."""
    return tuple(letters[: end + 1].encode() for end in range(len(letters)))


def test_a_path_that_grows_names_its_new_pages_only() -> None:
    keeping = Keeping()
    assert keeping.hold(A, path("xy")) == ([b"x", b"xy"], [])
    assert keeping.hold(A, path("xyz")) == ([b"xyz"], [])
    assert keeping.hold(A, path("xyz")) == ([], [])


def test_a_path_that_turns_off_lets_the_old_branch_go() -> None:
    keeping = Keeping()
    keeping.hold(A, path("xyz"))
    assert keeping.hold(A, path("xq")) == ([b"xq"], [b"xy", b"xyz"])
    assert keeping.hold(A, ()) == ([], [b"x", b"xq"])


def test_what_two_want_goes_with_the_second() -> None:
    keeping = Keeping()
    keeping.hold(A, path("xy"))
    assert keeping.hold(B, path("xyz")) == ([b"xyz"], [])
    assert keeping.release(A) == []
    assert keeping.release(B) == [b"x", b"xy", b"xyz"]
    assert len(keeping) == 0


def test_a_release_of_nobody_is_nothing() -> None:
    keeping = Keeping()
    assert keeping.release(A) == []
    keeping.hold(A, path("x"))
    assert keeping.release(A) == [b"x"]
    assert keeping.release(A) == []


def test_any_history_says_each_change_once() -> None:
    """Gained and gone, summed up, are at every moment what some session wants."""
    rng, keeping = random.Random(5), Keeping()
    last: dict[SessionId, tuple[bytes, ...]] = {}
    wanted: set[bytes] = set()
    for _ in range(3000):
        session = SessionId(rng.choice("abcd"))
        if rng.random() < 0.2:
            gained, gone = list[bytes](), keeping.release(session)
            last.pop(session, None)
        else:
            last[session] = path("".join(rng.choice("xy") for _ in range(rng.randrange(6))))
            gained, gone = keeping.hold(session, last[session])
        assert wanted.isdisjoint(gained)
        assert wanted.issuperset(gone)
        wanted = (wanted | set(gained)) - set(gone)
        assert wanted == {page for held in last.values() for page in held}
    for session in tuple(last):
        wanted -= set(keeping.release(session))
    assert (wanted, len(keeping)) == (set(), 0)

"""One session as a router shows it: what its workers remember of it, put together."""

import msgspec

from agentcache.router.holders import Asked, HolderView, SeenTurn, Wait
from agentcache.router.session_json import MAX_TURNS, view_json
from agentcache.store.api import SessionRecord, SessionRef

RECORD = SessionRecord(SessionRef("t", "s"), "open", 2, worker="w2", holders=("w1", "w2"))


def turn(at: float, why: str = "full hit") -> SeenTurn:
    return SeenTurn(at, 2, 100, {"device": 96, "host": 0, "external": 0}, why, "nothing", "FULL")


def test_turns_of_all_workers_stand_together_newest_first() -> None:
    asked = (
        Asked("w1", HolderView("open", turns=(turn(3.0), turn(1.0, "never_stored FULL at 0")))),
        Asked("w2", HolderView("open", turns=(turn(2.0),))),
        Asked("w3", HolderView(), "it is not alive"),
    )
    said = view_json(RECORD, asked)["turns"]
    assert isinstance(said, list)
    assert [(one["at"], one["worker"]) for one in said] == [(3.0, "w1"), (2.0, "w2"), (1.0, "w1")]
    assert said[2] == {
        "at": 1.0,
        "generation": 2,
        "prompt_tokens": 100,
        "cached_tokens": {"device": 96, "host": 0, "external": 0},
        "why": "never_stored FULL at 0",
        "reason": "nothing",
        "component": "FULL",
        "token": 0,
        "diverged_at": None,
        "worker": "w1",
    }


def test_turns_are_bounded_whatever_a_worker_says() -> None:
    many = tuple(turn(float(number)) for number in range(MAX_TURNS * 3))
    said = view_json(RECORD, (Asked("w2", HolderView(turns=many)),))["turns"]
    assert isinstance(said, list)
    assert [one["at"] for one in said] == [float(number) for number in range(95, 95 - MAX_TURNS, -1)]


def test_the_wait_is_the_one_that_its_own_worker_tells_of() -> None:
    waits = {"w1": Wait("idle", "human"), "w2": Wait("idle", "tool", 2.0, 30.0, 30.0, True)}
    asked = tuple(Asked(worker, HolderView(wait=wait)) for worker, wait in waits.items())
    assert view_json(RECORD, asked)["wait"] == msgspec.to_builtins(waits["w2"])
    assert view_json(RECORD, asked[:1])["wait"] is None

"""Learned tool waits on a clock that tests move: what is learned, from when on it is told, and to whom it is not."""

import asyncio
import math
import re
from collections.abc import Coroutine
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from agentcache.clock import ManualClock
from agentcache.router import tool_waits
from agentcache.router.tool_waits import ENOUGH, LEAST_S, Ended, Expected, ToolWaits
from agentcache.router.turn_end import UNKNOWN, TurnEnd
from agentcache.router.wait_counts import WaitCounts
from agentcache.store.api import SessionRef
from agentcache.waits import LONGEST_S, SHORTEST_S

S, OTHER = SessionRef("acme", "s"), SessionRef("acme", "other")
NEXT: dict[str, Any] = {"messages": [{"role": "tool", "tool_call_id": "c"}]}
SIDE: dict[str, Any] = {"messages": [{"role": "user", "content": "a title, please"}]}
STRANGE: dict[str, Any] = {"messages": [{"role": "tool", "tool_call_id": "another turn's"}]}


class World:
    """Learned waits of a router, whose workers take what they are told unless `deaf`; at once unless it is `slow`."""

    def __init__(self) -> None:
        self.clock = ManualClock(10**12)
        self.told: list[tuple[Ended, Expected]] = []
        self.deaf = False
        self.slow = False
        self._registry = CollectorRegistry()
        self._later: list[Coroutine[object, object, None]] = []
        self.waits = ToolWaits(self.clock, self._tell, self._begin, WaitCounts(self._registry))

    async def _tell(self, ended: Ended, expected: Expected) -> bool:
        self.told.append((ended, expected))
        return not self.deaf

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        self._later.append(work)
        if not self.slow:
            self.arrive()

    def arrive(self) -> None:
        """What is on its way gets there."""
        while self._later:
            asyncio.run(self._later.pop(0))

    def ends(self, *tools: str, ref: SessionRef = S, said: bool = False, calls: str = "c") -> None:
        turn = TurnEnd("tool_calls", tools, frozenset(calls))
        self.waits.ended(Ended(ref, "w1", 7, turn, said))

    def returns(self, ref: SessionRef = S, body: dict[str, Any] | None = None) -> None:
        self.waits.returned(ref, NEXT if body is None else body, self.clock.now_ns())

    def wait(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1e9))

    def turn(self, seconds: float, *tools: str, ref: SessionRef = S, said: bool = False) -> None:
        """A turn with calls, which take so long."""
        self.ends(*tools, ref=ref, said=said)
        self.wait(seconds)
        self.returns(ref)

    @property
    def hints(self) -> list[tuple[str, float]]:
        return [(expected.tool, round(expected.seconds, 3)) for _, expected in self.told]

    def count(self, name: str) -> float:
        text = generate_latest(self._registry).decode()
        found = re.search(rf"^agentcache_router_{re.escape(name)} (\S+)$", text, re.MULTILINE)
        assert found, text
        return float(found[1])


def test_the_worker_is_told_once_a_tool_has_been_seen_often_enough() -> None:
    world = World()
    for _ in range(ENOUGH):
        world.turn(20.0, "bash")
        assert not world.told
    world.ends("bash")
    assert world.hints == [("bash", 20.0)]
    assert (world.told[0][0].worker, world.told[0][0].generation, world.told[0][0].ref) == ("w1", 7, S)
    assert world.count('wait_hints_total{outcome="sent"}') == 1


def test_what_one_session_teaches_counts_for_all_of_the_tenant_and_for_no_other() -> None:
    world = World()
    for _ in range(ENOUGH):
        world.turn(20.0, "bash")
    world.ends("bash", ref=SessionRef("beta", "s"))
    assert not world.told
    world.ends("bash", ref=OTHER)
    assert world.hints == [("bash", 20.0)]


def test_logarithms_are_averaged_and_new_gaps_move_the_mean() -> None:
    world = World()
    for seconds in (16.0, 20.0, 25.0):
        world.turn(seconds, "bash")
    world.turn(20.0, "bash")
    assert world.hints == [("bash", 20.0)]
    for _ in range(400):
        world.turn(60.0, "bash")
    world.ends("bash")
    assert world.hints[-1][1] == pytest.approx(60.0, rel=0.01)


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.3 * LEAST_S, False), (0.9 * LEAST_S, False), (1.2 * LEAST_S, True)]
)
def test_short_waits_are_not_worth_a_word(seconds: float, told: bool) -> None:
    world = World()
    for _ in range(ENOUGH + 1):
        world.turn(seconds, "ls")
    assert bool(world.told) == told


def test_a_tool_that_takes_now_this_long_and_now_that_is_not_foreseen() -> None:
    world = World()
    for _ in range(20):
        world.turn(2.0, "bash")
        world.turn(200.0, "bash")
    assert len(world.told) < 3
    for _ in range(100):
        world.turn(20.0, "bash")
    assert world.told


@pytest.mark.parametrize(("factor", "told"), [(1.2, True), (1.5, True), (2.2, False), (3.0, False)])
def test_a_tool_is_foreseen_while_it_is_usually_nearer_its_mean_than_histories_are(
    factor: float, told: bool
) -> None:
    world = World()
    for _ in range(50):
        world.turn(20.0 / factor, "bash")
        world.turn(20.0 * factor, "bash")
    world.told.clear()
    world.ends("bash")
    assert bool(world.told) == told


@pytest.mark.parametrize(("gap_s", "learned_s"), [(0.0, SHORTEST_S), (1e-6, SHORTEST_S), (1e6, LONGEST_S)])
def test_gaps_are_clamped(gap_s: float, learned_s: float) -> None:
    world = World()
    for _ in range(ENOUGH):
        world.turn(gap_s, "bash")
    assert world.waits.expected("acme", ("bash",)).seconds == pytest.approx(learned_s)


# several tools


def test_of_several_tools_the_longest_expected_counts_and_learns() -> None:
    world = World()
    for _ in range(ENOUGH):
        world.turn(0.2, "read")
        world.turn(30.0, "test")
    world.ends("read", "test")
    assert world.hints[-1] == ("test", 30.0)
    world.wait(60.0)
    world.returns()
    assert world.waits.expected("acme", ("read",)).seconds == pytest.approx(0.2)
    assert world.waits.expected("acme", ("test",)).seconds > 30.0


def test_a_tool_that_is_new_may_have_been_the_slow_one() -> None:
    world = World()
    for _ in range(ENOUGH):
        world.turn(2.0, "read")
        world.turn(50.0, "new", "read")
    assert world.waits.expected("acme", ("new",)).seconds == pytest.approx(50.0)
    assert world.waits.expected("acme", ("read",)).seconds == pytest.approx(2.0)
    assert world.waits.expected("acme", ("never", "seen")) == Expected("", 0.0)


@pytest.mark.parametrize("other", ["never seen", "now and then"])
def test_beside_a_tool_that_may_be_slower_nothing_is_foreseen(other: str) -> None:
    world = World()
    for _ in range(20):
        world.turn(2.0, "bash")
        world.turn(2.0, "now and then")
        world.turn(400.0, "now and then")
    world.told.clear()
    world.ends("bash", other)
    assert not world.told
    world.ends("bash")
    assert world.hints == [("bash", 2.0)]


def test_a_tool_that_is_only_ever_called_beside_a_slower_one_keeps_nobody_from_foreseeing_that() -> None:
    world = World()
    for _ in range(ENOUGH + 1):
        world.turn(30.0, "test", "read")
    assert world.hints == [("test", 30.0)]


# which request ends a gap


def test_a_request_in_between_ends_nothing() -> None:
    world = World()
    for _ in range(ENOUGH):
        world.ends("bash")
        world.wait(5.0)
        world.returns(body=SIDE)
        world.wait(15.0)
        world.returns()
        world.returns()
    assert world.waits.expected("acme", ("bash",)).seconds == pytest.approx(20.0)


def test_turns_that_another_router_has_served_teach_nothing() -> None:
    world = World()
    for _ in range(3 * ENOUGH):
        world.ends("bash")
        world.wait(1000.0)
        world.returns(body=STRANGE)
        world.returns()
    assert world.waits.expected("acme", ("bash",)).seconds == 0


def test_without_ids_the_next_request_ends_the_gap() -> None:
    world = World()
    for _ in range(ENOUGH):
        world.ends("bash", calls="")
        world.wait(7.0)
        world.returns(body={"prompt": [1, 2]})
    assert world.waits.expected("acme", ("bash",)).seconds == pytest.approx(7.0)


@pytest.mark.parametrize(
    "turn", [UNKNOWN, TurnEnd("stop"), TurnEnd("length", ("bash",)), TurnEnd("tool_calls", ())]
)
def test_turns_that_call_no_tool_that_is_known_teach_nothing(turn: TurnEnd) -> None:
    world = World()
    for _ in range(2 * ENOUGH):
        world.waits.ended(Ended(S, "w1", 7, turn))
        world.wait(20.0)
        world.returns()
    assert not world.waits._waiting
    assert not world.told


# who is not told


def test_a_client_that_says_it_itself_is_not_corrected() -> None:
    world = World()
    for _ in range(ENOUGH):
        world.turn(20.0, "bash")
    world.ends("bash", said=True)
    assert not world.told
    world.slow = True
    world.ends("bash")
    world.waits.spoken(S)
    world.arrive()
    assert not world.told
    world.wait(20.0)
    world.returns()
    assert world.waits._tools.known("acme", ("bash",))["bash"].gaps.count == ENOUGH + 1


def test_a_session_that_is_back_already_is_not_announced() -> None:
    world = World()
    for _ in range(ENOUGH):
        world.turn(20.0, "bash")
    world.slow = True
    world.ends("bash")
    world.returns()
    world.arrive()
    assert not world.told


def test_a_worker_that_does_not_hear_costs_a_hint_and_nothing_else() -> None:
    world = World()
    world.deaf = True
    for _ in range(ENOUGH + 2):
        world.turn(20.0, "bash")
    assert world.count('wait_hints_total{outcome="failed"}') == len(world.told) == 2
    assert world.count("wait_hint_error_count") == 0


def test_only_so_many_hints_are_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_waits, "AT_ONCE", 5)
    world = World()
    for _ in range(ENOUGH):
        world.turn(20.0, "bash")
    world.slow = True
    for number in range(20):
        world.ends("bash", ref=SessionRef("acme", str(number)))
    world.arrive()
    assert (len(world.told), world.count('wait_hints_total{outcome="failed"}')) == (5, 15)
    world.ends("bash")
    world.arrive()
    assert len(world.told) == 6


# what is counted


def test_turns_are_counted_by_kind_and_hints_by_how_true_they_were() -> None:
    world = World()
    for _ in range(ENOUGH):
        world.turn(20.0, "bash")
    world.waits.ended(Ended(S, "w1", 7, TurnEnd("stop")))
    world.waits.ended(Ended(S, "w1", 7, UNKNOWN))
    world.turn(20.0 * math.e, "bash")
    kinds = {kind: world.count(f'turn_waits_total{{kind="{kind}"}}') for kind in ("tool", "human", "unknown")}
    assert kinds == {"tool": 4, "human": 1, "unknown": 1}
    assert world.count("wait_hint_error_count") == 1
    assert world.count("wait_hint_error_sum") == pytest.approx(1.0)


# liars, and whoever makes up names


def test_tenants_and_tools_and_sessions_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("TENANTS", 4), ("TOOLS", 3), ("SESSIONS", 5)):
        monkeypatch.setattr(tool_waits, name, few)
    world = World()
    for number in range(50):
        world.ends("bash", ref=SessionRef("acme", f"never back {number}"))
    assert len(world.waits._waiting) == 5
    for number in range(20):
        world.turn(9.0, "used", f"made up {number}", ref=SessionRef("acme", "a"))
        world.turn(9.0, "bash", ref=SessionRef(f"tenant {number}", "a"))
        world.waits.expected("acme", ("used",))
    tenants = world.waits._tools._tenants
    assert len(tenants) == 4
    assert "acme" in tenants
    assert len(tenants["acme"]) == 3
    assert "used" in tenants["acme"]


def test_one_tenant_with_many_names_costs_no_other_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_waits, "TOOLS", 3)
    world = World()
    honest = SessionRef("honest", "s")
    for _ in range(ENOUGH):
        world.turn(20.0, "bash", ref=honest)
    for number in range(500):
        world.turn(9.0, f"made up {number}")
    world.ends("bash", ref=honest)
    assert world.hints == [("bash", 20.0)]

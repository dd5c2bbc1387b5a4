"""The forecast of gaps: what it learns, what it believes, and where it stops."""

import math
import random

import pytest

from agentcache.types import WaitState
from agentcache.waits import Away, Forecast, Mean, Throughput, Told, WaitKind, kind_of, moved

TOOL, HUMAN, UNKNOWN = WaitKind.TOOL, WaitKind.HUMAN, WaitKind.UNKNOWN
HOURS = 3600.0


class World:
    """One forecast, its clock in seconds, and sessions by name."""

    def __init__(self) -> None:
        self.forecast, self.now_s = Forecast(), 1e6
        self.sessions: dict[str, Away] = {}

    @property
    def now(self) -> int:
        return int(self.now_s * 1e9)

    def left(self, session: str = "s", kind: WaitKind = TOOL, hint: float | None = None) -> Away:
        away = self.sessions.setdefault(session, Away())
        self.forecast.left(away, Told(kind, hint), self.now)
        return away

    def gap(
        self, gap: float, session: str = "s", kind: WaitKind = TOOL, hint: float | None = None
    ) -> tuple[float, float | None]:
        """The session leaves and is back after `gap`; answers what was expected, and the hint that was believed."""
        expected = self.expected(session, kind, hint)
        self.now_s += gap
        self.forecast.returned(self.sessions[session], self.now)
        return expected

    def expected(
        self, session: str = "s", kind: WaitKind = TOOL, hint: float | None = None
    ) -> tuple[float, float | None]:
        wait = self.left(session, kind, hint).wait()
        assert (wait.state, wait.since_ns) == (WaitState.IDLE, self.now)
        hinted = None if wait.hint_ns is None else wait.hint_ns / 1e9
        return (wait.since_ns - wait.key_ns) / 1e9, hinted


@pytest.mark.parametrize(("kind", "typical"), [(TOOL, 5), (HUMAN, 60), (UNKNOWN, 60)])
def test_who_was_never_seen_is_typical_of_the_kind(kind: WaitKind, typical: float) -> None:
    assert World().expected(kind=kind)[0] == pytest.approx(typical)


def test_a_kind_learns_the_geometric_mean_of_its_gaps() -> None:
    world = World()
    for number, gap in enumerate([2.0, 8.0]):
        world.gap(gap, f"s{number}")
    assert world.expected("new")[0] == pytest.approx(4)


def test_kinds_learn_apart() -> None:
    world = World()
    world.gap(1000, "s", HUMAN)
    assert world.expected("s", TOOL)[0] == pytest.approx(5, rel=0.01)


def test_a_session_goes_by_its_own_gaps_the_more_it_has_seen() -> None:
    """Others take a second; its own gaps take 100, of which it has seen none, one, and more."""
    world = World()
    for number in range(50):
        world.gap(1.0, f"other {number}")
    first, second, *later = [world.gap(100.0)[0] for _ in range(8)]
    assert first < 1.5 < 10 < second < min(later)
    assert later[-1] > 35


def test_a_history_weighs_no_more_than_it_remembers() -> None:
    """After 50 gaps of 100 s as after the last 3 1/3: ten thirteenths of it, the rest is the kind's 5 s."""
    world = World()
    world.sessions["s"] = Away(habits={TOOL: Mean(0.3, math.log(100), 50)})
    assert world.expected()[0] == pytest.approx(100 ** (10 / 13) * 5 ** (3 / 13))


def test_the_first_three_gaps_weigh_alike_then_the_newest_counts() -> None:
    away, world = Away(), World()
    world.sessions["s"] = away
    for gap in (1.0, math.e**3, math.e**6):
        world.gap(gap)
    assert away.habits[TOOL].value == pytest.approx(3)
    world.gap(math.e**8)
    assert away.habits[TOOL].value == pytest.approx(0.7 * 3 + 0.3 * 8)


def test_a_history_that_predicts_worse_than_the_kind_is_not_used() -> None:
    """Gaps alternate: the session's mean is always wrong, and more so than the mean of all."""
    world = World()
    for turn in range(120):
        world.gap(0.3 if turn % 2 else 30.0)
    for number in range(60):  # of 3 s exactly, which the mean of all is and stays
        world.gap(3.0, f"other {number}")
    mean = world.expected("new")[0]
    figures = world.forecast._kinds[TOOL]
    assert figures.own_error > figures.kind_error
    assert world.expected("s")[0] == pytest.approx(mean, rel=0.05)


def test_who_seldom_returns_is_expected_later() -> None:
    """40 left after one turn. As soon as they stay away for 1.5 times what is usual, one in five returns."""
    world = World()
    for number in range(40):
        world.left(f"s{number}")
    world.now_s += 7.4
    assert world.expected("new")[0] == pytest.approx(5)
    world.now_s += 0.1
    assert world.expected("newer")[0] == pytest.approx(5 * 50 / 10)


def test_who_returns_late_has_returned() -> None:
    world = World()
    for number in range(40):
        world.left(f"s{number}")
    world.now_s += 60
    world.left("new")
    for number in range(30):
        back(world, f"s{number}")
    figures = world.forecast._kinds[TOOL]
    assert (figures.ends[0], figures.returns[0]) == (40, 30)


def test_an_old_gap_is_not_held_against_a_new_one() -> None:
    """It was back before it counted as missing, and is away again when it would have."""
    world = World()
    world.gap(5.0)
    world.left()
    world.now_s += 4
    world.left("other")
    assert world.forecast._kinds[TOOL].ends == [1, 0, 0]


def test_return_rates_go_by_the_number_of_turns() -> None:
    world = World()
    for number in range(40):
        world.left(f"s{number}")
    world.gap(5.0)
    world.now_s += 60
    assert world.expected()[0] == pytest.approx(5)  # a second turn: nobody's end counts against it


def test_a_close_is_not_held_against_those_who_stay() -> None:
    world = World()
    for number in range(40):
        world.left(f"s{number}")
    world.now_s += 60
    world.left("late")
    for name in [f"s{number}" for number in range(40)]:
        world.forecast.closed(world.sessions[name])
    assert world.expected("new")[0] == pytest.approx(5)


def test_rates_forget() -> None:
    world = World()
    for number in range(1000):
        world.left(f"s{number}")
    world.now_s += 60
    world.left("new")
    figures = world.forecast._kinds[TOOL]
    assert 150 < figures.ends[0] <= 400


@pytest.mark.parametrize(("gap", "taken"), [(0.0, 0.1), (-5.0, 0.1), (1e9, 6 * HOURS)])
def test_gaps_are_clamped(gap: float, taken: float) -> None:
    """A clock that jumps teaches at most the longest or the shortest gap."""
    world = World()
    world.gap(gap)
    assert world.sessions["s"].habits[TOOL].value == pytest.approx(math.log(taken))


def test_forecasts_are_clamped() -> None:
    world = World()
    for number in range(300):
        world.left(f"s{number}", HUMAN)
    world.gap(1e9, "last", HUMAN)
    assert world.expected("new", HUMAN)[0] == 6 * HOURS


@pytest.mark.parametrize(
    ("hint", "taken"), [(3.0, 3.0), (0.0, 0.1), (-1.0, 0.1), (1e12, 6 * HOURS), (math.inf, 6 * HOURS)]
)
def test_hints_are_clamped(hint: float, taken: float) -> None:
    assert World().expected(hint=hint)[1] == pytest.approx(taken)


def test_without_a_hint_there_is_none() -> None:
    assert World().expected()[1] is None


def test_a_second_request_of_a_busy_session_teaches_nothing() -> None:
    world = World()
    world.gap(5.0)
    world.now_s += 100
    world.forecast.returned(world.sessions["s"], world.now)
    assert world.sessions["s"].habits[TOOL].count == 1


# whom to believe


def test_hints_that_are_right_to_a_factor_of_two_are_believed() -> None:
    world, rng = World(), random.Random(1)
    for _ in range(200):
        gap = rng.lognormvariate(1, 1.5)
        assert world.gap(gap, hint=max(0.1, gap) * rng.lognormvariate(0, 0.7))[1] is not None


def test_a_liar_is_believed_once_and_then_not_at_all() -> None:
    """Always 0.1 s, really some 10 s: after the first gap exactly as if it had said nothing."""
    lying, silent, rng = World(), World(), random.Random(2)
    for turn in range(200):
        gap = rng.lognormvariate(2.3, 0.8)
        told, said_nothing = lying.gap(gap, hint=0.1), silent.gap(gap)
        assert told == (said_nothing[0], 0.1 if turn == 0 else None)


def test_who_becomes_honest_is_believed_again() -> None:
    world = World()
    for _ in range(20):
        world.gap(60.0, hint=0.1)
    believed = [world.gap(60.0, hint=60.0)[1] is not None for _ in range(10)]
    assert believed == sorted(believed)
    assert not believed[0]
    assert believed[-1]


def test_what_one_session_says_costs_no_other_its_trust() -> None:
    world = World()
    for _ in range(20):
        world.gap(60.0, "liar", hint=0.1)
    assert world.gap(60.0, "honest", hint=60.0)[1] == 60.0


# more is said while the session is away


def hinted(world: World, session: str = "s") -> float | None:
    hint_ns = world.sessions[session].wait().hint_ns
    return None if hint_ns is None else hint_ns / 1e9


def tell(world: World, gap_s: float | None = None, kind: WaitKind = UNKNOWN, session: str = "s") -> None:
    world.forecast.told(world.sessions[session], Told(kind, gap_s), world.now)


def back(world: World, session: str = "s") -> Away:
    world.forecast.returned(world.sessions[session], world.now)
    return world.sessions[session]


def test_a_time_said_later_counts_from_then() -> None:
    world = World()
    world.left()
    world.now_s += 20
    tell(world, 30.0)
    assert hinted(world) == 50.0


def test_a_kind_said_later_is_as_if_it_had_been_said_at_once() -> None:
    """Another forecast, and the figures of the kinds as well; a hint that was given stays."""
    late, at_once = World(), World()
    for world in (late, at_once):
        for number in range(10):
            world.gap(3.0, f"other {number}")
            world.left(f"gone {number}", HUMAN)
    late.left("s", HUMAN, hint=9.0)
    late.now_s += 1
    tell(late, kind=TOOL)
    at_once.left("s", TOOL, hint=9.0)
    assert late.sessions["s"] == at_once.sessions["s"]
    assert late.forecast._kinds == at_once.forecast._kinds


def test_nothing_new_changes_nothing_and_who_is_busy_is_in_no_gap() -> None:
    world = World()
    before = world.left(hint=9.0).wait()
    tell(world)
    assert world.sessions["s"].wait() == before
    back(world)
    tell(world, 5.0, HUMAN)
    assert (world.sessions["s"].kind, world.sessions["s"].idle) == (TOOL, False)


def test_what_is_taken_back_counts_no_more_and_is_held_against_the_gap() -> None:
    world = World()
    away = world.left(hint=0.1)
    world.forecast.taken_back(away, world.now)
    assert hinted(world) is None
    world.now_s += 60
    assert back(world).mistrust.value == pytest.approx(math.log(600))


def test_who_keeps_saying_soon_is_not_believed_long() -> None:
    """Every 50 ms: back in a tenth of a second. Until four and a half times what was said first; then and later not."""
    world, believed = World(), []
    world.left()
    for _ in range(100):
        tell(world, 0.1)
        believed.append(hinted(world) is not None)
        world.now_s += 0.05
    assert believed == sorted(believed, reverse=True)
    assert believed.count(True) == 7
    back(world)
    assert world.expected(hint=0.1)[1] is None


def test_a_return_put_off_a_little_is_believed() -> None:
    world = World()
    world.left(hint=10.0)
    world.now_s += 9
    tell(world, 11.0)
    assert hinted(world) == 20.0
    world.now_s += 11
    assert back(world).mistrust.value == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("tool_calls", TOOL), ("stop", HUMAN), ("length", UNKNOWN), ("abort", UNKNOWN), ("error", UNKNOWN)],
)
def test_the_end_of_a_turn_says_whom_its_session_waits_for(reason: str, kind: WaitKind) -> None:
    assert kind_of(reason) is kind


# expected starts


def test_a_throughput_learns_from_what_was_computed_while_others_waited() -> None:
    """It begins with 100 tokens in a tenth of a second; the hour in which nobody waited teaches nothing."""
    rate = Throughput(1000.0)
    assert rate.takes_ns(500) == 500_000_000
    rate.read(40_000, 0, others_wait=True)
    rate.read(41_000, 3 * 10**9, others_wait=False)
    rate.read(90_000, 3600 * 10**9, others_wait=True)
    assert rate.takes_ns(1_100) == 3_100_000_000
    rate.read(91_900, 3600 * 10**9 + 900_000_000, others_wait=True)
    assert rate.takes_ns(3_000) == 4 * 10**9


def test_a_throughput_forgets() -> None:
    """After ten minutes of 10,000 tokens a second, five of 100."""
    rate = Throughput(1000.0)
    for second in range(600):
        rate.read(10_000 * second, second * 10**9, others_wait=True)
    for second in range(300):
        rate.read(5_990_000 + 100 * second, (599 + second) * 10**9, others_wait=True)
    assert rate.takes_ns(100) / 1e9 == pytest.approx(1, rel=0.1)


def test_a_queue_that_stands_still_has_a_throughput_too() -> None:
    rate = Throughput(1000.0)
    for second in range(10_000):
        rate.read(0, second * 10**9, others_wait=True)
    assert 10**9 <= rate.takes_ns(1) <= 60 * 10**9


@pytest.mark.parametrize(
    ("told_s", "start_s", "again"),
    [(10.0, 14.0, True), (10.0, 12.5, False), (10.0, 8.0, False), (10.0, 7.9, True), (0.0, 0.02, False)],
)
def test_a_start_moves_by_a_quarter_of_the_time_until_then(
    told_s: float, start_s: float, again: bool
) -> None:
    """It is 0 s; of what begins within a tenth of a second nobody says more."""
    assert moved(int(told_s * 1e9), int(start_s * 1e9), 0) is again

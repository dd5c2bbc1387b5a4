"""What an engine says of waits, and what leaves for that: queued sessions, announced returns, lies. Modelled time."""

import random
from dataclasses import dataclass, field

import pytest

from agentcache.clock import ManualClock
from agentcache.engine.api import Admitted
from agentcache.engine.engine import Engine
from agentcache.records import Paused
from agentcache.types import SessionId, SessionTag, WaitState
from agentcache.waits import Throughput, Told, WaitKind
from tests.accounting import account, play
from tests.engines import GRID, PAGE, ask, prompt_of

SECOND = 10**9


@dataclass
class World:
    """An engine with FULL slots for so many tokens, one seat, and a thousand prompt tokens a second."""

    tokens: int
    order: str = "fcfs"
    clock: ManualClock = field(default_factory=ManualClock)
    cached: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine: Engine = account(
            model="tiny-full",
            clock=self.clock,
            full_slots=self.tokens // PAGE,
            eviction_policy="ert",
            prefill_order=self.order,
            max_running=1,
            prefill_tokens=GRID,
            prompt_only=True,
            accounting_prefill_tokens_per_s=1000,
        )
        self.clock.advance(1000 * SECOND)

    def submit(self, session: str, tokens: int, expected_s: float = 0.0) -> None:
        """A turn with the first `tokens` of the session's own words, and one more that is computed anyway."""
        tag = SessionTag(SessionId(session), expected_s=expected_s)
        prompt = prompt_of(tokens + 1, seed=sum(session.encode()))
        number = sum(map(len, self.cached.values()))
        self.engine.submit(ask(f"{session}#{number} {tokens}", prompt, 1, session=tag))

    def drain(self) -> list[str]:
        """Let all that is queued run; answers the sessions in the order in which they began."""
        begun: list[str] = []

        def told(event: object) -> None:
            if isinstance(event, Admitted):
                begun.append(str(event.session))
                self.cached.setdefault(str(event.session), []).append(event.cached_tokens)

        play(self.engine, self.clock, told)
        return begun

    def turn(self, session: str, tokens: int, expected_s: float = 0.0) -> int:
        """A whole turn; answers how much of it was cached."""
        self.submit(session, tokens, expected_s)
        self.drain()
        return self.cached[session][-1]

    def has(self, session: str, tokens: int) -> int:
        """How much of a session's words is cached, without a trace."""
        request = ask("look", prompt_of(tokens + 1, seed=sum(session.encode())))
        return self.engine.cache.peek(self.engine._prompt(request))

    def after(self, seconds: float) -> None:
        self.clock.advance(int(seconds * SECOND))


# announced returns


@pytest.mark.parametrize("first", ["near", "far"])
@pytest.mark.parametrize("said", ["with the request", "by a pause"])
def test_under_pressure_who_will_be_back_soon_keeps_its_prefix(first: str, said: str) -> None:
    world, returns_s = World(256), {"near": 20.0, "far": 3000.0}
    for session in sorted(returns_s, reverse=first == "near"):
        by_request = said == "with the request"
        world.turn(session, 96, returns_s[session] if by_request else 0.0)
        if not by_request:
            world.engine.cache.pause_session(session, Paused("bash", returns_s[session]))
        world.after(1)
    world.turn("other", 128)
    assert (world.has("near", 96), world.has("far", 96)) == (96, 32)


@pytest.mark.parametrize("first", ["near", "far"])
def test_without_a_word_the_one_that_was_there_first_goes_first(first: str) -> None:
    world, second = World(256), {"near": "far", "far": "near"}[first]
    for session in (first, second):
        world.turn(session, 96)
        world.after(100)
    world.turn("other", 128)
    assert (world.has(first, 96), world.has(second, 96)) == (32, 96)


def test_who_calls_a_tool_is_kept_before_who_answered_a_person() -> None:
    """The engine says that a turn has ended by itself; whoever read the answer says that it calls a tool."""
    world = World(256)
    for session in ("calls", "answers"):
        world.turn(session, 96)
        world.after(1)
    world.engine.cache.tell_session(SessionId("calls"), 1, Told(WaitKind.TOOL))
    world.turn("other", 128)
    assert (world.has("calls", 96), world.has("answers", 96)) == (96, 32)


def test_an_announced_return_holds_nothing_that_somebody_needs() -> None:
    world = World(256)
    world.turn("near", 96, expected_s=1.0)
    world.turn("other", 256)
    assert (world.has("near", 96), world.has("other", 256)) == (0, 256)


@pytest.mark.parametrize(("away_s", "kept"), [(200, "late"), (800, "quiet")])
def test_who_is_overdue_counts_as_four_times_as_recent(away_s: int, kept: str) -> None:
    """Said 20 s, and is away for 200: that counts as 50, for 800 as 200. The other counts as away for 40 + 120."""
    world = World(256)
    world.turn("late", 96, expected_s=20.0)
    world.after(away_s - 40)
    world.turn("quiet", 96)
    world.after(40)
    world.turn("other", 128)
    assert {name: world.has(name, 96) for name in ("late", "quiet")} == {"late": 32, "quiet": 32} | {kept: 96}


def lies(expected_s: float, turns: int = 25) -> dict[str, list[int]]:
    """Six sessions with gaps of about a minute over a pool for four; one says with each turn when it will be back."""
    source, world = random.Random(3), World(1024)
    lengths = dict.fromkeys(("liar", "b", "c", "d", "e", "f"), 160)
    for _ in range(turns):
        for session in sorted(lengths, key=lambda _: source.random()):
            world.turn(session, lengths[session], expected_s if session == "liar" else 0.0)
            lengths[session] = 160 if lengths[session] >= 256 else lengths[session] + 16
            world.after(source.lognormvariate(2, 0.8))
    return world.cached


def test_a_liar_gains_nothing_once_its_hints_have_proved_wrong() -> None:
    """Always a tenth of a second: after the first gap exactly what one has that says nothing."""
    lying, silent = lies(0.1), lies(0.0)
    assert lying["liar"][2:] == silent["liar"][2:]


def test_who_is_right_gains() -> None:
    honest, silent = lies(40.0), lies(0.0)
    assert sum(honest["liar"]) > 1.2 * sum(silent["liar"])


# the queue


def queued(order: str) -> World:
    """Five sessions fill 512 tokens; three of them wait, and the one with the shortest prefix has waited longest.

    c has the longest, begins first, and needs 64 tokens more; a needs 32, b 256. One more is expected back in half a
    second, and one somewhen.
    """
    world = World(512, order)
    for session, tokens in [("idle", 64), ("b", 64), ("a", 128), ("c", 192)]:
        world.turn(session, tokens)
        world.after(100)
    world.turn("near", 64, expected_s=0.5)
    for session, tokens in [("b", 320), ("a", 160), ("c", 256)]:
        world.submit(session, tokens)
    return world


def begin_next(world: World) -> None:
    """One step: the next one begins, and takes what it needs."""
    world.engine.step()
    world.engine.cache.check()


def has(world: World) -> dict[str, int]:
    return {name: world.has(name, 192) for name in ("idle", "near", "a", "b")}


def test_where_the_longest_prefix_goes_first_what_waits_is_ranked_by_its_expected_start() -> None:
    """Idle ones go first, whoever is back sooner last; then b, which a will overtake."""
    world = queued("longest_prefix")
    begin_next(world)
    assert has(world) == {"idle": 0, "near": 64, "a": 128, "b": 64}
    states = {name: world.engine.cache._sessions.wait(SessionId(name)) for name in "abc"}
    assert [states[name].state for name in "abc"] == [WaitState.PENDING, WaitState.PENDING, WaitState.RUNNING]
    a, b = ((states[name].eta_ns or 0) - world.clock.now_ns() for name in "ab")
    assert b / a == pytest.approx((65 + 33) / 65)  # the tokens of c, and of a after it
    assert world.drain() == ["c", "a", "b"]
    assert world.cached["a"] == [0, 128]


def test_who_begins_next_and_who_is_back_before_the_last_in_the_queue_are_kept() -> None:
    """At 100 tokens a second b is expected in a second, later than one that is away: it goes, though it was first."""
    world = queued("longest_prefix")
    world.engine._waiting.rate = Throughput(100.0)
    world.engine.abort(next(name for name in world.engine.active() if name.startswith("c")))
    world.submit("c", 320)
    begin_next(world)
    assert has(world) == {"idle": 0, "near": 64, "a": 128, "b": 0}
    world.drain()
    assert world.cached["a"] == [0, 128]


def test_where_the_oldest_goes_first_nobody_is_expected_and_the_latest_goes() -> None:
    world = queued("fcfs")
    begin_next(world)
    waits = [world.engine.cache._sessions.wait(SessionId(name)) for name in "ac"]
    assert [(wait.state, wait.eta_ns) for wait in waits] == [(WaitState.PENDING, None)] * 2
    assert has(world) == {"idle": 0, "near": 0, "a": 128, "b": 64}
    assert world.has("c", 192) == 64


def test_how_fast_the_queue_moves_is_learned_from_it() -> None:
    """At first it is taken to be ten times as fast."""
    world = World(4096, "least_uncached")
    for number in range(40):
        world.submit(f"s{number}", 240)
    world.drain()
    assert world.engine._waiting.rate.takes_ns(1000) == pytest.approx(SECOND, rel=0.2)

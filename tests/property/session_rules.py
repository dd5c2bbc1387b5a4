"""The last layer of the core machine: turns, closes and generations, with the registry's rule of who may register."""

from dataclasses import dataclass, replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from agentcache.keys import Key
from agentcache.types import ReleaseMode, SessionId, TierName, Turn, Wait, WaitState
from tests.flight import HeldLease
from tests.oracle import residency
from tests.property.core_machine import LETTERS, PICK, SEEDS, SPACES
from tests.property.graft_rules import Grafts
from tests.property.marker_model import Mark
from tests.property.order_model import lost

NAMES = st.sampled_from(["s", "t"])
TIMES = st.integers(0, 60)
WAITS = st.builds(
    Wait,
    st.sampled_from(WaitState),
    key_ns=TIMES,
    hint_ns=st.none() | st.integers(0, 300),
    seq=st.integers(1, 4),
    eta_ns=st.none() | st.integers(-20, 60),
)
"""Times are of now, and made so when they are said."""
MODES = st.sampled_from([ReleaseMode.RELEASE, ReleaseMode.DROP, ReleaseMode.DROP, ReleaseMode.DEMOTE])


@dataclass
class RunningTurn:
    """A turn that was admitted: its session and generation then, its start, what it locked."""

    session: str
    generation: int
    start: int
    key: Key
    held: HeldLease


class CoreMachine(Grafts):
    """All operations. A completion registers iff its generation is current and not closed (design §4.5)."""

    @initialize()
    def open_registry(self) -> None:
        self.sequence = 0
        self.current: dict[str, int] = {}
        self.closed: dict[str, int] = {}
        self.running: list[RunningTurn] = []
        self.ways: dict[str, tuple[int, Key]] = {}  # where the last turn that registered ended
        self.heirs: dict[str, int] = {}

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    @rule(session=NAMES, letters=LETTERS, space=SPACES, seed=SEEDS)
    def admit(self, session: str, letters: str, space: object, seed: int) -> None:
        """A request arrives; for a closed session it opens the next generation."""
        if len(self.running) > 2:
            return
        current = self.current.get(session, 0)
        if current and seed % 11 == 0:
            current = self.current[session] = (
                current + 1
            )  # a fence: the older markers stay until this one registers
            self.reached["fenced"] += 1
        if current <= self.closed.get(session, 0):
            self.reached["reopened"] += current > 0
            current = self.closed.get(session, 0) + 1
            self.current[session] = current
        key = self.key(letters, space)
        held = self.driver.lock(key)
        self.running.append(RunningTurn(session, current, self.next_sequence(), key, held))

    @rule(
        pick=PICK,
        seed=SEEDS,
        superseded=st.sampled_from([False, False, False, True]),
        user=st.integers(0, 24),
    )
    def finish(self, pick: int, seed: int, superseded: bool, user: int) -> None:
        """The turn publishes, registers if it still may, and lets go of its lease."""
        if not self.running:
            return
        turn = self.running.pop(pick % len(self.running))
        held = self.driver.leases.get(turn.held.lease)
        if held and _on_path(held, turn.key):
            self.offer(turn.key, seed, held, TierName.DEVICE)
        rightful = self.current[turn.session] == turn.generation > self.closed.get(turn.session, 0)
        self.reached["late completion"] += not rightful
        if rightful:
            self.register(turn, superseded, user)
        if held:
            self.driver.unlock(held)

    @rule(session=NAMES, letters=LETTERS, space=SPACES, seed=SEEDS, user=st.integers(0, 24))
    def turn(self, session: str, letters: str, space: object, seed: int, user: int) -> None:
        """A whole turn with nothing in between."""
        before = len(self.running)
        self.admit(session, letters, space, seed)
        if len(self.running) > before:
            self.finish(before, seed, seed % 5 == 0, user)

    @rule(child=NAMES)
    def fork(self, child: str) -> None:
        """A session inherits where the other one's last turn ended, if it has no turn yet since it was opened."""
        generation = self.current.get(child, 0)
        if generation <= self.closed.get(child, 0):
            generation = self.current[child] = self.closed.get(child, 0) + 1
        parent = "t" if child == "s" else "s"
        if parent not in self.ways or child in self.ways or child in self.heirs:
            return
        _, key = self.ways[parent]
        at = self.driver.peek(key).any_tier
        if at.length == 0:
            return
        inherited = Turn(at, None, 0, 0)
        answer = self.driver.core.reference(SessionId(child), generation, inherited, self.driver.tick())
        assert not answer.markers
        self.driver.apply(answer.effects)
        path = tuple(key.tokens[: at.length].tolist())
        self.model.register(child, Mark(key.namespace, path, 0, generation, 0, 0), False)
        self.ranks.follow(self.model, residency(self.driver.core.snapshot()))
        self.heirs[child] = generation
        self.reached["forked"] += 1

    def register(self, turn: RunningTurn, superseded: bool, user: int) -> None:
        finish = self.next_sequence()
        at = self.driver.peek(turn.key).any_tier
        other = self.driver.peek(turn.key, min(user * self.page // 4, at.length)).any_tier
        if at.length == 0:
            return
        if self.heirs.pop(turn.session, 0):
            superseded = True
            self.reached["first turn of a fork"] += 1
        self.ways[turn.session] = (turn.generation, Key(turn.key.tokens[: at.length], turn.key.namespace))
        values = Turn(at, other if other.length else None, turn.start, finish, superseded)
        answer = self.driver.core.reference(
            SessionId(turn.session), turn.generation, values, self.driver.tick()
        )
        self.driver.apply(answer.effects)
        path = tuple(turn.key.tokens[: at.length].tolist())
        mark = Mark(turn.key.namespace, path, other.length, turn.generation, turn.start, finish)
        self.model.register(turn.session, mark, superseded)
        self.ranks.follow(self.model, residency(self.driver.core.snapshot()))
        self.reached["left marker"] += any(seen[-1] for seen in self.model.seen())
        self.reached["parallel turns"] += any(t.session == turn.session for t in self.running)

    @rule(session=NAMES, mode=MODES, again=st.booleans())
    def close(self, session: str, mode: ReleaseMode, again: bool) -> None:
        """Preview, close, and perhaps close once more."""
        generation = self.current.get(session, 0)
        before = self.driver.core.snapshot()
        self.driver.release(session, ReleaseMode.PREVIEW, generation)
        assert self.driver.core.snapshot() == before
        wanted = set(self.model.references(without=session, through=generation))
        self.let_go(session, generation)
        answer = self.driver.release(session, mode, generation)
        gone = lost(before, self.driver.core.snapshot())
        assert mode is ReleaseMode.DROP or not gone, "only a drop takes data"
        assert mode is not ReleaseMode.RELEASE or not answer.effects
        assert not gone & wanted, "a drop took what somebody else wants"
        self.reached["drop took data"] += bool(gone)
        self.closed[session] = max(self.closed.get(session, 0), generation)
        if again:
            after = self.driver.core.snapshot()
            assert self.driver.release(session, mode, generation).markers == 0
            assert self.driver.core.snapshot() == after
            self.reached["double close"] += 1

    def let_go(self, session: str, generation: int) -> None:
        """In the model, before the core: what a drop takes then moves the markers of others."""
        if session in self.ways and self.ways[session][0] <= generation:
            del self.ways[session]
        if self.heirs.get(session, generation + 1) <= generation:
            del self.heirs[session]
            self.reached["closed before its first turn"] += 1
        self.model.release(session, generation)
        self.ranks.follow(self.model, residency(self.driver.core.snapshot()))

    @rule(pick=PICK, mode=MODES)
    def close_under_a_running_turn(self, pick: int, mode: ReleaseMode) -> None:
        if self.running:
            self.close(self.running[pick % len(self.running)].session, mode, False)

    @rule(session=NAMES)
    def close_the_generation_before(self, session: str) -> None:
        """A close that comes after the session was reopened: it must not touch the new generation."""
        older = self.current.get(session, 0) - 1
        if older < 1:
            return
        kept = [mark for mark in self.model.marks.get(session, []) if mark.generation > older]
        self.let_go(session, older)
        self.driver.release(session, ReleaseMode.RELEASE, older)
        self.reached["close after reopen"] += bool(kept)

    @rule(session=NAMES, letters=LETTERS, space=SPACES, seed=SEEDS)
    def reopen_and_close_late(self, session: str, letters: str, space: object, seed: int) -> None:
        """Closed, opened by the next turn, and then the first close arrives once more."""
        self.close(session, ReleaseMode.RELEASE, False)
        self.turn(session, letters, space, seed, 0)
        self.close_the_generation_before(session)

    @rule(session=NAMES, wait=WAITS, since=TIMES, later=st.sampled_from([0, 0, 10, 50]))
    def expect(self, session: str, wait: Wait, since: int, later: int) -> None:
        """Sessions say what they do, and time passes."""
        self.driver.now += later
        now = self.driver.now
        there = replace(
            wait,
            since_ns=now - since,
            key_ns=now - since - wait.key_ns,
            eta_ns=None if wait.eta_ns is None else now + wait.eta_ns,
        )
        self.driver.expect(session, there)
        self.ranks.waiting.expect(session, there)

    @rule(words=st.tuples(WAITS, WAITS), since=TIMES, which=PICK, count=st.integers(1, 5))
    def press(self, words: tuple[Wait, Wait], since: int, which: int, count: int) -> None:
        """Everybody says what they do, and pieces go one by one."""
        for session, wait in zip(("s", "t"), words, strict=True):
            self.expect(session, wait, since, 0)
        specs = self.driver.config.specs
        for _ in range(count):
            self.make_room(specs[which % len(specs)].name, TierName.DEVICE, 1)


def _on_path(held: HeldLease, key: Key) -> bool:
    """Other rules may have moved the lease: is its boundary still on the path of `key`?"""
    same = held.key.tokens[: held.length].tolist() == key.tokens[: held.length].tolist()
    return same and held.key.namespace == key.namespace

"""Two cores as one: every call goes to both, and any difference in what they say or hold is an error."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from agentcache.errors import CacheError
from agentcache.keys import Key, Namespace
from agentcache.tree.api import CoreConfig, UnifiedTreeCore
from agentcache.types import (
    Boundary,
    Committed,
    ComponentName,
    Evicted,
    Insert,
    Inserted,
    Job,
    Lease,
    Locked,
    MatchResult,
    Piece,
    Planned,
    Released,
    ReleaseMode,
    SessionId,
    TierName,
    Turn,
    Wait,
)
from agentcache.views import CoreStats, Outline, Snapshot
from tests.listening import Listener
from tests.oracle import residency
from tests.parity.handles import Handles, SameHandles
from tests.parity.wording import answer_text, page_text

Answer = TypeVar("Answer")
Ask = Callable[[UnifiedTreeCore, SameHandles], Answer]


class DifferenceError(AssertionError):
    """Two cores disagree, or one of them broke."""


@dataclass(frozen=True, slots=True)
class Watching:
    """How closely: compare snapshots and counts after every n-th call, and let both cores check themselves then."""

    every: int = 1
    checks: bool = False


class PairCore:
    """A core that asks two, compares, and answers what the first one said.

    Handles are the first core's; the second gets its own for them.
    """

    def __init__(
        self, first: UnifiedTreeCore, second: UnifiedTreeCore, watching: Watching | None = None
    ) -> None:
        self.first, self.second = first, second
        self._watching = watching or Watching()
        self._epochs = (first.snapshot().epoch, second.snapshot().epoch)
        self._handles = Handles(self._epochs)
        self._same = SameHandles()
        self._listener = Listener(first.config)
        self._last = self._compare_states("new")
        self._calls = 0

    @property
    def config(self) -> CoreConfig:
        return self.first.config

    # -- Lookup

    def match(self, key: Key, limit: int, now_ns: int) -> MatchResult:
        return self._ask("match", lambda core, _: core.match(key, limit, now_ns))

    def peek(self, key: Key, limit: int) -> MatchResult:
        return self._ask("peek", lambda core, _: core.peek(key, limit), mutates=False)

    def insert(self, key: Key, offer: Insert, now_ns: int) -> Inserted:
        return self._ask("insert", lambda core, its: core.insert(key, its.offer(offer), now_ns))

    def lock(self, boundary: Boundary, now_ns: int) -> Locked:
        return self._ask("lock", lambda core, its: core.lock(its.boundary(boundary), now_ns))

    def relock(self, lease: Lease, boundary: Boundary, now_ns: int) -> Locked:
        return self._ask(
            "relock", lambda core, its: core.relock(its.lease(lease), its.boundary(boundary), now_ns)
        )

    def unlock(self, lease: Lease, component: ComponentName | None, now_ns: int) -> None:
        self._ask("unlock", lambda core, its: core.unlock(its.lease(lease), component, now_ns))

    def evict(
        self,
        component: ComponentName,
        tier: TierName,
        want: int,
        room: dict[ComponentName, int],
        now_ns: int,
        before: Wait | None = None,
    ) -> Evicted:
        return self._ask(
            "evict", lambda core, _: core.evict(component, tier, want, dict(room), now_ns, before)
        )

    # -- Tiering

    def plan_backup(
        self,
        boundary: Boundary,
        source: TierName,
        target: TierName,
        now_ns: int,
        room: dict[ComponentName, int] | None = None,
    ) -> Planned:
        return self._ask(
            "plan_backup",
            lambda core, its: core.plan_backup(its.boundary(boundary), source, target, now_ns, room),
        )

    def plan_load(self, boundary: Boundary, source: TierName, target: TierName, now_ns: int) -> Planned:
        return self._ask(
            "plan_load", lambda core, its: core.plan_load(its.boundary(boundary), source, target, now_ns)
        )

    def commit(self, job: Job, landed: tuple[Piece, ...], now_ns: int) -> Committed:
        return self._ask("commit", lambda core, its: core.commit(its.job(job), landed, now_ns))

    # -- Sessions

    def reference(self, session: SessionId, generation: int, turn: Turn, now_ns: int) -> Released:
        return self._ask(
            "reference", lambda core, its: core.reference(session, generation, its.turn(turn), now_ns)
        )

    def release(
        self, session: SessionId, through_generation: int, mode: ReleaseMode, now_ns: int
    ) -> Released:
        return self._ask("release", lambda core, _: core.release(session, through_generation, mode, now_ns))

    def expect(self, session: SessionId, wait: Wait, now_ns: int) -> None:
        self._ask("expect", lambda core, _: core.expect(session, wait, now_ns))

    # -- Inspect

    def snapshot(self) -> Snapshot:
        self._last = self._compare_states("snapshot")
        return self._last

    def check(self) -> None:
        for core in (self.first, self.second):
            try:
                core.check()
            except Exception as fault:
                raise DifferenceError(f"check of {_name(core)}: {fault!r}") from fault

    def stats(self) -> CoreStats:
        mine, theirs = self.first.stats(), self.second.stats()
        if mine != theirs:
            raise DifferenceError(f"counts after a call\n  first  {mine}\n  second {theirs}")
        return mine

    def outline(self, limit: int) -> Outline:
        mine, theirs = self.first.outline(limit), self.second.outline(limit)
        if mine != theirs:
            raise DifferenceError(f"outline after a call\n  first  {mine}\n  second {theirs}")
        return mine

    def clear(self, namespace: Namespace | None, now_ns: int) -> Released:
        return self._ask("clear", lambda core, _: core.clear(namespace, now_ns))

    # -- inside

    def _ask(self, what: str, ask: Ask[Answer], mutates: bool = True) -> Answer:
        mine = _Outcome.of(lambda: ask(self.first, self._same), self._epochs[0])
        theirs = _Outcome.of(lambda: ask(self.second, self._handles), self._epochs[1])
        if mine.text != theirs.text:
            raise DifferenceError(f"{what}\n  first  {mine.text}\n  second {theirs.text}")
        if isinstance(mine.value, Exception):
            self._expect_unchanged(what)
            raise mine.value
        self._handles.learn(mine.value, theirs.value)
        self._listener.hear(getattr(mine.value, "effects", ()))
        self._calls += mutates
        if mutates and self._calls % self._watching.every == 0:
            self._look(what)
        return mine.value  # type: ignore[return-value]

    def _look(self, what: str) -> None:
        self._last = self._compare_states(what)
        self._listener.agree(residency(self._last))
        self.stats()
        for limit in (2, 1000):
            self.outline(limit)
        if self._watching.checks:
            self.check()

    def _expect_unchanged(self, what: str) -> None:
        if self._watching.every == 1:
            before, after = self._last, self._compare_states(what)
            if before != after:
                raise DifferenceError(
                    f"{what} was refused and yet changed\n{snapshot_difference(before, after)}"
                )

    def _compare_states(self, what: str) -> Snapshot:
        mine, theirs = self.first.snapshot(), self.second.snapshot()
        shown = _relative(theirs, self._epochs[0] - self._epochs[1])
        if mine != shown:
            raise DifferenceError(f"state after {what}\n{snapshot_difference(mine, shown)}")
        return mine


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a call gave: a value or a refusal, and the line that must be equal."""

    value: object
    text: str

    @classmethod
    def of(cls, call: Callable[[], object], epoch: int) -> "_Outcome":
        try:
            value = call()
        except CacheError as refusal:
            return cls(refusal, f"refused={refusal.kind}")
        except Exception as fault:
            raise DifferenceError(f"a core broke: {fault!r}") from fault
        return cls(value, answer_text(value, epoch))


def _relative(snapshot: Snapshot, shift: int) -> Snapshot:
    if not shift:
        return snapshot
    return Snapshot(snapshot.pages, snapshot.markers, snapshot.leases, snapshot.jobs, snapshot.epoch + shift)


def _name(core: UnifiedTreeCore) -> str:
    return type(core).__name__


def snapshot_difference(first: Snapshot, second: Snapshot) -> str:
    """The lines in which two snapshots differ."""
    lines = []
    for mark, mine, other in (("first ", first, second), ("second", second, first)):
        shown = set(map(page_text, other.pages))
        lines += [f"  {mark} {text.rstrip()}" for text in map(page_text, mine.pages) if text not in shown]
        lines += [f"  {mark} {marker}" for marker in mine.markers if marker not in other.markers]
        lines.append(f"  {mark} leases {mine.leases} jobs {mine.jobs} epoch {mine.epoch}")
    if first.markers != second.markers and set(first.markers) == set(second.markers):
        lines.append("  the markers stand in another order")
    return "\n".join(lines)

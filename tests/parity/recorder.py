"""Recorded traces: what a core was asked and what it answered, a line each, without a handle in it.

A trace is plain text, so that the native core's own tests read it too (`agentcache/_rust/core/tests`):

    agentcache-trace 1
    core <what the core was built from, as in `shapes.py`>
    space <n> digest=<hex> <the namespace's fields>
    key <n> space=<n> [from=<earlier key>/<tokens>] tokens=<the rest, runs as first..last>
    <n> <method> <arguments> => <answer, as in `wording.py`> | <digest of the state after it, or ->

Boundaries, leases and jobs are called by the line that answered them, as in `oplog.py`.
"""

from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote

from agentcache.errors import CacheError
from agentcache.keys import Key, Namespace
from agentcache.tree.api import CoreConfig, UnifiedTreeCore
from agentcache.types import (
    Boundary,
    Committed,
    ComponentName,
    Effects,
    Evicted,
    Insert,
    Inserted,
    Job,
    Lease,
    Locked,
    MatchResult,
    Move,
    NodeRef,
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
from tests.parity.shapes import config_text
from tests.parity.wording import answer_text, pieces_text, runs_text, snapshot_digest

HEADER = "agentcache-trace 1"
NOBODYS = "nobodys"
Answer = TypeVar("Answer")


class Names:
    """What the answers of a core are called."""

    def __init__(self) -> None:
        self._boundaries: dict[Boundary, str] = {}
        self._nodes: dict[tuple[NodeRef, int], str] = {}
        self._leases: dict[int, str] = {}
        self._jobs: dict[int, str] = {}

    def boundary(self, boundary: Boundary) -> str:
        if boundary in self._boundaries:
            return self._boundaries[boundary]
        near = self._nodes.get((boundary.node, boundary.epoch))
        return f"{near}/{boundary.length}" if near else NOBODYS

    def lease(self, lease: Lease) -> str:
        return self._leases.get(lease.number, NOBODYS)

    def job(self, job: Job) -> str:
        return self._jobs.get(job.number, NOBODYS)

    def learn(self, line: int, answer: object) -> None:
        match answer:
            case MatchResult():
                self._call(answer.any_tier, f"{line}.a")
                self._call(answer.device, f"{line}.d")
            case Inserted():
                self._call(answer.frontier, f"{line}.f")
            case Locked():
                self._leases[answer.lease.number] = str(line)
            case Planned() if answer.lease:
                self._leases[answer.lease.number] = str(line)
        effects: Effects = getattr(answer, "effects", ())
        jobs = [effect.job for effect in effects if isinstance(effect, Move)]
        self._jobs.update({job.number: f"{line}.{at}" for at, job in enumerate(jobs)})

    def _call(self, boundary: Boundary, name: str) -> None:
        self._boundaries[boundary] = self._nodes[boundary.node, boundary.epoch] = name


class Keys:
    """Keys by number; each is written as what it adds to the one before it that shares most."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._spaces: dict[Namespace, int] = {}
        self._keys: dict[tuple[Namespace, bytes], int] = {}

    def space(self, namespace: Namespace) -> int:
        if namespace not in self._spaces:
            self._spaces[namespace] = len(self._spaces)
            fields = ("tenant_salt", "model", "adapter", "dtype", "layout")
            said = " ".join(f"{name}={quote(getattr(namespace, name))}" for name in fields)
            self._write(f"space {self._spaces[namespace]} digest={namespace.digest().hex()} {said}")
        return self._spaces[namespace]

    def key(self, key: Key) -> int:
        raw = key.tokens.tobytes()
        if (key.namespace, raw) not in self._keys:
            space, (near, shared) = self.space(key.namespace), self._nearest(key.namespace, raw)
            start = f" from={near}/{shared}" if shared else ""
            number = self._keys[key.namespace, raw] = len(self._keys)
            rest = runs_text(key.tokens[shared:].tolist())
            self._write(f"key {number} space={space}{start} tokens={rest}")
        return self._keys[key.namespace, raw]

    def _nearest(self, namespace: Namespace, raw: bytes) -> tuple[int, int]:
        """The earlier key that shares most tokens, and how many."""
        shared = [(_shared(raw, other), -n) for (space, other), n in self._keys.items() if space == namespace]
        most, number = max(shared, default=(0, 0))
        return -number, most


def _shared(one: bytes, other: bytes) -> int:
    """Tokens that two keys begin with alike."""
    low, high = 0, min(len(one), len(other)) // 4
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[: 4 * middle] == other[: 4 * middle] else (low, middle - 1)
    return low


class RecordingCore:
    """A core that writes down every call and every answer."""

    def __init__(self, core: UnifiedTreeCore, write: Callable[[str], None]) -> None:
        self.core = core
        self._write, self._epoch = write, core.snapshot().epoch
        self._names, self._keys = Names(), Keys(write)
        self._line = 0
        write(HEADER)
        write(f"core {config_text(core.config)}")

    @property
    def config(self) -> CoreConfig:
        return self.core.config

    # -- Lookup

    def match(self, key: Key, limit: int, now_ns: int) -> MatchResult:
        words = f"now={now_ns} key={self._keys.key(key)} limit={limit}"
        return self._record(f"match {words}", lambda: self.core.match(key, limit, now_ns))

    def peek(self, key: Key, limit: int) -> MatchResult:
        words = f"key={self._keys.key(key)} limit={limit}"
        return self._record(f"peek {words}", lambda: self.core.peek(key, limit))

    def insert(self, key: Key, offer: Insert, now_ns: int) -> Inserted:
        after = f" after={self._names.lease(offer.after)}" if offer.after else ""
        begin = f" from={offer.full_from}" if offer.full_from is not None else ""
        pieces = f"full={runs_text(offer.full.tolist())} pieces={pieces_text(offer.pieces)}"
        words = f"now={now_ns} key={self._keys.key(key)} tier={offer.tier} prio={offer.priority}{after}{begin} {pieces}"
        return self._record(f"insert {words}", lambda: self.core.insert(key, offer, now_ns))

    def lock(self, boundary: Boundary, now_ns: int) -> Locked:
        words = f"now={now_ns} at={self._names.boundary(boundary)}"
        return self._record(f"lock {words}", lambda: self.core.lock(boundary, now_ns))

    def relock(self, lease: Lease, boundary: Boundary, now_ns: int) -> Locked:
        words = f"now={now_ns} lease={self._names.lease(lease)} at={self._names.boundary(boundary)}"
        return self._record(f"relock {words}", lambda: self.core.relock(lease, boundary, now_ns))

    def unlock(self, lease: Lease, component: ComponentName | None, now_ns: int) -> None:
        which = f" component={component}" if component is not None else ""
        words = f"now={now_ns} lease={self._names.lease(lease)}{which}"
        self._record(f"unlock {words}", lambda: self.core.unlock(lease, component, now_ns))

    def evict(
        self,
        component: ComponentName,
        tier: TierName,
        want: int,
        room: dict[ComponentName, int],
        now_ns: int,
        before: Wait | None = None,
    ) -> Evicted:
        for_whom = f" {wait_text(before)}" if before else ""
        words = f"now={now_ns} component={component} tier={tier} want={want} room={room_text(room)}{for_whom}"
        return self._record(
            f"evict {words}", lambda: self.core.evict(component, tier, want, room, now_ns, before)
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
        fits = "" if room is None else f" room={room_text(room)}"
        words = f"now={now_ns} at={self._names.boundary(boundary)} source={source} target={target}{fits}"
        return self._record(
            f"backup {words}", lambda: self.core.plan_backup(boundary, source, target, now_ns, room)
        )

    def plan_load(self, boundary: Boundary, source: TierName, target: TierName, now_ns: int) -> Planned:
        words = f"now={now_ns} at={self._names.boundary(boundary)} source={source} target={target}"
        return self._record(f"load {words}", lambda: self.core.plan_load(boundary, source, target, now_ns))

    def commit(self, job: Job, landed: tuple[Piece, ...], now_ns: int) -> Committed:
        words = f"now={now_ns} job={self._names.job(job)} landed={pieces_text(landed)}"
        return self._record(f"commit {words}", lambda: self.core.commit(job, landed, now_ns))

    # -- Sessions

    def reference(self, session: SessionId, generation: int, turn: Turn, now_ns: int) -> Released:
        at = f" at={self._names.boundary(turn.frontier)}" if turn.frontier else ""
        alternate = f" alt={self._names.boundary(turn.alternate)}" if turn.alternate else ""
        times = f"start={turn.start_seq} finish={turn.finish_seq} superseded={int(turn.superseded)}"
        words = f"now={now_ns} session={quote(session)} generation={generation}{at}{alternate} {times}"
        return self._record(
            f"reference {words}", lambda: self.core.reference(session, generation, turn, now_ns)
        )

    def release(
        self, session: SessionId, through_generation: int, mode: ReleaseMode, now_ns: int
    ) -> Released:
        words = f"now={now_ns} session={quote(session)} through={through_generation} mode={mode}"
        return self._record(
            f"release {words}", lambda: self.core.release(session, through_generation, mode, now_ns)
        )

    def expect(self, session: SessionId, wait: Wait, now_ns: int) -> None:
        words = f"now={now_ns} session={quote(session)} {wait_text(wait)}"
        self._record(f"expect {words}", lambda: self.core.expect(session, wait, now_ns))

    # -- Inspect

    def snapshot(self) -> Snapshot:
        return self.core.snapshot()

    def outline(self, limit: int) -> Outline:
        return self.core.outline(limit)

    def check(self) -> None:
        self.core.check()

    def stats(self) -> CoreStats:
        return self.core.stats()

    def clear(self, namespace: Namespace | None, now_ns: int) -> Released:
        space = f" space={self._keys.space(namespace)}" if namespace else ""
        return self._record(f"clear now={now_ns}{space}", lambda: self.core.clear(namespace, now_ns))

    # -- inside

    def _record(self, asked: str, call: Callable[[], Answer]) -> Answer:
        line, self._line, said = self._line, self._line + 1, ""
        try:
            answer = call()
            said = answer_text(answer, self._epoch)
        except CacheError as refusal:
            said = f"refused={refusal.kind}"
            raise
        finally:
            self._write(f"{line} {asked} => {said} | {state_text(asked, self.core, self._epoch)}")
        self._names.learn(line, answer)
        return answer


def wait_text(wait: Wait) -> str:
    """What a session does, in words of a line."""
    hint = f" hint={wait.hint_ns}" if wait.hint_ns is not None else ""
    eta = f" eta={wait.eta_ns}" if wait.eta_ns is not None else ""
    return f"state={wait.state} since={wait.since_ns} wanted={wait.key_ns}{hint} seq={wait.seq}{eta}"


def room_text(room: dict[ComponentName, int]) -> str:
    return ",".join(f"{name}:{count}" for name, count in room.items())


def state_text(asked: str, core: UnifiedTreeCore, epoch: int) -> str:
    """The digest of the state after a call; a peek changes nothing, so it is not looked at again."""
    if asked.startswith("peek "):
        return "-"
    return snapshot_digest(core.snapshot(), core.config.page_tokens, epoch)

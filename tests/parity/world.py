"""Carries out operations written as text on a core, with pools of its own: what the cache would do."""

from collections.abc import Callable
from typing import TypeVar

from agentcache.errors import CacheError
from agentcache.keys import Key
from agentcache.tree.api import UnifiedTreeCore
from agentcache.types import (
    FULL,
    Boundary,
    ComponentName,
    Effects,
    Insert,
    Inserted,
    Job,
    Lease,
    NodeRef,
    Piece,
    PoolName,
    ReleaseMode,
    SessionId,
    TierName,
    Turn,
    Wait,
    WaitState,
)
from tests.builders import slots_of
from tests.parity.oplog import Op
from tests.parity.shapes import SPACES, Shape, Word
from tests.parity.spoiling import spoilt
from tests.parity.stock import Stock, Transfer

BEGAN_NS = 1000
KEPT_BOUNDARIES = 200
NOBODYS = Boundary(NodeRef(2**40, 2**40), 0, 2**40)


Thing = TypeVar("Thing")


class AbsentError(Exception):
    """The operation names something that is not there (any more): nothing is asked."""


class Bench:
    """A core, free slots, and what its answers were called."""

    def __init__(self, core: UnifiedTreeCore, shape: Shape) -> None:
        config = core.config
        sizes = {TierName.DEVICE: shape.slots, TierName.HOST: shape.host_slots}
        self.core, self.config, self.page = core, config, config.page_tokens
        self.stock = Stock(
            {PoolName(spec.name, tier): sizes[tier] for spec in config.specs for tier in config.tiers}
        )
        self.now = BEGAN_NS
        self.boundaries: dict[str, Boundary] = {}
        self.leases: dict[str, Lease] = {}
        self.old_leases: dict[str, Lease] = {}
        self.lengths: dict[str, int] = {}  # tokens that a lease covers from the root, by op
        self.transfers: dict[str, Transfer] = {}
        self.old_jobs: dict[str, Job] = {}
        self.refused: CacheError | None = None

    def perform(self, op: Op) -> bool:
        """Carry out one operation; False when it named something that is not there. A refusal is an answer."""
        self.refused = None
        act: Callable[[Op, dict[str, str]], None] = getattr(self, f"_do_{op.name}")
        before, self.now = self.now, self.now + op.elapsed
        try:
            act(op, op.words)
        except AbsentError:
            self.now = before
            return False
        except CacheError as refusal:
            self.refused = refusal
        return True

    # -- names

    def key(self, words: dict[str, str]) -> Key:
        """The key of a word, less `cut` tokens where said (which leaves no whole pages)."""
        key = Word.parse(words["key"]).key(self.page)
        cut = int(words.get("cut", 0))
        return Key(key.tokens[:-cut], key.namespace) if cut else key

    def boundary(self, name: str) -> Boundary:
        if name == "nobodys":
            return NOBODYS
        known, _, cut = name.partition("/")
        found = self._known(self.boundaries, known)
        return Boundary(found.node, int(cut), found.epoch) if cut else found

    def _known(self, table: dict[str, Thing], name: str) -> Thing:
        if name not in table:
            raise AbsentError
        return table[name]

    def _lease(self, name: str) -> Lease:
        if name == "nobodys":
            return Lease(2**40)
        return self._known(self.leases | self.old_leases, name)

    def _keep(self, op: Op, **named: Boundary) -> None:
        for letter, boundary in named.items():
            self.boundaries[f"{op.number}.{letter}"] = boundary
        while len(self.boundaries) > KEPT_BOUNDARIES:
            del self.boundaries[next(iter(self.boundaries))]

    def _apply(self, op: Op, effects: Effects) -> None:
        for at, job in enumerate(self.stock.settle(effects)):
            self.transfers[f"{op.number}.{at}"] = Transfer.begin(job, self.stock, self.page)


class Lookups(Bench):
    """Finding and offering."""

    def _do_match(self, op: Op, words: dict[str, str]) -> None:
        found = self.core.match(self.key(words), int(words["limit"]), self.now)
        self._keep(op, d=found.device, a=found.any_tier)

    def _do_peek(self, op: Op, words: dict[str, str]) -> None:
        found = self.core.peek(self.key(words), int(words["limit"]))
        self._keep(op, d=found.device, a=found.any_tier)

    def _do_insert(self, op: Op, words: dict[str, str]) -> None:
        key, tier = self.key(words), TierName(words["tier"])
        after = self._lease(words["after"]) if "after" in words else None
        begin = int(words["from"]) if "from" in words else None
        start = self.lengths.get(words.get("after", ""), 0) if begin is None else begin
        shape = [Piece(FULL, start, max(start, len(key))), *self._aux(words)]
        coming = self._coming(FULL, tier)
        owned = [slot for slot in self.stock.taken(FULL, tier) if slot not in coming]
        pieces = self._filled(shape, tier)
        offer = Insert(pieces[0].slots, tuple(pieces[1:]), after, tier, int(words.get("prio", 0)), begin)
        if "bad" in words:
            offer = spoilt(offer, words["bad"], owned, pieces[0])
        try:
            answer = self.core.insert(key, offer, self.now)
        except CacheError:
            self._return(pieces, tier)
            raise
        self._own(op, answer, tier)

    def _coming(self, component: ComponentName, tier: TierName) -> set[int]:
        """Destinations of what is under way: no core knows them before they land."""
        under_way = [transfer for transfer in self.transfers.values() if transfer.job.target is tier]
        return {slot for transfer in under_way for name, _, _, slot in transfer.targets if name == component}

    def _own(self, op: Op, answer: Inserted, tier: TierName) -> None:
        self._keep(op, f=answer.frontier)
        self._apply(op, answer.effects)
        self._return(answer.kept, tier)

    def _return(self, pieces: list[Piece] | tuple[Piece, ...], tier: TierName) -> None:
        for piece in pieces:
            self.stock.give_back(PoolName(piece.component, tier), piece.slots.tolist())

    def _aux(self, words: dict[str, str]) -> list[Piece]:
        """Unslotted pieces from `name/start/end` words."""
        parts = (part.split("/") for part in words.get("aux", "").split(",") if part)
        return [Piece(ComponentName(name), int(start), int(end)) for name, start, end in parts]

    def _filled(self, shape: list[Piece], tier: TierName) -> list[Piece]:
        filled: list[Piece] = []
        for piece in shape:
            pages = (piece.end - piece.start) // self.page
            count = 1 if piece.start == piece.end and piece.component != FULL else pages
            known = PoolName(piece.component, tier) in self.stock.sizes
            slots = self.stock.take(piece.component, tier, count) if known else None
            if slots is None:
                self._return(filled, tier)
                raise AbsentError
            filled.append(Piece(piece.component, piece.start, piece.end, slots_of(slots)))
        return filled


class World(Lookups):
    """Every operation."""

    def _do_lock(self, op: Op, words: dict[str, str]) -> None:
        locked = self.core.lock(self.boundary(words["at"]), self.now)
        self.leases[str(op.number)], self.lengths[str(op.number)] = locked.lease, locked.boundary.length

    def _do_relock(self, op: Op, words: dict[str, str]) -> None:
        locked = self.core.relock(self._lease(words["lease"]), self.boundary(words["at"]), self.now)
        self.lengths[words["lease"]] = locked.boundary.length

    def _do_unlock(self, op: Op, words: dict[str, str]) -> None:
        component = ComponentName(words["component"]) if "component" in words else None
        self.core.unlock(self._lease(words["lease"]), component, self.now)
        if component is None:
            self.old_leases = {words["lease"]: self.leases.pop(words["lease"])}

    def _do_evict(self, op: Op, words: dict[str, str]) -> None:
        component, tier = ComponentName(words["component"]), TierName(words["tier"])
        room = self._room(words.get("room", "all"))
        answer = self.core.evict(component, tier, int(words["want"]), room, self.now)
        self._apply(op, answer.effects)

    def _room(self, said: str) -> dict[ComponentName, int]:
        """The free slots on the host (`all`), another number of each, or nothing (`unsaid`)."""
        known = {spec.name: self.stock.free(spec.name, TierName.HOST) for spec in self.config.specs}
        if said == "all":
            return known
        return {} if said == "unsaid" else {name: int(said) for name in known}

    def _do_backup(self, op: Op, words: dict[str, str]) -> None:
        source, target = TierName(words.get("source", "device")), TierName(words["target"])
        room = self._room(words["room"]) if "room" in words else None
        planned = self.core.plan_backup(self.boundary(words["at"]), source, target, self.now, room)
        self._apply(op, planned.effects)

    def _do_load(self, op: Op, words: dict[str, str]) -> None:
        at = self.boundary(words["at"])
        planned = self.core.plan_load(at, TierName.HOST, TierName.DEVICE, self.now)
        self._apply(op, planned.effects)
        if planned.lease:
            self.leases[str(op.number)], self.lengths[str(op.number)] = planned.lease, at.length

    def _do_commit(self, op: Op, words: dict[str, str]) -> None:
        if words["job"] in self.old_jobs:
            self.core.commit(self.old_jobs[words["job"]], (), self.now)
            return
        transfer = self._known(self.transfers, words["job"])
        landed = transfer.land(self.stock, int(words["keep"]), op.number)
        if "bad" in words and landed:
            self._refuse_landing(transfer, landed, words["bad"])
        del self.transfers[words["job"]]
        self.old_jobs = {words["job"]: transfer.job}
        self._apply(op, self.core.commit(transfer.job, landed, self.now).effects)

    def _refuse_landing(self, transfer: Transfer, landed: tuple[Piece, ...], how: str) -> None:
        """A landing past the end of the job, or twice, is refused; the same job then lands as it should."""
        last = transfer.job.pieces[-1]
        stray = Piece(last.component, last.end + self.page, last.end + 2 * self.page, slots_of([0]))
        try:
            self.core.commit(transfer.job, (*landed, *(landed[:1] if how == "twice" else [stray])), self.now)
        except CacheError:
            return
        raise AssertionError("a landing that is no part of the job was taken")

    def _do_reference(self, op: Op, words: dict[str, str]) -> None:
        frontier = self.boundary(words["at"]) if "at" in words else None
        alternate = self.boundary(words["alt"]) if "alt" in words else None
        start, finish = int(words["start"]), int(words["finish"])
        turn = Turn(frontier, alternate, start, finish, superseded="superseded" in words)
        answer = self.core.reference(SessionId(words["session"]), int(words["generation"]), turn, self.now)
        self._apply(op, answer.effects)

    def _do_release(self, op: Op, words: dict[str, str]) -> None:
        session, through = SessionId(words["session"]), int(words["through"])
        answer = self.core.release(session, through, ReleaseMode(words["mode"]), self.now)
        self._apply(op, answer.effects)

    def _do_expect(self, op: Op, words: dict[str, str]) -> None:
        wait = Wait(
            WaitState(words["state"]),
            self.now - int(words.get("ago", 0)),
            self.now - int(words.get("ago", 0)) - int(words.get("gap", 0)),
            int(words["hint"]) if "hint" in words else None,
            int(words.get("seq", 0)),
            self.now + int(words["eta"]) if "eta" in words else None,
        )
        self.core.expect(SessionId(words["session"]), wait, self.now)

    def _do_clear(self, op: Op, words: dict[str, str]) -> None:
        space = SPACES[words["space"]] if "space" in words else None
        self._apply(op, self.core.clear(space, self.now).effects)
        if space is None:
            assert all(self.stock.free(p.component, p.tier) == n for p, n in self.stock.sizes.items())

"""Any history of a session store, played to the store in memory and to one in Redis: they answer the same.

Not compared are names that each makes for itself: epochs (only that they change together) and places in streams.
"""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from operator import methodcaller
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentcache.store.api import (
    Beat,
    Closing,
    Done,
    Note,
    NoteKind,
    Offer,
    Opening,
    SessionRef,
    Store,
    StoreRules,
    Tagged,
    Use,
)
from agentcache.wire import Notice, Order, Outcome, WorkerLoad
from tests.sessionstores import Hours, card, receipt

RULES = StoreRules(
    ttl_s=100,
    reopen_after_s=20,
    tombstone_s=200,
    tombstones=4,
    in_flight_s=50,
    worker_s=30,
    close_limit=3,
    stream_length=1000,
)
REFS = [*(SessionRef("t", session) for session in "abcdef"), SessionRef("u", "a"), SessionRef("u", "a/b")]
WORKERS = ["w1", "w2", "w3"]
PLAIN = "plain"  # has sessions, and is never registered
ROUTERS = ["r1", "r2"]
refs = st.integers(0, 17)
workers = st.sampled_from(WORKERS)
candidates = st.sampled_from(["", *WORKERS, *WORKERS, PLAIN])
requests = st.sampled_from([f"q{number}" for number in range(6)])
picks = st.integers(0, 20)
offerings = st.tuples(refs, picks, st.integers(0, 3), refs, st.sampled_from([False, False, True]))
limits = st.sampled_from([0, 0, 0, 2])
REACHED: Counter[str] = Counter()


class StoreMachine(RuleBasedStateMachine):
    """`pair` makes both stores; the second is emptied by `forget`, the first by `lose`."""

    pair: Callable[[Hours], tuple[Any, Any]]
    runner: asyncio.Runner

    def __init__(self) -> None:
        super().__init__()
        self.hours = Hours()
        self.memory, self.redis = type(self).pair(self.hours)
        self.run(self.redis.forget())
        self.generations = [1]
        self.epochs = ("", "")
        self.notices: list[tuple[str, Notice]] = []
        self.cursors: dict[tuple[str, int], str] = {}
        self.places = {(router, at): "" for router in ROUTERS for at in range(2)}
        self.same(lambda store: store.prepare(), epoch=lambda answer: answer)
        for worker in WORKERS:
            self.register(worker, "1")

    def run(self, what: Awaitable[Any]) -> Any:
        async def awaited() -> Any:
            return await what

        return type(self).runner.run(awaited())

    def same(self, ask: Callable[[Store], Awaitable[Any]], epoch: Callable[[Any], str] | None = None) -> Any:
        """The answer of both stores; their epochs change at once."""
        answers = [self.run(ask(self.memory)), self.run(ask(self.redis))]
        if epoch:
            epochs = (epoch(answers[0]), epoch(answers[1]))
            changed = [new != old for new, old in zip(epochs, self.epochs, strict=True)]
            assert changed[0] == changed[1], (epochs, self.epochs)
            self.epochs = epochs
        told = [without_names(answer) for answer in answers]
        assert told[0] == told[1], f"\nmemory {told[0]}\nredis  {told[1]}"
        if verdict := getattr(answers[0], "verdict", ""):
            REACHED[f"{type(answers[0]).__name__} {verdict}"] += 1
        if generation := getattr(answers[0], "generation", 0):
            self.generations.append(generation)
        return answers[0]

    def generation(self, pick: int) -> int:
        """One of the last that were told."""
        return self.generations[-1 - pick % min(8, len(self.generations))]

    def pick(self, which: int) -> SessionRef:
        """Mostly a session that is open."""
        opened = sorted(self.memory.books.open, key=lambda ref: (ref.tenant, ref.session))
        return opened[which % len(opened)] if opened and which < 10 else REFS[which % len(REFS)]

    def parent(self, ref: SessionRef, kin: int) -> str:
        """Mostly none, or a session of the same tenant that is open."""
        opened = sorted(one.session for one in self.memory.books.open if one.tenant == ref.tenant)
        if kin > 14 or not opened:
            return ("", "a", "zz")[kin % 3]
        return opened[kin % len(opened)] if kin > 9 else ""

    def offered(self, which: int, pick: int, placement: int, kin: int, prefill: bool) -> Offer:
        ref, ttl_s = self.pick(which), (100, 0, 20)[placement % 3]
        parent = self.parent(ref, kin)
        return Offer(ref, self.generation(pick), placement, pick * 7.5, ttl_s, parent, prefill)

    def find_end(self, worker: str) -> None:
        for at, store in enumerate((self.memory, self.redis)):
            self.cursors[worker, at] = self.run(store.mail(worker, 0, "", 0)).cursor

    # -- sessions

    @rule(
        which=refs,
        kin=refs,
        says=st.tuples(st.booleans(), st.booleans()),
        ttl_s=st.sampled_from([0, 0, 30]),
        limit=limits,
    )
    def open(self, which: int, kin: int, says: tuple[bool, bool], ttl_s: float, limit: int) -> None:
        ref = self.pick(which)
        mode = "drop" if ttl_s else "release"
        fence, fork = says
        opening = Opening(self.parent(ref, kin), ttl_s, fence, mode, limit, fork)
        self.same(lambda store: store.open(ref, opening))

    @rule(
        which=refs,
        request=requests,
        worker=candidates,
        kin=refs,
        limit=limits,
        ttl_s=st.sampled_from([0, 0, 0, 7.5, 150]),
    )
    def tag(self, which: int, request: str, worker: str, kin: int, limit: int, ttl_s: float) -> None:
        ref = self.pick(which)
        use = Use(request, worker, self.parent(ref, kin), limit=limit, ttl_s=ttl_s, expected_s=ttl_s * 0.3)
        self.tag_with(ref, use)

    def tag_with(self, ref: SessionRef, use: Use) -> None:
        self.same(lambda store: store.tag(ref, use), epoch=lambda tagged: tagged.epoch)

    @rule(which=refs, request=requests, pick=picks, own=st.booleans())
    def tag_fenced(self, which: int, request: str, pick: int, own: bool) -> None:
        ref = self.pick(which)
        fence = self.run(self.memory.look(ref)).generation if own else self.generation(pick)
        use = Use(request, "w1", fence=fence, strict=True)
        self.tag_with(ref, use)

    @rule(
        which=refs,
        request=requests,
        ends=st.sampled_from([(True, False), (False, False), (False, True)]),
        other=st.sampled_from([0, 0, 1]),
    )
    def done(self, which: int, request: str, ends: tuple[bool, bool], other: int) -> None:
        ref = self.pick(which)
        seen = self.run(self.memory.look(ref))
        told = Done(request, seen.generation - other, seen.worker, seen.placement, *ends)
        REACHED[f"done {self.same(lambda store: store.done(ref, told))}"] += 1

    @rule(
        which=refs,
        worker=st.sampled_from([*WORKERS, PLAIN]),
        late=st.sampled_from([0, 0, 1]),
        other=st.sampled_from([0, 0, 1]),
        prefill=st.booleans(),
    )
    def assign(self, which: int, worker: str, late: int, other: int, prefill: bool) -> None:
        ref = self.pick(which)
        seen = self.run(self.memory.look(ref))
        told = (seen.generation - other, seen.placement - late, worker)
        self.same(lambda store: store.assign(ref, *told, prefill))

    @rule(which=refs, worker=workers, ends=st.booleans())
    def lend(self, which: int, worker: str, ends: bool) -> None:
        """A session that has a worker, whose prompts another one computes; and a turn that may move others away."""
        ref = self.pick(which)
        self.tag_with(ref, Use("lends", "w1"))
        seen = self.run(self.memory.look(ref))
        told = (seen.generation, seen.placement, worker, True)
        placed = self.same(lambda store: store.assign(ref, *told))
        REACHED["lent"] += bool(placed.worker)
        if ends:
            done = Done("lends", seen.generation, seen.worker, placed.placement, True)
            self.same(lambda store: store.done(ref, done))

    @rule(which=refs, pick=st.sampled_from([None, None, 0, 1, 2]), router=st.sampled_from(["", *ROUTERS]))
    def close(self, which: int, pick: int | None, router: str) -> None:
        ref = self.pick(which)
        generation = None if pick is None else self.generation(pick)
        mode = ["release", "", "drop"][(pick or 0) % 3]
        closing = Closing(generation, mode, f"close {len(self.generations)}", router, again=pick == 1)
        self.same(lambda store: store.close(ref, closing))

    @rule(which=refs, kin=refs, worker=workers, ends=st.booleans())
    def fork(self, which: int, kin: int, worker: str, ends: bool) -> None:
        """A child of a session that has a worker, closed and opened again; its end begins its parent's lease anew."""
        parent, child = self.pick(which), REFS[kin % 6]
        self.tag_with(parent, Use("forks", worker))
        self.same(lambda store: store.close(child, Closing()))
        self.same(lambda store: store.open(child, Opening(parent.session, fork=True)))
        if ends:
            self.hours.pass_s(60)
            self.same(lambda store: store.close(child, Closing()))
            self.hours.pass_s(60)
            self.sweep(50)

    @rule(closes=st.booleans())
    def family(self, closes: bool) -> None:
        """More children than one call closes."""
        for ref in REFS[:6]:
            opening = Opening("a" if ref.session != "a" else "")
            self.same(methodcaller("open", ref, opening))
        if closes:
            self.same(lambda store: store.close(REFS[0], Closing(reply_to="r1")))
            self.same(lambda store: store.open(REFS[3], Opening("a", fence=True)))

    @rule(
        which=refs,
        kind=st.sampled_from(NoteKind),
        pick=st.sampled_from([None, None, 0, 3]),
        waits=st.sampled_from([("bash", 2.5), ("Läuft \u4e2d: 'x'", 0.1), ("t" * 256, 1e9), ("bash", 0.0)]),
    )
    def note(self, which: int, kind: NoteKind, pick: int | None, waits: tuple[str, float]) -> None:
        ref = self.pick(which)
        generation = None if pick is None else self.generation(pick)
        self.same(lambda store: store.note(ref, Note(kind, generation, *waits)))

    # -- fleet

    @rule(limit=st.sampled_from([1, 2, 50]))
    def sweep(self, limit: int) -> None:
        swept = self.same(lambda store: store.sweep(limit))
        for name in ("offered", "expired", "closed", "lapsed", "again"):
            REACHED[f"swept {name}"] += bool(getattr(swept, name))

    @rule(worker=workers, draining=st.booleans())
    def drain(self, worker: str, draining: bool) -> None:
        self.same(lambda store: store.drain(worker, draining))

    @rule(which=refs, pick=picks, more=st.sampled_from([0, 1, 10**9]))
    def raise_above(self, which: int, pick: int, more: int) -> None:
        ref = self.pick(which)
        seen = self.generation(pick) + more
        self.same(lambda store: store.raise_above(ref, seen))

    # -- workers

    @rule(worker=workers, incarnation=st.sampled_from("1112"))
    def register(self, worker: str, incarnation: str) -> None:
        self.same(lambda store: store.register(card(worker, incarnation)), epoch=lambda epoch: epoch)
        self.find_end(worker)

    @rule(worker=workers, incarnation=st.sampled_from("112"), more=st.sampled_from([0, 0, 5, 10**10]))
    def heartbeat(self, worker: str, incarnation: str, more: int) -> None:
        load = WorkerLoad(waiting=more % 7)
        highest = self.generations[-1] + more
        self.same(
            lambda store: store.heartbeat(worker, incarnation, highest, load), epoch=lambda beat: beat.epoch
        )

    @rule(worker=workers, incarnation=st.sampled_from("23"))
    def leave(self, worker: str, incarnation: str) -> None:
        self.same(lambda store: store.leave(worker, incarnation))

    @rule(
        worker=workers,
        some=st.lists(offerings, max_size=4),
        lost=st.booleans(),
    )
    def offer(self, worker: str, some: Sequence[tuple[int, int, int, int, bool]], lost: bool) -> None:
        offers = [self.offered(*one) for one in some]
        for answer in self.same(lambda store: store.offer(worker, offers, lost)):
            REACHED[f"offered {answer.verdict}"] += 1

    @precondition(lambda self: self.notices)
    @rule(pick=picks, outcome=st.sampled_from([Outcome.RELEASED, *Outcome]))
    def answer(self, pick: int, outcome: Outcome) -> None:
        """Any notice of the last, answered for the first or another time."""
        worker, notice = self.notices[-1 - pick % min(8, len(self.notices))]
        REACHED[f"answered {notice.order} {outcome}"] += 1
        self.same(lambda store: store.receipt(receipt(notice, worker, outcome)))

    # -- the world

    @rule(seconds=st.sampled_from([0, 0.001, 1, 2, 5, 5, 21, 51, 301]))
    def wait(self, seconds: float) -> None:
        self.hours.pass_s(seconds)

    @rule(which=refs, comes_back=st.booleans())
    def idle(self, which: int, comes_back: bool) -> None:
        """Longer than any lease, and no worker is gone; a request comes before the holders have let go."""
        ref = self.pick(which)
        self.tag_with(ref, Use("idle", "w1"))
        self.same(lambda store: store.done(ref, Done("idle", 1, "", 0, False)))
        self.hours.pass_s(101)
        self.sweep(50)
        if comes_back:
            self.tag_with(ref, Use("back"))

    @rule(which=refs, then=st.sampled_from(["", "", "tag", "open", "note"]))
    def refused(self, which: int, then: str) -> None:
        """A first request that is refused, in company or alone."""
        ref = self.pick(which)
        self.tag_with(ref, Use("refused", "w1"))
        if then == "tag":
            self.tag_with(ref, Use("q1"))
        if then == "open":
            self.same(methodcaller("open", ref, Opening()))
        if then == "note":
            self.same(methodcaller("note", ref, Note(NoteKind.TOUCH)))
        generation = self.run(self.memory.look(ref)).generation
        self.same(methodcaller("done", ref, Done("refused", generation, "", 0, False, refused=True)))

    @rule(seconds=st.sampled_from([0.5, 60]))
    def clock_goes_back(self, seconds: float) -> None:
        self.hours.pass_s(-seconds)

    @rule(luck=st.integers(0, 9))
    def lose(self, luck: int) -> None:
        """The server loses everything, not too often."""
        if luck != 9:
            return
        self.memory.books.lose()
        self.run(self.redis.forget())
        self.same(lambda store: store.prepare(), epoch=lambda epoch: epoch)
        self.register("w1", "1")
        self.register("w2", "1")
        REACHED["lost"] += 1

    @invariant()
    def sees_the_same(self) -> None:
        for ref in REFS:
            self.same(methodcaller("look", ref, 2))
        for tenant in "tu":
            page = self.same(methodcaller("list", tenant, "", 3))
            if after := page.after:
                self.same(methodcaller("list", tenant, after, 3))
        self.same(lambda store: store.workers())

    @invariant()
    def keeps_nothing_of_families_that_have_ended(self) -> None:
        assert all(self.memory.books.kids.values())

    @invariant()
    def tells_the_same(self) -> None:
        for worker in WORKERS:
            told = []
            for at, store in enumerate((self.memory, self.redis)):
                mail = self.run(store.mail(worker, 0, self.cursors[worker, at], 0))
                self.cursors[worker, at] = mail.cursor
                told.append((without_names(mail.notices), mail.gap))
            assert told[0] == told[1], f"\nmemory {told[0]}\nredis  {told[1]}"
            REACHED["gap"] += told[0][1]
            self.notices += [(worker, notice) for notice in mail.notices]
            REACHED["told to fork"] += any(notice.order is Order.FORK for notice in mail.notices)
        for router in ROUTERS:
            assert self.answered(router, 0) == self.answered(router, 1)

    def answered(self, router: str, at: int) -> list[Any]:
        """New receipts of a router; those that come at once are in no order."""
        found = self.run((self.memory, self.redis)[at].receipts(router, self.places[router, at], 0))
        if found:
            self.places[router, at] = found[-1][0]
        return sorted((without_names(one) for _, one in found), key=repr)

    def teardown(self) -> None:
        self.memory.books.lose()


def without_names(answer: Any) -> Any:
    """What two stores must agree on in an answer."""
    match answer:
        case Tagged() | Beat():
            return dataclasses.replace(answer, epoch="")
        case Notice():
            return msgspec.structs.replace(answer, at="")
        case str():
            return ""
        case tuple() | list():
            return [without_names(one) for one in answer]
    return answer

"""Random histories: shapes, and the next operation for a world as it stands."""

import random
from collections.abc import Callable, Iterator
from itertools import pairwise

from agentcache.tree.api import CoreConfig, Order, OrderBase, WritePolicy
from agentcache.types import (
    FULL,
    Checkpoint,
    ComponentName,
    ComponentSpec,
    ReleaseMode,
    TierName,
    Window,
    full_spec,
    mamba_spec,
    swa_spec,
)
from tests.parity.oplog import Op
from tests.parity.shapes import Shape, Word
from tests.parity.world import World

Words = dict[str, object]
ORDERS = [
    (order, base) for order in Order for base in (OrderBase if order is Order.SESSION else [OrderBase.LRU])
]
SESSIONS = ("s", "t", "u")


def random_shape(chance: random.Random) -> Shape:
    """Any combination of components, page, grid, order, tiers and pool sizes."""
    page = chance.choice([1, 1, 2, 4, 4, 16, 64])
    grid = page * chance.choice([1, 1, 1, 2, 3, 5])
    order, base = chance.choice([*ORDERS, *[(order, OrderBase.LRU) for order in Order]])
    host = chance.random() < 0.6
    config = CoreConfig(
        page,
        _specs(chance, page, grid),
        grid_tokens=grid,
        order=order,
        base=base,
        write_policy=WritePolicy.WRITE_BACK if host and chance.random() < 0.7 else WritePolicy.WRITE_THROUGH,
        host_tier=host,
        emit_events=chance.random() < 0.4,
        max_markers=chance.choice([1, 2, 3, 8]),
    )
    slots = chance.choice([9, 18, 30, 60, 120])
    return Shape(config, slots, chance.choice([2, 4, slots // 2, slots, 2 * slots]) if host else 0)


def _specs(chance: random.Random, page: int, grid: int) -> tuple[ComponentSpec, ...]:
    """FULL, up to three windows and up to two kinds of states, in any order."""
    tokens = [max(1, page - 1), page, page + 1, 2 * page + 1, 5 * page, 17 * page + 3]
    windows = chance.sample(tokens, chance.choice([0, 0, 1, 1, 2, 3]))
    grids = chance.sample([grid, grid, 2 * grid, page], chance.choice([0, 0, 1, 1, 2]))
    specs = [swa_spec(size, f"W{at}") for at, size in enumerate(windows)]
    specs += [mamba_spec(size, f"M{at}") for at, size in enumerate(grids)]
    chance.shuffle(specs)
    return (full_spec(), *specs)


class Author:
    """Writes the next operation: mostly what a cache would do, sometimes what nobody should."""

    def __init__(self, chance: random.Random, world: World) -> None:
        self._chance, self._world = chance, world
        self._number = self._sequence = 0
        self._pages = chance.choice([6, 12, 40, 80])
        self._letters = chance.choice(["ab", "ab", "abc", "abcdefgh"])
        self._keys: list[Word] = []
        self._names: list[str] = []  # of boundaries, latest last
        self._scripts: list[tuple[float, Callable[[], Iterator[Op]]]] = [
            (chance.choice([0, 1, 1, 4]) * weight, script) for weight, script in self._all_scripts()
        ]
        if not any(weight for weight, _ in self._scripts):
            self._scripts = list(self._all_scripts())

    def _all_scripts(self) -> list[tuple[float, Callable[[], Iterator[Op]]]]:
        host = self._world.config.host_tier
        return [
            (3.0, self._publish),
            (2.0, self._find),
            (2.0, self._turn),
            (1.0, self._hold),
            (1.0, self._let_go),
            (2.0, self._make_room),
            (1.0, self._mark),
            (0.5, self._close),
            (1.5 if self._world.config.order is Order.ERT else 0.1, self._expect),
            (1.0 if host else 0.1, self._backup),
            (1.0 if host else 0.1, self._load),
            (1.5 if host else 0.0, self._commit),
            (0.1, self._clear),
            (0.4, self._misuse),
        ]

    def ops(self) -> Iterator[Op]:
        """Operations without end; the reader performs each before it asks for the next."""
        while True:
            weights = [weight for weight, _ in self._scripts]
            yield from self._chance.choices(self._scripts, weights)[0][1]()

    # -- words

    def _op(self, name: str, **words: object) -> Op:
        self._number += 1
        elapsed = self._chance.choice([1, 1, 1, 1, 0, 0, 2, 7, 40])
        shown = {key: str(value) for key, value in words.items() if value not in (None, "")}
        op = Op(self._number, elapsed, name, shown)
        if name in ("match", "peek"):
            self._names += [f"{op.number}.d", f"{op.number}.a"]
        if name == "insert":
            self._names.append(f"{op.number}.f")
        del self._names[:-24]
        return op

    def _word(self) -> Word:
        """A key met before, a fork or an extension of one, or a new one."""
        chance = self._chance
        old = chance.choice(self._keys) if self._keys and chance.random() < 0.85 else Word(self._space(), "")
        if old.letters and chance.random() < 0.3:
            return old
        keep = chance.randint(0, len(old.letters)) if chance.random() < 0.6 else len(old.letters)
        return self._kept(Word(old.space, (old.letters[:keep] + self._tail())[: self._pages]))

    def _kept(self, word: Word) -> Word:
        self._keys = [*self._keys[-12:], word]
        return word

    def _space(self) -> str:
        return "w" if self._chance.random() < 0.15 else "h"

    def _tail(self) -> str:
        chance, most = self._chance, max(1, self._pages // 2)
        runs = chance.choice([1, 1, 2, 3])
        longest = chance.choice([1, 2, 4, most])
        return "".join(chance.choice(self._letters) * chance.randint(1, longest) for _ in range(runs))

    def _tokens(self, word: Word) -> int:
        return len(word.letters) * self._world.page

    def _limit(self, word: Word) -> int:
        tokens = self._tokens(word)
        return tokens if self._chance.random() < 0.7 else self._chance.randint(0, tokens + 1)

    def _name(self) -> str:
        """A boundary that was answered before, perhaps cut."""
        name = (
            self._chance.choice(
                self._names[-6:] if self._chance.random() < 0.7 else self._names or ["nobodys"]
            )
            if self._names
            else "nobodys"
        )
        if self._chance.random() < 0.15:
            name += f"/{self._world.page * self._chance.randint(0, self._pages)}"
        return name

    def _component(self) -> ComponentName:
        return self._chance.choice(self._world.config.specs).name

    def _tier(self) -> TierName:
        return (
            TierName.HOST
            if self._world.config.host_tier and self._chance.random() < 0.25
            else TierName.DEVICE
        )

    # -- offers

    def _offer(self, word: Word, after: str, start: int, tier: TierName) -> Op:
        aux = ",".join(self._aux(word, start))
        priority = self._chance.choice([0, 0, 0, 1, 2])
        return self._op("insert", key=word, after=after, tier=tier, aux=aux, prio=priority or None)

    def _aux(self, word: Word, start: int) -> Iterator[str]:
        """Everything that may lie there, what a request would have, or any part."""
        how = self._chance.choice(["all", "all", "tip", "part", "part", "none"])
        for spec in self._world.config.specs[1:]:
            for first, last in self._places(spec, start, self._tokens(word), how):
                yield f"{spec.name}/{first}/{last}"

    def _places(self, spec: ComponentSpec, start: int, end: int, how: str) -> Iterator[tuple[int, int]]:
        page, chance = self._world.page, self._chance
        if how == "none" or start >= end:
            return
        if isinstance(spec.rule, Checkpoint):
            grid = spec.rule.grid_tokens
            ends = [at for at in range(start - start % grid + grid, end + 1, grid) if at > start]
            share = {"all": 1.0, "tip": 0.15, "part": 0.5}[how]
            yield from ((at, at) for at in ends if at == ends[-1] or chance.random() < share)
        elif isinstance(spec.rule, Window):
            if how == "all":
                yield start, end
            elif how == "tip":
                yield max(start, end - -(-spec.rule.tokens // page) * page), end
            else:
                yield from self._parts(start, end, page)

    def _parts(self, start: int, end: int, page: int) -> Iterator[tuple[int, int]]:
        """Some disjoint intervals of whole pages."""
        cuts = sorted(
            {start, end, *(start + page * self._chance.randint(0, (end - start) // page) for _ in range(4))}
        )
        yield from (pair for pair in pairwise(cuts) if self._chance.random() < 0.6)

    def _room_for(self, word: Word, start: int, tier: TierName) -> Iterator[Op]:
        """Evict what an insert would lack."""
        pages = len(word.letters) - start // self._world.page
        for spec in self._world.config.specs:
            lacking = pages - self._world.stock.free(spec.name, tier)
            if lacking > 0:
                yield self._op("evict", component=spec.name, tier=tier, want=lacking)

    # -- scripts

    def _publish(self) -> Iterator[Op]:
        word, tier = self._word(), self._tier()
        yield from self._room_for(word, 0, tier)
        yield self._offer(word, "", 0, tier)

    def _find(self) -> Iterator[Op]:
        word = self._word()
        yield self._op(self._chance.choice(["match", "match", "peek"]), key=word, limit=self._limit(word))

    def _hold(self) -> Iterator[Op]:
        if len(self._world.leases) < 6:
            yield self._op("lock", at=self._name())

    def _let_go(self) -> Iterator[Op]:
        leases = list(self._world.leases)
        if not leases:
            return
        lease, which = self._chance.choice(leases), self._chance.random()
        if which < 0.2:
            yield self._op("unlock", lease=lease, component=self._component())
        elif which < 0.4:
            yield self._op("relock", lease=lease, at=self._name())
        else:
            yield self._op("unlock", lease=lease)

    def _make_room(self) -> Iterator[Op]:
        room = self._chance.choice(["all", "all", "all", "0", "1"])
        want = self._chance.choice([1, 1, 1, 2, 3, 5, 20])
        yield self._op("evict", component=self._component(), tier=self._tier(), want=want, room=room)

    def _turn(self) -> Iterator[Op]:
        """What one request does from its match to its reference."""
        word = self._word()
        found = self._op("match", key=word, limit=self._limit(word))
        yield found
        lock = self._op("lock", at=f"{found.number}.d")
        yield lock
        lease = str(lock.number)
        if lease not in self._world.leases:
            return
        start = self._world.lengths[lease]
        yield from self._room_for(word, start, TierName.DEVICE)
        yield self._offer(word, lease, start, TierName.DEVICE)
        again = self._op("peek", key=word, limit=self._limit(word))
        yield again
        if self._chance.random() < 0.7:
            yield self._op("relock", lease=lease, at=f"{again.number}.d")
        yield self._reference(f"{again.number}.{self._chance.choice('da')}")
        if self._chance.random() < 0.8:
            yield self._op("unlock", lease=lease)

    def _reference(self, at: str) -> Op:
        self._sequence += 2
        chance = self._chance
        start = self._sequence - chance.choice([1, 1, 1, 3, 7])
        alternate = self._name() if chance.random() < 0.5 else None
        return self._op(
            "reference",
            session=chance.choice(SESSIONS),
            generation=chance.choice([1, 1, 1, 2, 3]),
            at=at if chance.random() < 0.97 else None,
            alt=alternate,
            start=start,
            finish=self._sequence,
            superseded=1 if chance.random() < 0.1 else None,
        )

    def _mark(self) -> Iterator[Op]:
        word = self._word()
        found = self._op("peek", key=word, limit=self._limit(word))
        yield found
        yield self._reference(f"{found.number}.a" if self._chance.random() < 0.8 else self._name())

    def _close(self) -> Iterator[Op]:
        mode = self._chance.choice(list(ReleaseMode))
        session, through = self._chance.choice(SESSIONS), self._chance.choice([0, 1, 2, 3])
        yield self._op("release", session=session, through=through, mode=mode)

    def _expect(self) -> Iterator[Op]:
        chance = self._chance
        state = chance.choice(["running", "pending", "idle", "idle"])
        words: Words = {"session": chance.choice(SESSIONS), "state": state}
        if state == "pending":
            words |= {"seq": chance.randint(0, 9), "eta": chance.choice([None, None, 0, 5, 60])}
        else:
            words |= {"ago": chance.choice([None, 3, 30]), "gap": chance.choice([None, 5, 50])}
        if state == "idle":
            words["hint"] = chance.choice([None, None, 0, 1, 4, 10, 60])
        yield self._op("expect", **words)

    def _backup(self) -> Iterator[Op]:
        if len(self._world.transfers) < 5:
            route = self._chance.choice(
                [("device", "host"), ("device", "host"), ("device", "external"), ("host", "external")]
            )
            yield self._op("backup", at=self._name(), source=route[0], target=route[1])

    def _load(self) -> Iterator[Op]:
        if len(self._world.transfers) < 5 and len(self._world.leases) < 6:
            word = self._word()
            found = self._op("peek", key=word, limit=self._limit(word))
            yield found
            yield self._op("load", at=f"{found.number}.a")

    def _commit(self) -> Iterator[Op]:
        jobs = list(self._world.transfers)
        if jobs:
            keep = self._chance.choice([0, 50, 80, 100, 100, 100])
            spoilt = self._chance.choice([*[None] * 20, "stray", "twice"])
            yield self._op("commit", job=self._chance.choice(jobs), keep=keep, bad=spoilt)

    def _settled(self) -> Iterator[Op]:
        for lease in list(self._world.leases):
            yield self._op("unlock", lease=lease)
        for job in list(self._world.transfers):
            yield self._op("commit", job=job, keep=100)

    def _clear(self) -> Iterator[Op]:
        yield from self._settled()
        yield self._op("clear", space=self._chance.choice([None, "h", "w"]))

    def _misuse(self) -> Iterator[Op]:
        """What must be refused, and some that must not."""
        chance, words = self._chance, {"key": self._word()}
        if self._world.old_jobs:
            yield self._op("commit", job=next(iter(self._world.old_jobs)), keep=0)
        lease = chance.choice([*self._world.old_leases, "nobodys"])
        wrong: list[tuple[str, Words]] = [
            ("unlock", {"lease": lease}),
            ("relock", {"lease": lease, "at": self._name()}),
            ("insert", words | {"tier": "device", "after": lease}),
            ("insert", words | {"tier": "device", "bad": "owned"}),
            ("insert", words | {"tier": "device", "bad": "twice"}),
            ("insert", words | {"tier": "device", "bad": "few"}),
            ("insert", words | {"tier": "device", "bad": "negative"}),
            ("lock", {"at": "nobodys"}),
            ("evict", {"component": FULL, "tier": "external", "want": 1}),
            ("evict", {"component": "OTHER", "tier": "device", "want": 1}),
            ("evict", {"component": FULL, "tier": "device", "want": -1}),
            ("backup", {"at": self._name(), "source": "host", "target": "device"}),
            ("clear", {}),
        ]
        if self._world.page > 1:
            wrong.append(("match", words | {"limit": 9, "cut": 1}))
        name, arguments = chance.choice(wrong)
        yield self._op(name, **arguments)

    def ending(self) -> Iterator[Op]:
        """Everything is let go of, and every slot is free again."""
        yield from self._settled()
        yield self._op("clear")

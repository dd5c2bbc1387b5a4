"""Random histories: the next operation for a world as it stands."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from agentcache.tree.api import Order
from agentcache.types import FULL, ReleaseMode, TierName
from tests.parity.misuse import Misuse
from tests.parity.oplog import Op
from tests.parity.shapes import Word
from tests.parity.vocabulary import Words
from tests.parity.world import World

SESSIONS = [f"s{number}" for number in range(40)]


class Author(Misuse):
    """Writes the next operation: mostly what a cache would do, sometimes what nobody should."""

    def __init__(self, chance: random.Random, world: World) -> None:
        super().__init__(chance, world)
        self._known: list[str] = []
        self._sessions = SESSIONS[: chance.choice([2, 3, 3, 3, 12, 40])]
        self._threads: dict[str, Word] = {}
        pressed = world.config.order is Order.ERT and chance.random() < 0.4
        scripts = self._ert_scripts() if pressed else self._all_scripts()
        self._scripts: list[tuple[float, Callable[[], Iterator[Op]]]] = [
            (chance.choice([0, 1, 1, 4]) * weight, script) for weight, script in scripts
        ]
        if not any(weight for weight, _ in self._scripts):
            self._scripts = list(self._all_scripts())

    def _all_scripts(self) -> list[tuple[float, Callable[[], Iterator[Op]]]]:
        host, ert = self._world.config.host_tier, self._world.config.order is Order.ERT
        return [
            (3.0, self._publish),
            (2.0, self._find),
            (2.0, self._turn),
            (1.0, self._converse),
            (1.0, self._hold),
            (1.0, self._let_go),
            (2.0, self._make_room),
            (1.0, self._mark),
            (0.5, self._close),
            (1.5 if ert else 0.1, self._expect),
            (2.0 if ert else 0.2, self._press),
            (1.0 if ert else 0.2, self._share),
            (1.0 if host else 0.1, self._backup),
            (1.5 if host else 0.1, self._write_through),
            (1.0 if host else 0.1, self._load),
            (1.5 if host else 0.0, self._commit),
            (0.7 if host else 0.0, self._sink),
            (0.4 if host else 0.1, self._put_away),
            (0.2, self._outlive),
            (0.7 if host else 0.0, self._graft_below),
            (1.5, self._graft),
            (0.1, self._clear),
            (0.8, self._misuse),
        ]

    def _ert_scripts(self) -> list[tuple[float, Callable[[], Iterator[Op]]]]:
        """What makes the order `ert` decide, and little else."""
        host = 1.0 if self._world.config.host_tier else 0.0
        return [
            (2.0, self._publish),
            (2.0, self._turn),
            (3.0, self._converse),
            (3.0, self._share),
            (6.0, self._press),
            (1.0, self._find),
            (0.5, self._close),
            (0.5, self._let_go),
            (host, self._sink),
            (host, self._commit),
            (0.3 * host, self._put_away),
            (host, self._write_through),
        ]

    def ops(self) -> Iterator[Op]:
        """Operations without end; the reader performs each before it asks for the next."""
        while True:
            weights = [weight for weight, _ in self._scripts]
            yield from self._chance.choices(self._scripts, weights)[0][1]()

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
        room = self._chance.choice([*["all"] * 6, "0", "1", "1", "unsaid"])
        want = self._chance.choice([1, 1, 1, 1, 2, 2, 3, 5, 20])
        yield self._op("evict", component=self._component(), tier=self._tier(), want=want, room=room)

    def _converse(self) -> Iterator[Op]:
        """The next turn of a session that goes on where it was; now and then aside from that, or back a little."""
        chance = self._chance
        session = chance.choice(self._sessions[:4])
        before = self._threads.get(session, Word(self._space(), ""))
        keep = len(before.letters) - (chance.randint(0, 3) if chance.random() < 0.2 else 0)
        word = self._kept(Word(before.space, (before.letters[: max(0, keep)] + self._tail())[: self._pages]))
        if chance.random() < 0.75:
            self._threads[session] = word if len(word.letters) < self._pages else Word(word.space, "")
        for op in self._request(word):
            known = {"session": session, "generation": "1"}
            yield replace(op, words=op.words | known) if op.name == "reference" else op

    def _turn(self) -> Iterator[Op]:
        return self._request(self._word())

    def _request(self, word: Word) -> Iterator[Op]:
        """What one request does from its match to its reference."""
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
            session=self._newcomer(),
            generation=chance.choice([1, 1, 1, 2, 3]),
            at=at if chance.random() < 0.97 else None,
            alt=alternate,
            start=start,
            finish=self._sequence,
            superseded=1 if chance.random() < 0.1 else None,
        )

    def _newcomer(self) -> str:
        """Any session; it has markers from now on."""
        session = self._chance.choice(self._sessions)
        self._known = [*(name for name in self._known if name != session), session]
        return session

    def _somebody(self) -> str:
        """Mostly a session with markers."""
        return self._chance.choice(
            self._known if self._known and self._chance.random() < 0.85 else self._sessions
        )

    def _share(self) -> Iterator[Op]:
        """Several sessions end at one place, or on one path; then everybody says what they do, and pieces go."""
        word = self._chance.choice(self._keys) if self._keys else self._word()
        found = self._op("peek", key=word, limit=self._tokens(word))
        yield found
        for _ in range(self._chance.choice([2, 2, 3, 12])):
            cut = f"/{self._world.page * self._chance.randint(1, 1 + len(word.letters))}"
            yield self._reference(f"{found.number}.a" + (cut if self._chance.random() < 0.3 else ""))
        yield from self._press()

    def _press(self) -> Iterator[Op]:
        """Sessions say what they do, time passes, and pieces go one by one."""
        for _ in range(self._chance.choice([1, 2, 3, 4, 12])):
            yield from self._expect()
        name, pace = (
            FULL if self._chance.random() < 0.5 else self._component(),
            self._chance.choice([1, 1, 5, 15]),
        )
        for _ in range(self._chance.randint(1, 6)):
            if len(self._world.stock.taken(name, TierName.DEVICE)) < 4:
                return
            evict = self._op("evict", component=name, tier=self._tier(), want=1)
            yield replace(evict, elapsed=pace)

    def _mark(self) -> Iterator[Op]:
        word = self._word()
        found = self._op("peek", key=word, limit=self._limit(word))
        yield found
        yield self._reference(f"{found.number}.a" if self._chance.random() < 0.8 else self._name())

    def _close(self) -> Iterator[Op]:
        mode = self._chance.choice(list(ReleaseMode))
        session, through = self._chance.choice(self._sessions), self._chance.choice([0, 1, 2, 3])
        yield self._op("release", session=session, through=through, mode=mode)

    def _expect(self) -> Iterator[Op]:
        chance = self._chance
        state = chance.choice(["running", "pending", "idle", "idle"])
        words: Words = {"session": self._somebody(), "state": state}
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
            room = self._chance.choice([None, None, "all", "all", "0", "1", "unsaid"])
            yield self._op("backup", at=self._name(), source=route[0], target=route[1], room=room)

    def _write_through(self) -> Iterator[Op]:
        """What was just published or found is copied as far as the host has room or makes it, again and again."""
        chance = self._chance
        for _ in range(chance.choice([1, 2, 2, 5])):
            word = self._word()
            if chance.random() < 0.7:
                yield from self._room_for(word, 0, TierName.DEVICE)
                yield self._offer(word, "", 0, TierName.DEVICE)
            found = self._op(chance.choice(["match", "match", "peek"]), key=word, limit=self._tokens(word))
            yield found
            at, room = f"{found.number}.{chance.choice('dda')}", chance.choice(["all", "all", "all", "1"])
            backup = self._op("backup", at=at, source="device", target="host", room=room)
            yield backup
            if chance.random() < 0.8:
                yield from self._landed(f"{backup.number}.")

    def _load(self) -> Iterator[Op]:
        """Up again: mostly what a key has, sometimes a boundary above that may not vote."""
        if len(self._world.transfers) > 4 or len(self._world.leases) > 5:
            return
        word = self._chance.choice(self._keys) if self._keys else self._word()
        found = self._op("peek", key=word, limit=self._limit(word))
        yield found
        cut = f"/{self._world.page * self._chance.randint(0, len(word.letters))}"
        yield self._op("load", at=f"{found.number}.a" + (cut if self._chance.random() < 0.15 else ""))
        if self._chance.random() < 0.6:
            yield from self._landed(f"{found.number + 1}.")

    def _sink(self) -> Iterator[Op]:
        """Device pressure whose moves land at once; what went may be wanted again."""
        name = FULL if self._chance.random() < 0.5 else self._component()
        evict = self._op(
            "evict", component=name, tier=TierName.DEVICE, want=self._chance.choice([2, 5, 20]), room="all"
        )
        yield evict
        yield from self._landed(f"{evict.number}.")
        for _ in range(self._chance.choice([0, 1, 3])):
            yield from self._load()

    def _landed(self, begin: str) -> Iterator[Op]:
        """The moves of one operation land, all or most of each."""
        for job in [name for name in self._world.transfers if name.startswith(begin)]:
            yield self._op("commit", job=job, keep=self._chance.choice([50, 85, 100, 100, 100]))

    def _graft_below(self) -> Iterator[Op]:
        """Host data below what is on the device alone; then the device page above them has to go."""
        word = self._chance.choice(self._keys) if self._keys else self._word()
        found = self._op("match", key=word, limit=self._limit(word))
        yield found
        lock = self._op("lock", at=f"{found.number}.d")
        yield lock
        lease = str(lock.number)
        if lease not in self._world.leases:
            return
        start = self._world.lengths[lease]
        longer = self._kept(Word(word.space, word.letters[: start // self._world.page] + self._tail()))
        yield self._offer(longer, lease, start, TierName.HOST)
        yield self._op("unlock", lease=lease)
        if self._chance.random() < 0.5:
            yield self._op("match", key=longer, limit=self._tokens(longer))
        for _ in range(self._chance.choice([0, 1, 3])):
            yield from self._make_room()

    def _graft(self) -> Iterator[Op]:
        """What a prefetch brought goes onto what is there, from anywhere; now and then that has gone meanwhile."""
        page, chance = self._world.page, self._chance
        old = self._keys and chance.random() < 0.5
        word = chance.choice(self._keys) if old else self._word()
        host = self._world.config.host_tier and chance.random() < 0.6
        tier = TierName.HOST if host else TierName.DEVICE
        found = self._op("peek", key=word, limit=self._tokens(word))
        yield found
        ends = [self._world.boundaries[f"{found.number}.{letter}"].length for letter in "da"]
        lease, start = "", 0
        if chance.random() < 0.3:
            lock = self._op("lock", at=f"{found.number}.d/{page * chance.randint(0, ends[0] // page)}")
            yield lock
            start = self._world.lengths.get(str(lock.number), 0)
            lease = str(lock.number) if start else ""
        within = page * chance.randint(0, max(ends) // page)
        begin = max(
            start, chance.choice([*ends, within, within, page * chance.randint(0, len(word.letters))])
        )
        yield from self._room_for(word, begin, tier) if chance.random() < 0.7 else self._make_room()
        yield self._offer(word, lease, start, tier, begin)
        if lease and chance.random() < 0.7:
            yield self._op("unlock", lease=lease)

    def _outlive(self) -> Iterator[Op]:
        """A lease lets go of a component early, which is evicted; then its request goes on."""
        for lease, covered in list(self._world.lengths.items())[-3:]:
            if lease not in self._world.leases or not covered:
                continue
            name = self._component()
            yield self._op("unlock", lease=lease, component=name)
            yield self._op("evict", component=name, tier=TierName.DEVICE, want=50)
            word = next((key for key in self._keys if self._tokens(key) > covered), self._word())
            yield self._offer(word, lease, covered, TierName.DEVICE)

    def _put_away(self) -> Iterator[Op]:
        """What a session has is backed up, and the session closes for good."""
        word = self._chance.choice(self._keys) if self._keys else self._word()
        found = self._op("peek", key=word, limit=self._tokens(word))
        yield found
        at = f"{found.number}.a"
        session, reference = self._chance.choice(self._sessions), self._reference(at)
        yield Op(reference.number, reference.elapsed, "reference", reference.words | {"session": session})
        backup = self._op("backup", at=at, source="device", target="host")
        yield backup
        yield from self._landed(f"{backup.number}.")
        mode = self._chance.choice([ReleaseMode.DEMOTE, ReleaseMode.DEMOTE, ReleaseMode.DROP])
        yield self._op("release", session=session, through=3, mode=mode)

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

    def ending(self) -> Iterator[Op]:
        """Everything is let go of, and every slot is free again."""
        yield from self._settled()
        yield self._op("clear")

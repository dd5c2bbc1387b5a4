"""Random words of operations: keys, boundaries, and what may be offered for a key."""

import random
from collections.abc import Iterator
from itertools import pairwise

from agentcache.types import FULL, Checkpoint, ComponentName, ComponentSpec, TierName, Window
from tests.parity.oplog import Op
from tests.parity.shapes import Word
from tests.parity.world import World

Words = dict[str, object]


class Vocabulary:
    """Keys, boundaries and offers for a world as it stands."""

    def __init__(self, chance: random.Random, world: World) -> None:
        self._chance, self._world = chance, world
        self._number = self._sequence = 0
        room = world.stock.free(FULL, TierName.DEVICE)
        self._pages = min(chance.choice([6, 12, 40, 80]), room * chance.choice([1, 2, 2]) // 3)
        self._recalled = chance.choice([6, 13, 13, 40])
        self._letters = chance.choice(["ab", "ab", "abc", "abcdefgh"])
        self._keys: list[Word] = []
        self._names: list[str] = []  # of boundaries, latest last

    def _op(self, name: str, **words: object) -> Op:
        self._number += 1
        elapsed = self._chance.choice([1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 2, 7, 40, -3])
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
        self._keys = [*self._keys[1 - self._recalled :], word]
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
        """A boundary that was answered before, perhaps cut, now and then to a length that no boundary has."""
        chance, page = self._chance, self._world.page
        if not self._names:
            return "nobodys"
        name = chance.choice(self._names[-6:] if chance.random() < 0.7 else self._names)
        if chance.random() < 0.15:
            name += f"/{page * chance.randint(0, self._pages)}"
        elif chance.random() < 0.02:
            name += f"/{chance.choice([-page, -1, page - 1])}"
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

    def _offer(self, word: Word, after: str, start: int, tier: TierName, full_from: int | None = None) -> Op:
        aux = ",".join(self._aux(word, start))
        begin = {} if full_from is None else {"from": full_from}
        priority = self._chance.choice([0, 0, 0, 1, 2])
        return self._op("insert", key=word, after=after, tier=tier, aux=aux, prio=priority or None, **begin)

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

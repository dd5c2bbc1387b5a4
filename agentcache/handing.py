"""Paths that another worker waits for: copied to the external tier before anything that is due, and looked for there.

    begin ──► copying ──► asking ──► so many tokens can be loaded from there
                 ▲           │
                 └─ waiting ◄┘  once more, where something has left that was believed to be there, or found no room on
                                the way: as soon as nothing else is on it

What does not arrive makes a path shorter, never a failure.
"""

from dataclasses import dataclass
from typing import Final

from agentcache.controller import HybridCacheController
from agentcache.prefetch import MOST_NAMES
from agentcache.restoring import names_per_chunk, questions, restorable
from agentcache.tiers.api import Presence
from agentcache.tree.api import CoreConfig
from agentcache.types import ComponentName
from agentcache.writing import Copied, WriteBehind

ROUNDS: Final = 2
"""Copies of one path at most."""
_Name = tuple[ComponentName, bytes]


@dataclass(slots=True, eq=False)
class _Handover:
    """One path. `job` is the copy that runs, 0 for none; `start`: what lies before is taken to be there; `waits`: it is
    to be copied once nothing else is."""

    path: Copied
    start: int
    job: int = 0
    rounds: int = 0
    waits: bool = True
    asked: tuple[_Name, ...] = ()
    stored: int | None = None


class Handing:
    """The handovers of one cache, by the number of their turn. Each ends by itself, as jobs and questions do."""

    def __init__(self, config: CoreConfig, controller: HybridCacheController, writer: WriteBehind) -> None:
        self._config = config
        self._controller = controller
        self._writer = writer
        self._known: dict[int, _Handover] = {}

    @property
    def idle(self) -> bool:
        """Nothing is being copied or asked for."""
        return all(one.stored is not None for one in self._known.values())

    @property
    def waiting(self) -> bool:
        """Something is to be copied before anything else is."""
        return any(one.waits for one in self._known.values())

    def begin(self, number: int, path: Copied) -> None:
        """Begin with the path of a turn that ends. Caller: it still holds its lease."""
        chunks = max(1, MOST_NAMES // names_per_chunk(self._config))
        start = max(0, len(path.key) - chunks * self._config.grid)
        one = _Handover(path, start)
        if not self.waiting:
            self._send(one)
        self._known[number] = one

    def stored(self, number: int) -> int | None:
        """How many tokens of the path can be loaded from outside; None: not known yet. Who has no path has 0."""
        one = self._known.get(number)
        return one.stored if one else 0

    def forget(self, number: int) -> None:
        """Nobody wants to know any more. What is on its way may land."""
        self._known.pop(number, None)

    def step(self) -> None:
        """Go on with each, the oldest first."""
        for one in self._known.values():
            if one.waits and self._writer.way_is_free:
                self._send(one)
            if one.stored is None and not (one.waits or self._controller.is_out(one.job)):
                self._ask(one)

    def _send(self, one: _Handover) -> None:
        one.waits = False
        one.rounds += 1
        one.job = self._writer.send(one.path)

    def _ask(self, one: _Handover) -> None:
        page = self._config.page_tokens
        hashes = one.path.names.of(one.path.key)
        if not one.asked:
            wanted = questions(self._config, one.start, len(one.path.key))
            one.asked = tuple((name, hashes[end // page - 1]) for name, end in wanted)
        answers = self._controller.external.lookup(one.asked)
        if Presence.PENDING in answers:
            return
        held = {name for name, answer in zip(one.asked, answers, strict=True) if answer is Presence.HIT}
        ends = restorable(
            self._config,
            one.start,
            len(one.path.key),
            lambda name, end: (name, hashes[end // page - 1]) in held,
        )
        reached = ends[-1] if ends else 0
        if reached < len(one.path.key) and Presence.MISS in answers and one.rounds < ROUNDS:
            one.waits = True
        else:
            one.stored = reached

"""Which sessions lose what they would go on from, when slots are freed."""

from collections.abc import Callable, Iterable
from typing import Final

from agentcache.paths import Paths
from agentcache.session_events import NOBODY, Happening, SessionEvent, SessionSink
from agentcache.tree.api import UnifiedTreeCore
from agentcache.types import FULL, ComponentName, Piece, PoolName, SessionId, Slots, TierName

Slot = tuple[ComponentName, int]
Lost = Callable[[SessionId], tuple[TierName, ...]]
DEVICE_ALONE: Final = (TierName.DEVICE,)


def lost_tiers(core: UnifiedTreeCore, paths: Paths, session: SessionId) -> tuple[TierName, ...]:
    """Where a session that has lost something on the device cannot go on from its whole path any more.

    On the host neither, unless that path votes with its help. Cost: of a peek
    """
    path = paths.of(session)
    if TierName.HOST not in core.config.tiers:
        return DEVICE_ALONE
    whole = path and core.peek(path, len(path)).any_tier.length == len(path)
    return DEVICE_ALONE if whole else (TierName.DEVICE, TierName.HOST)


class Frontiers:
    """The last slots of each session's path on the device, while somebody listens.

    Of full attention the last page: it goes before those above it. Of windows and states every slot that the frontier
    needs. A session is told of once, and again after its next turn at the earliest. `lost` says where.

    Cost  freed: 30 ns a slot; hold: O(slots of windows and states)
    """

    def __init__(self) -> None:
        self.sink: SessionSink = NOBODY
        self.lost: Lost = lambda _: DEVICE_ALONE
        self._watching: dict[ComponentName, dict[int, set[SessionId]]] = {}
        self._held: dict[SessionId, tuple[int, tuple[Slot, ...]]] = {}

    def hold(self, session: SessionId, generation: int, pieces: Iterable[Piece]) -> None:
        """A turn of the session has ended with these pieces of its path on the device."""
        self.release(session)
        if not self.sink.listening:
            return
        slots = tuple(_last(pieces))
        self._held[session] = (generation, slots)
        for component, slot in slots:
            self._watching.setdefault(component, {}).setdefault(slot, set()).add(session)

    def release(self, session: SessionId) -> None:
        """The session wants nothing back any more, or something else."""
        _, slots = self._held.pop(session, (0, ()))
        for component, slot in slots:
            watching = self._watching[component]
            watching[slot].discard(session)
            if not watching[slot]:
                del watching[slot]

    def freed(self, pool: PoolName, slots: Slots) -> None:
        """These slots hold nothing any more."""
        watching = self._watching.get(pool.component)
        if not watching or pool.tier is not TierName.DEVICE:
            return
        for slot in slots.tolist():
            for session in sorted(watching.get(slot, ())):
                generation, _ = self._held[session]
                self.release(session)
                self.sink.happened(
                    SessionEvent(
                        Happening.EVICTED,
                        session,
                        generation,
                        component=pool.component,
                        lost=self.lost(session),
                    )
                )


def _last(pieces: Iterable[Piece]) -> Iterable[Slot]:
    for piece in pieces:
        for slot in piece.slots[-1:] if piece.component == FULL else piece.slots:
            yield piece.component, int(slot)

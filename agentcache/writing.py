"""What is copied down a tier behind a turn: when, and of which boundary."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from agentcache.controller import UNNAMED, Names
from agentcache.executor import MovingParts
from agentcache.keeping import Keeping
from agentcache.keys import Key, PathNames
from agentcache.tiers.api import Keep
from agentcache.tree.api import WritePolicy
from agentcache.types import TierName

HITS_TO_WRITE = 2
REMEMBERED_BOUNDARIES = 65_536
AT_ONCE = 4
"""Copies of turns that are on their way to one tier at a time; others wait for them."""
GRACE_NS = 500_000_000
"""So long may a copy to the external tier hold slots of the device that somebody needs."""
PAUSE_NS = 50_000_000
"""So long nothing more that is due goes, after a request has found no slots."""
DUE_AT_MOST = 1024
"""Boundaries that may wait for their copy; beyond, the oldest go without."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A path up to a boundary whose regions are worth a copy further down."""

    key: Key
    names: PathNames


class WriteBehind:
    """Copies boundaries to the host and to the external tier; the scheduler never waits for it.

        write_through             what a turn has published, when it ends:       device ─► host, device ─► external
        write_through_selective   a boundary, when a turn resumes there again:   device ─► host, device ─► external
        write_back                what a turn has published, when it ends:       device ─► external
                                  and the host by eviction alone

    The host takes only what ranks high enough (design §7), which is known when the turn has registered. What lies
    outside does not depend on that: a page left out there would end every path through it. The deepest boundary goes
    first, while the turn still holds its lease; the others, which share its path, follow one after the other, so that
    no page travels twice. A copy to the external tier reads the device until the store has answered: for a request that
    finds no slots because of that, it is given up.
    """

    def __init__(self, parts: MovingParts, keeping: Keeping) -> None:
        self._core = parts.core
        self._executor = parts.executor
        self._controller = parts.controller
        self._keeping = keeping
        self._clock = parts.clock
        self._policy = parts.core.config.write_policy
        near = parts.core.config.host_tier and self._policy is not WritePolicy.WRITE_BACK
        self._targets = (TierName.HOST, TierName.EXTERNAL) if near else (TierName.EXTERNAL,)
        self._due: dict[TierName, deque[Copied]] = {tier: deque(maxlen=DUE_AT_MOST) for tier in self._targets}
        self._copying: dict[TierName, dict[int, int]] = {tier: {} for tier in self._targets}
        self._hits: OrderedDict[bytes, int] = OrderedDict()
        self._paused_ns = 0

    @property
    def idle(self) -> bool:
        """No boundary waits for its copy."""
        return not any(self._due.values())

    @property
    def way_is_free(self) -> bool:
        """Nothing is on its way to the external tier, and no request waits for the slots that a copy would hold: one
        copy alone is let in there, whatever its size."""
        return self._clock.now_ns() >= self._paused_ns and not self._on_the_way(TierName.EXTERNAL)

    def published(self, paths: Sequence[Copied], sent_tokens: int = 0, behind: bool = False) -> None:
        """A turn that ends has published these, the deepest last; the one of `sent_tokens` was sent outside already.

        With `behind` nothing goes there yet: something waits for the way to be free.
        """
        if self._policy is WritePolicy.WRITE_THROUGH_SELECTIVE:
            return
        for target in self._targets:
            outside = target is TierName.EXTERNAL
            due = [path for path in paths if not outside or len(path.key) != sent_tokens]
            if due and (not outside or self._controller.has_external):
                self._begin(due, target, behind and outside)

    def send(self, path: Copied) -> int:
        """Copy a path to the external tier at once, whatever the policy says. Answers the job, or 0 for none."""
        return self._copy(path, TierName.EXTERNAL)

    def hit(self, path: Copied) -> None:
        """A turn resumes here."""
        if self._policy is not WritePolicy.WRITE_THROUGH_SELECTIVE or not len(path.key):
            return
        end = path.names.of(path.key)[-1]
        self._hits[end] = self._hits.pop(end, 0) + 1
        if len(self._hits) > REMEMBERED_BOUNDARIES:
            self._hits.popitem(last=False)
        if self._hits[end] == HITS_TO_WRITE:
            for target in self._targets:
                self._copy(path, target)

    def step(self) -> None:
        """Go on with what is due, to each tier one copy at a time; not while a request needs the slots."""
        if self._clock.now_ns() < self._paused_ns:
            return
        for target, due in self._due.items():
            while due and not self._on_the_way(target):
                self._copy(due.popleft(), target)

    def resume(self) -> None:
        """Go on with what is due at the next step, whatever was paused."""
        self._paused_ns = 0

    def give_way(self) -> bool:
        """Give up the oldest copy that keeps the device's slots from a request for too long. False: there is none."""
        since, now = self._on_the_way(TierName.EXTERNAL), self._clock.now_ns()
        self._paused_ns, late_ns = now + PAUSE_NS, now - GRACE_NS
        number = next((number for number, began_ns in since.items() if began_ns <= late_ns), 0)
        if number:
            self._controller.cancel(number)
            self._executor.settle()
        return number != 0

    def forget(self) -> None:
        """What is due stays where it is."""
        for due in self._due.values():
            due.clear()

    def _begin(self, paths: Sequence[Copied], target: TierName, behind: bool) -> None:
        self._due[target].extend(reversed(paths[:-1]))
        if not behind and len(self._on_the_way(target)) < AT_ONCE:
            self._copy(paths[-1], target)
        else:
            self._due[target].appendleft(paths[-1])

    def _copy(self, path: Copied, target: TierName) -> int:
        """Voted again each time: room made for one copy may have taken what another needs. Answers the job, or 0."""
        outside = target is TierName.EXTERNAL
        boundary = self._core.peek(path.key, len(path.key)).device
        if boundary.length < len(path.key) or (outside and not self._controller.has_external):
            return 0  # part of it has left in the meantime, or there is nowhere to go
        now, room = self._clock.now_ns(), self._executor.host_room()
        planned = self._core.plan_backup(boundary, TierName.DEVICE, target, now, room)
        self._executor.apply(planned.effects, self._names(path) if outside else UNNAMED)
        if not planned.job:
            return 0
        self._copying[target][planned.job.number] = now
        return planned.job.number

    def _on_the_way(self, target: TierName) -> dict[int, int]:
        """Copies to a tier that have not ended, and when they began; the oldest first."""
        copying = {
            number: began_ns
            for number, began_ns in self._copying[target].items()
            if self._controller.is_out(number)
        }
        self._copying[target] = copying
        return copying

    def _names(self, path: Copied) -> Names:
        """With the soft class of now: the session may have ended since the turn has."""
        hashes = path.names.of(path.key)
        return Names(hashes, Keep.REFERENCED if self._keeping.wants(hashes[-1]) else Keep.LOOSE)

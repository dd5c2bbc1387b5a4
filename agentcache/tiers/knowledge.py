"""What is believed of the objects of a store, without asking it."""

from collections.abc import Iterable, Sequence

from agentcache.tiers.api import Presence
from agentcache.types import ComponentName

Identity = tuple[ComponentName, bytes]  # a page, or the state at its end: its component and its chained hash


class Knowledge:
    """The last `max_known` objects that something was learnt of; the oldest news is forgotten first.

    An answer is good for `belief_ns`. That an object was there is remembered beyond, as a mark: it is no answer, but it
    need not be stored again. A mark goes when the object is missed. No lock of its own.
    """

    def __init__(self, max_known: int, belief_ns: int) -> None:
        self._max_known = max_known
        self._belief_ns = belief_ns
        self._news: dict[Identity, tuple[Presence, int]] = {}

    def __len__(self) -> int:
        return len(self._news)

    def believed(self, wanted: Iterable[Identity], now_ns: int) -> list[Presence | None]:
        """Answers that are fresh; None for what is to be asked. PENDING stays until it is replaced."""
        oldest_ns = now_ns - self._belief_ns
        answers: list[Presence | None] = []
        for identity in wanted:
            presence, at_ns = self._news.get(identity, (None, 0))
            fresh = at_ns > oldest_ns or presence is Presence.PENDING
            answers.append(presence if fresh else None)
        return answers

    def marked(self, identity: Identity) -> bool:
        """It was there when last heard of, however long ago."""
        presence, _ = self._news.get(identity, (None, 0))
        return presence is Presence.HIT

    def learn(self, identities: Iterable[Identity], presence: Presence, now_ns: int) -> None:
        for identity in identities:
            self._news.pop(identity, None)
            self._news[identity] = (presence, now_ns)
        while len(self._news) > self._max_known:
            del self._news[next(iter(self._news))]

    def answered(self, asked: Sequence[tuple[Identity, bool]], since_ns: int, now_ns: int) -> None:
        """What the store said to a call that began at `since_ns`. Who stored an object meanwhile knows better."""
        self.learn((identity for identity, found in asked if found), Presence.HIT, now_ns)
        absent = (identity for identity, found in asked if not found)
        self.learn([one for one in absent if not self._stored_since(one, since_ns)], Presence.MISS, now_ns)

    def give_up(self, identities: Iterable[Identity], now_ns: int) -> None:
        """No answer came: those still PENDING are RETRY."""
        pending = [one for one in identities if self._news.get(one, (None, 0))[0] is Presence.PENDING]
        self.learn(pending, Presence.RETRY, now_ns)

    def clear(self) -> None:
        self._news.clear()

    def _stored_since(self, identity: Identity, since_ns: int) -> bool:
        presence, at_ns = self._news.get(identity, (None, 0))
        return presence is Presence.HIT and at_ns >= since_ns

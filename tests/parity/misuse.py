"""Random operations that must be refused, and some at the edge that must not."""

from collections.abc import Iterator

from agentcache.types import FULL, ReleaseMode
from tests.parity.oplog import Op
from tests.parity.spoiling import FAULTS
from tests.parity.vocabulary import Vocabulary, Words


class Misuse(Vocabulary):
    """What nobody should ask of a core."""

    _sessions: list[str]

    def _misuse(self) -> Iterator[Op]:
        """What must be refused, and some that must not."""
        chance, word = self._chance, self._word()
        words: Words = {"key": word}
        aux = ",".join(self._aux(word, 0))
        if self._world.old_jobs:
            yield self._op("commit", job=next(iter(self._world.old_jobs)), keep=0)
        lease = chance.choice([*self._world.old_leases, "nobodys"])
        wrong: list[tuple[str, Words]] = [
            ("unlock", {"lease": lease}),
            ("relock", {"lease": lease, "at": self._name()}),
            ("insert", words | {"tier": "device", "after": lease}),
            ("insert", words | {"tier": "device", "bad": chance.choice(FAULTS), "aux": aux}),
            ("insert", words | {"tier": "device", "from": chance.randint(-1, self._tokens(word) + 2)}),
            ("lock", {"at": "nobodys"}),
            ("evict", {"component": FULL, "tier": "external", "want": 1}),
            ("evict", {"component": "OTHER", "tier": "device", "want": 1}),
            ("evict", {"component": FULL, "tier": "device", "want": -1}),
            ("backup", {"at": self._name(), "source": "host", "target": "device"}),
            ("clear", {}),
        ]
        wrong += self._far_numbers(words)
        if self._world.page > 1:
            wrong.append(("match", words | {"limit": 9, "cut": 1}))
        name, arguments = chance.choice(wrong)
        yield self._op(name, **arguments)

    def _far_numbers(self, words: Words) -> list[tuple[str, Words]]:
        """Numbers at and beyond what 64 bits hold: taken or refused, but alike."""
        far = self._chance.choice(
            [2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64, 2**70, -(2**63), -(2**70), -5]
        )
        session = self._chance.choice(self._sessions)
        return [
            ("match", words | {"limit": far}),
            ("peek", words | {"limit": far}),
            ("insert", words | {"tier": "device", "prio": far}),
            ("insert", words | {"tier": "device", "from": far}),
            ("evict", {"component": self._component(), "tier": "device", "want": far}),
            ("evict", {"component": FULL, "tier": "device", "want": 3, "room": far}),
            ("backup", {"at": self._name(), "source": "device", "target": "host", "room": far}),
            ("release", {"session": session, "through": far, "mode": ReleaseMode.PREVIEW}),
            (
                "reference",
                {"session": session, "generation": far, "at": self._name(), "start": 1, "finish": 2},
            ),
            (
                "reference",
                {"session": session, "generation": 1, "at": self._name(), "start": far, "finish": far},
            ),
            ("expect", {"session": session, "state": "idle", "hint": far}),
            ("expect", {"session": session, "state": "idle", "gap": far}),
            ("expect", {"session": session, "state": "running", "ago": far}),
            ("expect", {"session": session, "state": "pending", "seq": far}),
            ("expect", {"session": session, "state": "pending", "eta": far}),
        ]

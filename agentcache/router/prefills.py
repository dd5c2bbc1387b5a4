"""What a router remembers of prompts that are computed ahead: how long they were, and who did so in vain."""

from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import structlog

SESSIONS: Final = 100_000
PAIRS: Final = 4_096
IN_VAIN: Final = 3
"""Prompts in a row of which the decode worker found nothing, after which a pair of workers rests."""
REST_S: Final = 60.0

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class LastTurn:
    """A turn that was answered: who answered as it has run since, how long its request was, and its prompt."""

    worker: str = ""
    body_bytes: int = 0
    prompt_tokens: int = 0


NO_TURN: Final = LastTurn()


@dataclass(slots=True)
class _Pair:
    """A prefill and a decode worker. `vain`: in a row; `doubted`: it has rested, and nothing has arrived since."""

    vain: int = 0
    rests_until_ns: int = 0
    doubted: bool = False


class Prefills:
    """The memory of one router process. `counts`: what became of prompts, by outcome."""

    def __init__(self) -> None:
        self._turns: _Lately[tuple[str, ...], LastTurn] = _Lately(SESSIONS)
        self._pairs: _Lately[tuple[str, str], _Pair] = _Lately(PAIRS)
        self.counts: Counter[str] = Counter()

    def last_turn(self, session: tuple[str, ...]) -> LastTurn:
        """The last one of a session that was answered."""
        return self._turns.get(session, NO_TURN)

    def answered(self, session: tuple[str, ...], turn: LastTurn) -> None:
        self._turns.put(session, turn)

    def resting(self, workers: tuple[str, ...], decoder: str, now_ns: int) -> frozenset[str]:
        """Those of these workers whose prompts the decode worker did not find lately."""
        until = {name: self._pairs.get((name, decoder), _Pair()).rests_until_ns for name in workers}
        return frozenset(name for name, until_ns in until.items() if now_ns < until_ns)

    def tries(self, worker: str, decoder: str, now_ns: int) -> None:
        """A prompt goes there. In doubt it goes alone: the others need not wait for what may hang."""
        pair = self._pairs.get((worker, decoder), _Pair())
        if pair.doubted:
            pair.rests_until_ns = now_ns + int(REST_S * 1e9)

    def came(self, worker: str, decoder: str, found: bool, now_ns: int) -> None:
        """What one computed the other has found, or not. Where it did not several times the pair rests for a while."""
        pair = self._pairs.get((worker, decoder), _Pair())
        self._pairs.put((worker, decoder), pair)
        if found:
            pair.vain, pair.rests_until_ns, pair.doubted = 0, 0, False
            return
        pair.vain += 1
        if pair.vain >= IN_VAIN and not pair.doubted:
            said = (
                "what it computes does not arrive; compare l3 of both workers, and how long they wait for it"
            )
            structlog.get_logger().warning("prefill_in_vain", worker=worker, decoder=decoder, said=said)
            pair.doubted = True
        if pair.doubted:
            pair.vain, pair.rests_until_ns = 0, now_ns + int(REST_S * 1e9)


class _Lately(Generic[Key, Value]):
    """A bounded table, least recently used out first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key, nothing: Value) -> Value:
        if key not in self._rows:
            return nothing
        self._rows.move_to_end(key)
        return self._rows[key]

    def put(self, key: Key, value: Value) -> None:
        self._rows[key] = value
        self._rows.move_to_end(key)
        if len(self._rows) > self._limit:
            self._rows.popitem(last=False)

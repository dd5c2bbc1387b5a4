"""Asks a core what a recorded trace asked, and compares every answer and state with the recorded ones."""

from collections.abc import Callable, Iterable
from urllib.parse import unquote

import numpy as np

from agentcache.errors import CacheError
from agentcache.keys import Key, Namespace
from agentcache.tree.api import UnifiedTreeCore
from agentcache.types import (
    Boundary,
    ComponentName,
    Effects,
    Insert,
    Inserted,
    Job,
    Lease,
    Locked,
    MatchResult,
    Move,
    NodeRef,
    Piece,
    Planned,
    ReleaseMode,
    SessionId,
    TierName,
    Turn,
    Wait,
    WaitState,
)
from tests.builders import MakeCore, slots_of
from tests.parity.pair import DifferenceError
from tests.parity.recorder import HEADER, NOBODYS, state_text
from tests.parity.shapes import config_of_words, words_of
from tests.parity.wording import answer_text, numbers_of

FOREIGN = 2**40
Words = dict[str, str]


def play(lines: Iterable[str], make_core: MakeCore, check: bool = False) -> int:
    """Play a whole trace; answers how many calls were made.

    Errors  DifferenceError at the first line that the core does not answer as recorded
    """
    numbered = iter(enumerate((line.rstrip("\n") for line in lines), 1))
    assert next(numbered)[1] == HEADER
    player = Player(make_core(config_of_words(words_of(next(numbered)[1]))))
    for number, line in numbered:
        player.take(number, line)
        if check:
            player.core.check()
    return player.calls


class Names:
    """What a trace calls a core's answers."""

    def __init__(self) -> None:
        self._boundaries: dict[str, Boundary] = {}
        self._leases: dict[str, Lease] = {}
        self._jobs: dict[str, Job] = {}

    def boundary(self, name: str) -> Boundary:
        if name == NOBODYS:
            return Boundary(NodeRef(FOREIGN, FOREIGN), 0, FOREIGN)
        known, _, cut = name.partition("/")
        found = self._boundaries[known]
        return Boundary(found.node, int(cut), found.epoch) if cut else found

    def lease(self, name: str) -> Lease:
        return Lease(FOREIGN) if name == NOBODYS else self._leases[name]

    def job(self, name: str) -> Job:
        none = Job(FOREIGN, TierName.DEVICE, TierName.HOST, ())
        return none if name == NOBODYS else self._jobs[name]

    def learn(self, name: str, answer: object) -> None:
        match answer:
            case MatchResult():
                self._boundaries |= {f"{name}.d": answer.device, f"{name}.a": answer.any_tier}
            case Inserted():
                self._boundaries[f"{name}.f"] = answer.frontier
            case Locked():
                self._leases[name] = answer.lease
            case Planned() if answer.lease:
                self._leases[name] = answer.lease
        effects: Effects = getattr(answer, "effects", ())
        jobs = [effect.job for effect in effects if isinstance(effect, Move)]
        self._jobs |= {f"{name}.{at}": job for at, job in enumerate(jobs)}


class Player:
    """A core, and the keys and names of a trace."""

    def __init__(self, core: UnifiedTreeCore) -> None:
        self.core = core
        self.calls = 0
        self._epoch = core.snapshot().epoch
        self._spaces: list[Namespace] = []
        self._keys: list[Key] = []
        self._names = Names()

    def take(self, number: int, line: str) -> None:
        """One line of the trace, the `number`-th."""
        name = line.partition(" ")[0]
        if name == "space":
            self._spaces.append(_namespace(words_of(line)))
        elif name == "key":
            self._keys.append(self._key(words_of(line)))
        else:
            self._call(number, line)

    def _key(self, words: Words) -> Key:
        near, _, shared = words.get("from", "0/0").partition("/")
        head = self._keys[int(near)].tokens[: int(shared)] if int(shared) else np.empty(0, np.int32)
        tail = np.array(numbers_of(words["tokens"]), dtype=np.int32)
        return Key(np.concatenate([head, tail]), self._spaces[int(words["space"])])

    def _call(self, number: int, line: str) -> None:
        asked, _, expected = line.partition(" => ")
        name, method, *_ = asked.split(" ", 2)
        act: Callable[[Words], object] = getattr(self, f"_do_{method}")
        try:
            answer = act(words_of(asked))
            said = answer_text(answer, self._epoch)
            self._names.learn(name, answer)
        except CacheError as refusal:
            said = f"refused={refusal.kind}"
        said = f"{said} | {state_text(asked.partition(' ')[2], self.core, self._epoch)}"
        self.calls += 1
        if said != expected:
            raise DifferenceError(f"line {number}: {asked}\n  recorded {expected}\n  answered {said}")

    # -- calls

    def _do_match(self, words: Words) -> object:
        return self.core.match(self._keys[int(words["key"])], int(words["limit"]), int(words["now"]))

    def _do_peek(self, words: Words) -> object:
        return self.core.peek(self._keys[int(words["key"])], int(words["limit"]))

    def _do_insert(self, words: Words) -> object:
        after = self._names.lease(words["after"]) if "after" in words else None
        full, pieces = slots_of(numbers_of(words["full"])), _pieces(words["pieces"])
        begin = int(words["from"]) if "from" in words else None
        offer = Insert(full, pieces, after, TierName(words["tier"]), int(words["prio"]), begin)
        return self.core.insert(self._keys[int(words["key"])], offer, int(words["now"]))

    def _do_lock(self, words: Words) -> object:
        return self.core.lock(self._names.boundary(words["at"]), int(words["now"]))

    def _do_relock(self, words: Words) -> object:
        lease, at = self._names.lease(words["lease"]), self._names.boundary(words["at"])
        return self.core.relock(lease, at, int(words["now"]))

    def _do_unlock(self, words: Words) -> object:
        component = ComponentName(words["component"]) if "component" in words else None
        self.core.unlock(self._names.lease(words["lease"]), component, int(words["now"]))
        return None

    def _do_evict(self, words: Words) -> object:
        component, tier = ComponentName(words["component"]), TierName(words["tier"])
        room, before = _room(words["room"]), _wait(words) if "state" in words else None
        return self.core.evict(component, tier, int(words["want"]), room, int(words["now"]), before)

    def _do_backup(self, words: Words) -> object:
        at, route = self._names.boundary(words["at"]), (TierName(words["source"]), TierName(words["target"]))
        room = _room(words["room"]) if "room" in words else None
        return self.core.plan_backup(at, *route, int(words["now"]), room)

    def _do_load(self, words: Words) -> object:
        at, route = self._names.boundary(words["at"]), (TierName(words["source"]), TierName(words["target"]))
        return self.core.plan_load(at, *route, int(words["now"]))

    def _do_commit(self, words: Words) -> object:
        return self.core.commit(self._names.job(words["job"]), _pieces(words["landed"]), int(words["now"]))

    def _do_reference(self, words: Words) -> object:
        frontier = self._names.boundary(words["at"]) if "at" in words else None
        alternate = self._names.boundary(words["alt"]) if "alt" in words else None
        start, finish = int(words["start"]), int(words["finish"])
        turn = Turn(frontier, alternate, start, finish, words["superseded"] == "1")
        session, generation = SessionId(unquote(words["session"])), int(words["generation"])
        return self.core.reference(session, generation, turn, int(words["now"]))

    def _do_release(self, words: Words) -> object:
        session, through = SessionId(unquote(words["session"])), int(words["through"])
        return self.core.release(session, through, ReleaseMode(words["mode"]), int(words["now"]))

    def _do_expect(self, words: Words) -> object:
        self.core.expect(SessionId(unquote(words["session"])), _wait(words), int(words["now"]))
        return None

    def _do_clear(self, words: Words) -> object:
        space = self._spaces[int(words["space"])] if "space" in words else None
        return self.core.clear(space, int(words["now"]))


def _namespace(words: Words) -> Namespace:
    fields = ("tenant_salt", "model", "adapter", "dtype", "layout")
    return Namespace(**{name: unquote(words[name]) for name in fields})


def _wait(words: Words) -> Wait:
    """What `recorder.wait_text` wrote."""
    return Wait(
        WaitState(words["state"]),
        int(words["since"]),
        int(words["wanted"]),
        int(words["hint"]) if "hint" in words else None,
        int(words["seq"]),
        int(words["eta"]) if "eta" in words else None,
    )


def _room(text: str) -> dict[ComponentName, int]:
    """What `recorder.room_text` wrote."""
    counts = (word.split(":") for word in text.split(",") if word)
    return {ComponentName(name): int(count) for name, count in counts}


def _pieces(text: str) -> tuple[Piece, ...]:
    """What `wording.pieces_text` wrote."""
    found = []
    for word in text.split("+") if text != "-" else ():
        place, _, slots = word.partition("=")
        name, _, interval = place.partition("[")
        start, end = interval.rstrip("]").split(",")
        found.append(Piece(ComponentName(name), int(start), int(end), slots_of(numbers_of(slots))))
    return tuple(found)

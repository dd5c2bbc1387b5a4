"""Long plain histories of many sessions: whoever goes under `ert` is who a scan of all candidates puts first."""

import random
from collections import Counter

import pytest

from agentcache.keys import Key
from agentcache.tree.api import Order
from agentcache.types import FULL, ComponentName, ReleaseMode, Wait, WaitState
from tests.builders import CORES, HOME, config_of, pages_of
from tests.check import check_all
from tests.driver import Driver
from tests.oracle import residency
from tests.property.marker_model import Mark, MarkerModel, shown_markers, shown_references
from tests.property.order_model import OrderModel, lost
from tests.property.test_core_machine import WAITED_FOR

STEPS = 900
SESSIONS = [f"session {number}" for number in range(9)]


class History:
    """One core without a host, and the models that judge it. Every random choice comes from one seed."""

    def __init__(self, core: str, kinds: str, seed: int) -> None:
        self.random = random.Random(f"{kinds}{seed}")
        config = config_of(
            kinds, 2, self.random.choice([1, 2]), order=Order.ERT, max_markers=2, unclaimed_ns=seed * 30
        )
        self.driver = Driver(CORES[core](config), slots=24)
        self.model, self.ranks = MarkerModel(config), OrderModel(config)
        self.reasons: Counter[str] = Counter()
        self.sequence = 0
        self.guests = random.Random(seed)
        self.driver.now = self.random.choice([0, 10_000])

    def run(self, steps: int) -> None:
        moves = [self.turn] * 3 + [self.match, self.close] + [self.expect] * 4 + [self.evict] * 4
        for step in range(steps):
            self.driver.now += self.random.choice([0, 1, 3, 20])
            self.random.choice(moves)()
            if step % 50 == 0:
                check_all(self.driver)
                snapshot = self.driver.core.snapshot()
                assert shown_markers(snapshot) == self.model.seen()
                assert shown_references(snapshot) == self.model.references()

    def key(self) -> Key:
        letters = "".join(self.random.choice("aab") for _ in range(self.random.randint(1, 5)))
        return pages_of(self.random.choice("pqr") + letters, self.driver.config.page_tokens)

    def follow(self) -> None:
        places = residency(self.driver.core.snapshot())
        self.model.settle(places)
        self.ranks.forget(places)
        self.ranks.follow(self.model, places)

    def turn(self) -> None:
        key, session = self.key(), self.random.choice(SESSIONS)
        wanted = self.driver.everything(len(key))
        for spec in self.driver.config.specs:
            while len(self.driver.ledger(spec.name).free) < len(key) // self.driver.config.page_tokens:
                self.evict_one(spec.name)
        answer = self.driver.insert(key, wanted)
        self.follow()
        self.ranks.inserted(key, answer, 0, self.driver.now)
        if not answer.frontier.length or self.random.random() < 0.2:
            return  # a request without a session
        start, finish = self.sequence + 1, self.sequence + 2
        self.sequence += 2
        user, superseded = self.random.randrange(len(key)), self.random.random() < 0.3
        other = self.driver.peek(key, user).any_tier.length
        self.driver.turn(session, key, (start, finish), alternate=user, superseded=superseded)
        path = tuple(key.tokens[: answer.frontier.length].tolist())
        self.model.register(session, Mark(HOME, path, other, 1, start, finish), superseded)
        self.follow()
        if self.random.random() < 0.8:
            self.say(session)

    def match(self) -> None:
        key = self.key()
        found = self.driver.match(key)
        self.ranks.matched(key, found.any_tier.length, self.driver.now)

    def close(self) -> None:
        session = self.random.choice(SESSIONS)
        self.model.release(session, 1)
        self.follow()
        self.driver.release(session, self.random.choice([ReleaseMode.RELEASE, ReleaseMode.DROP]))
        self.follow()

    def expect(self) -> None:
        self.say(self.random.choice(SESSIONS))

    def say(self, session: str) -> None:
        now = self.driver.now
        since = now - self.random.randrange(60)
        wait = Wait(
            self.random.choice(list(WaitState)),
            since,
            since - self.random.choice([0, self.random.randrange(200)]),
            self.random.choice([None, self.random.randrange(400)]),
            self.random.randrange(5),
            self.random.choice([None, now + self.random.randrange(-20, 300)]),
        )
        self.driver.expect(session, wait)
        self.ranks.waiting.expect(session, wait)

    def evict(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.evict_one(self.random.choice(self.driver.config.specs).name)

    def evict_one(self, component: ComponentName) -> None:
        """One slot, and with it the piece that a scan from scratch puts first."""
        before, now = self.driver.core.snapshot(), self.driver.now + 1
        first = self.ranks.lowest(before, component, now)
        self.reasons.update(f"ert: {self.ranks.why(spot, now)}" for spot in first)
        guest = self.guest(now)
        if first and guest and not self.ranks.later(first[0], guest, now):
            assert self.driver.evict(component, before=guest).freed == 0
            self.reasons["spared"] += 1
            before, guest = self.driver.core.snapshot(), None
            first = self.ranks.lowest(before, component, self.driver.now + 1)
        self.driver.evict(component, before=guest)
        gone = lost(before, self.driver.core.snapshot())
        assert bool(first) == bool(gone)
        assert not first or gone & set(first), f"{component}: {first} ranked lowest, {gone} went"
        assert component != FULL or not gone or any(spot[2] == FULL for spot in gone)
        self.follow()

    def guest(self, now: int) -> Wait | None:
        """Somebody who is away, for whom nothing goes but what is expected later; or nobody."""
        since = now - self.guests.randrange(200)
        hint = self.guests.choice([None, self.guests.randrange(400)])
        wait = Wait(WaitState.IDLE, since, since - self.guests.randrange(200), hint)
        return self.guests.choice([None, wait, wait])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("core", sorted(CORES))
@pytest.mark.parametrize("kinds", ["", "S", "L", "M", "SLM"])
def test_who_goes_is_first_in_a_scan(core: str, kinds: str) -> None:
    reasons: Counter[str] = Counter()
    for seed in range(2):
        history = History(core, kinds, seed)
        history.run(STEPS)
        reasons += history.reasons
    of_pages = set() if kinds else {"ert: on the way", "ert: on sessions' ways"}  # which FULL never is
    missing = WAITED_FOR.union(["spared"]) - of_pages - set(reasons)
    assert not missing, f"never first: {sorted(missing)}"

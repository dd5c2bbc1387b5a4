"""Agents that pause, fork, close and give up, on engines short of room over slow tiers: nobody waits for ever.

An accounting engine checks the stamp of every slot that it restores, so none of them reads what another has written.
"""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from agentcache.clock import ManualClock
from agentcache.engine.api import Admitted, Event, Finished, FinishReason
from agentcache.engine.engine import Engine
from agentcache.errors import CacheError, Kind
from agentcache.prefetch import PrefetchPolicy, PrefetchRules
from agentcache.records import Paused
from agentcache.types import ReleaseMode, SessionId, SessionTag, full_spec, mamba_spec, swa_spec
from tests.accounting import account
from tests.engines import GRID, ask, at_rest
from tests.stampstore import SECOND, StampStore

PARTS = (full_spec(1024), swa_spec(31, slot_bytes=1024), mamba_spec(GRID, slot_bytes=1024))
SOON_S = 120
"""All that was asked for has been answered by then."""
NAMES = [SessionId(f"agent-{number}") for number in range(10)]
LONGEST = 320
REFUSED = {Kind.SESSION_UNKNOWN, Kind.SESSION_CLOSED, Kind.BAD_REQUEST, Kind.OVER_POOL, Kind.QUEUE_FULL}


class Agents:
    """Ten sessions and their engine, as a seed has them."""

    def __init__(self, seed: int, policy: PrefetchPolicy) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock(1000 * SECOND)
        self.reached: Counter[str] = Counter()
        self.open: set[str] = set()
        self.said: dict[SessionId, tuple[int, ...]] = {}
        self.task = self.words(40)
        self.asked = 0
        one = self.rng.choice
        self.engine: Engine = account(
            PARTS[: one([1, 2, 3])],
            self.clock,
            full_slots=one([100, 150, 256]),
            swa_slots=one([60, 128]),
            mamba_slots=one([14, 32]),
            prefill_tokens=one([GRID, 64]),
            max_running=one([1, 2, 8]),
            host_mib=one([None, 0.15, 0.4]),
            eviction_policy=one(["ert", "ert", "session", "lru"]),
            write_policy=one(["write_through", "write_through_selective", "write_back"]),
            prefill_order=one(["fcfs", "longest_prefix", "least_uncached"]),
            accounting_prefill_tokens_per_s=one([500, 5000]),
        )
        self.engine.cache.tiers.prefetcher._rules = PrefetchRules(policy, stretch_tokens=one([16, 64, 2048]))
        store = StampStore(self.engine, self.clock, self.rng, delay_s=one([0.001, 0.05, 1.0]))
        self.engine.cache.tiers.attach(store)

    def words(self, count: int) -> tuple[int, ...]:
        return tuple(self.rng.randrange(3, 9) for _ in range(count))

    def step(self, seconds: float) -> None:
        until_ns = self.clock.now_ns() + int(seconds * SECOND)
        while self.clock.now_ns() < until_ns:
            for event in self.engine.step():
                self.hear(event)
            self.clock.advance(max(SECOND // 10**6, int(min(self.engine.pause_s(), 0.2) * SECOND)))
        self.engine.cache.check()

    def hear(self, event: Event) -> None:
        if isinstance(event, Finished):
            assert event.reason is not FinishReason.ERROR, event
            self.open.remove(event.request_id)
        if isinstance(event, Admitted):
            self.reached["host"] += event.cached.host > 0
            self.reached["external"] += event.cached.external > 0

    # what agents do

    def ask(self) -> None:
        name, parent = self.rng.choice([None, *NAMES, *NAMES]), self.rng.choice([None, None, *NAMES[:4]])
        fork = self.rng.random() < 0.3
        before = self.said.get(
            name or NAMES[0], self.said.get(parent or NAMES[0], self.task) if fork else self.task
        )
        tokens = before + self.words(self.rng.randint(16, 60))
        if len(tokens) > LONGEST:
            tokens = self.task + self.words(20)
        expected_s = self.rng.choice([0.0, 0.0, 2.0, 8.0])
        tag = SessionTag(name, parent=parent, fork=fork, expected_s=expected_s) if name else None
        self.asked += 1
        self.engine.submit(ask(f"r{self.asked}", tokens, self.rng.randint(1, 6), session=tag))
        self.open.add(f"r{self.asked}")
        if name:
            self.said[name] = tokens

    def pause(self) -> None:
        expected_s = self.rng.choice([None, 0.5, 2.0, 8.0])
        paused = None if expected_s is None else Paused("tool", expected_s)
        self.engine.cache.pause_session(self.rng.choice(NAMES), paused)

    def close(self) -> None:
        name, mode = self.rng.choice(NAMES), self.rng.choice([None, ReleaseMode.DROP, ReleaseMode.DEMOTE])
        self.engine.cache.close_session(name, mode=mode, subtree=self.rng.random() < 0.5)
        self.said.pop(name, None)

    def fork(self) -> None:
        self.engine.cache.open_session(self.rng.choice(NAMES), parent=self.rng.choice(NAMES), fork=True)

    def give_up(self) -> None:
        if self.open:
            self.engine.abort(self.rng.choice(sorted(self.open)))

    def live(self, moves: int) -> None:
        does: list[Callable[[], None]] = (
            [self.ask] * 10 + [self.pause] * 4 + [self.close, self.fork, self.give_up]
        )
        for _ in range(moves):
            try:
                self.rng.choice(does)()
            except CacheError as error:
                if error.kind not in REFUSED:
                    raise
            self.step(self.rng.choice([0.0, 0.01, 0.3, 0.3, 2.0]))

    def end(self) -> None:
        for _ in range(SOON_S):
            if self.open:
                self.step(1)
        assert not self.open, "somebody waits for ever"
        self.step(12)
        cache = self.engine.cache
        self.reached["brought back"] += cache.stats().returns.on_time
        cache.returning.stop()
        cache.tiers.drain()
        for view in cache.sessions():
            cache.close_session(view.session)
        assert at_rest(self.engine)
        assert cache.stats().open_references == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("policy", list(PrefetchPolicy))
def test_agents_on_slow_tiers_are_all_answered(policy: PrefetchPolicy) -> None:
    reached: Counter[str] = Counter()
    for seed in range(6):
        agents = Agents(seed, policy)
        agents.live(100)
        agents.end()
        reached += agents.reached
    assert all(reached[rare] for rare in ("host", "external", "brought back")), reached

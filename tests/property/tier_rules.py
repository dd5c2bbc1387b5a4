"""The facade's machine with tiers below: copies land late, in any order, in part; the store lies, forgets and vanishes.

Every slot of every tier and every object carries the path that wrote it, and a turn checks what it is told to reuse.
"""

from collections import Counter
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from agentcache.build import Tiers, build_cache
from agentcache.cache import ActiveTurn, Prompt, Ticket
from agentcache.clock import ManualClock
from agentcache.errors import CacheError, Kind
from agentcache.keys import Namespace
from agentcache.prefetch import PrefetchPolicy, PrefetchRules
from agentcache.records import Paused, SessionRules
from agentcache.tiers.api import Presence
from agentcache.tiers.null import NullTier
from agentcache.tree.api import CoreConfig, WritePolicy
from agentcache.types import (
    FULL,
    MAMBA,
    SWA,
    SessionId,
    SessionTag,
    TierName,
    full_spec,
    mamba_spec,
    swa_spec,
)
from agentcache.waits import Throughput
from tests.chosen import CORE
from tests.moving import Marks, ScriptedTier
from tests.property.cache_rules import CHUNKS, GRID, PAGE, POOLS, SESSIONS, SPACES, CacheMachine, tokens_of

HOST_POOLS = {FULL: 20, SWA: 12, MAMBA: 6}
POLICIES = st.sampled_from(PrefetchPolicy)
SLOW = Throughput(1.0)


class TierMachine(CacheMachine):
    """One cache over a device, perhaps a host, and a store outside."""

    tell = None  # type: ignore[assignment]  # it concerns no tier, and with it what is rare here would be too rare

    reached: ClassVar[Counter[str]] = Counter()
    host: ClassVar[bool] = True
    write_policy: ClassVar[WritePolicy] = WritePolicy.WRITE_THROUGH
    prefetch: ClassVar[PrefetchPolicy] = PrefetchPolicy.TIMEOUT

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.marks: dict[TierName, Marks] = {TierName.DEVICE: self.wrote, TierName.HOST: {}}  # type: ignore[dict-item]
        self.near = ScriptedTier(TierName.HOST, PAGE, self.marks)
        self.far = ScriptedTier(TierName.EXTERNAL, PAGE, self.marks)
        config = CoreConfig(
            PAGE,
            (full_spec(), swa_spec(3), mamba_spec(GRID)),
            GRID,
            self.order,
            write_policy=self.write_policy,
            host_tier=self.host,
        )
        tiers = Tiers(
            host_slots=HOST_POOLS if self.host else {},
            host=self.near if self.host else NullTier(),
            external=self.far,
            prefetch=PrefetchRules(self.prefetch, timeout_s=2, stretch_tokens=2 * GRID),
        )
        rules = SessionRules(ttl_s=30, reopen_after_s=3, tag_ttl_s=8, tombstones=1)
        self.cache = build_cache(config, POOLS, self.clock, CORE, rules, tiers=tiers)
        self.prompts: dict[int, Prompt] = {}

    # requests

    @precondition(lambda self: self.queued)
    @rule(data=st.data(), chunks=CHUNKS, space=st.sampled_from(SPACES))
    def expect(self, data: st.DataObject, chunks: list[int], space: Namespace) -> None:
        ticket = data.draw(st.sampled_from(self.queued))
        if ticket.number not in self.prompts:
            tokens = tokens_of(chunks)
            self.prompts[ticket.number] = Prompt(tokens, space, len(tokens) - 1)
            self.cache.tiers.expect(ticket, self.prompts[ticket.number])

    @rule(session=st.none() | SESSIONS, chunks=CHUNKS, alone=st.booleans())
    def whole_turn(self, session: SessionId | None, chunks: list[int], alone: bool) -> None:
        """A request that nothing interrupts but slow copies, in one space, so that others meet its data."""
        tokens = tokens_of(chunks)
        prompt = Prompt(tokens, SPACES[0], len(tokens) - 1)
        ticket = self.cache.enter(SessionTag(session) if session else None)
        self.cache.tiers.expect(ticket, prompt)
        for _ in range(4):
            self.cache.tiers.step()
            self.far.land_all()
        turn = self.start(ticket, prompt)
        self.turns.remove(turn)
        if not self.resume(turn, alone):
            self.near.land_all()
        evicted = self.cache.stats().turns.evicted_slots
        for _ in chunks:
            self.compute(turn, 1, whole=True)
        marked = self.cache.stats().open_references > 0
        self.reached["eviction under a marker"] += (
            marked and self.cache.stats().turns.evicted_slots != evicted
        )
        self.cache.finish(turn, len(tokens) - GRID)

    @precondition(lambda self: self.turns)
    @rule(data=st.data(), alone=st.booleans())
    def proceed(self, data: st.DataObject, alone: bool) -> None:
        self.resume(data.draw(st.sampled_from(self.turns)), alone)

    # tiers

    @rule(steps=st.integers(1, 3))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.cache.tiers.step()

    @precondition(lambda self: self.near.waiting or self.far.waiting)
    @rule(data=st.data(), which=st.sampled_from(["whole", "whole", "part", "nothing"]))
    def land(self, data: st.DataObject, which: str) -> None:
        """Any job that waits ends, not only the oldest."""
        tier = data.draw(st.sampled_from([tier for tier in (self.near, self.far) if tier.waiting]))
        at = data.draw(st.integers(0, len(tier.waiting) - 1))
        kept = data.draw(st.sets(st.integers(0, 8))) if which == "part" else set()
        self.reached[f"{which} of a job landed"] += 1
        tier.land(at, lambda _piece, end: which == "whole" or end // PAGE in kept)

    @rule(
        session=SESSIONS,
        expected_s=st.none() | st.sampled_from([0.0, 0.5, 2.0, 9.0, 1e9, -1.0, float("nan")]),
    )
    def pause(self, session: SessionId, expected_s: float | None) -> None:
        """It says when it will be back, or that it goes on."""
        try:
            self.cache.pause_session(session, None if expected_s is None else Paused("tool", expected_s))
        except CacheError as error:
            if error.kind not in (Kind.SESSION_UNKNOWN, Kind.SESSION_CLOSED):
                raise

    @rule(pressed=st.sampled_from([False, False, False, True]), soon=st.booleans())
    def bring(self, pressed: bool, soon: bool) -> None:
        """What sessions will read that are about to return is sent for, or goes on."""
        if soon:
            self.clock.advance(2 * 10**9)
        before = self.cache.stats().returns
        self.cache.returning.step(SLOW, pressed)
        self.cache.tiers.step()
        self.reached["brought before it was asked for"] += self.cache.stats().returns.tokens > before.tokens

    @rule(session=SESSIONS, chunks=CHUNKS, others=CHUNKS)
    def come_back(self, session: SessionId, chunks: list[int], others: list[int]) -> None:
        """A session is away for two seconds, as it says, while somebody else takes what there is."""
        self.whole_turn(session, chunks, alone=True)
        self.pause(session, 2.0)
        self.whole_turn(None, others, alone=True)
        self.clock.advance(18 * 10**8)
        for _ in range(6):
            self.bring(pressed=False, soon=False)
            self.near.land_all()
            self.far.land_all()
        self.whole_turn(session, chunks, alone=True)
        self.reached["found what was brought"] += self.cache.stats().returns.on_time

    @rule(prompt=st.booleans())
    def hurry(self, prompt: bool) -> None:
        """Copies to and from the host land at the next look, or wait to be told."""
        self.near.prompt = prompt

    @rule(how=st.sampled_from(["lies", "forgets", "is late", "is down", "answers"]))
    def trouble(self, how: str) -> None:
        if how == "forgets":
            for name in list(self.far.objects)[::3]:
                del self.far.objects[name]
        answers = {"lies": Presence.HIT, "is late": Presence.PENDING, "is down": Presence.RETRY}
        self.far.answer = (lambda _name: answers[how]) if how in answers else None
        self.reached[f"a store that {how}"] += 1

    @rule()
    def swap(self) -> None:
        """Another store takes over, an empty one; what the first was doing ends."""
        self.far = ScriptedTier(TierName.EXTERNAL, PAGE, self.marks)
        self.cache.tiers.attach(self.far)

    # inside

    def asked(self, ticket: Ticket, prompt: Prompt) -> Prompt:
        """What it said that it would ask for, if it did."""
        self.reached["begun before its prefetch"] += not self.cache.tiers.arrived(ticket)
        return self.prompts.pop(ticket.number, prompt)

    def compute(self, turn: ActiveTurn, chunks: int, whole: bool) -> None:
        if self.resume(turn):
            super().compute(turn, chunks, whole)

    def resume(self, turn: ActiveTurn, alone: bool = False) -> bool:
        loading = turn.loading
        ready = self.cache.ready(turn, alone)
        if ready:
            self.verify(turn, self.path(turn))
            self.reached["hit from outside"] += turn.cached.external > 0
            self.reached["loaded from the host"] += loading > 0 and turn.cached.host > 0
            self.reached["a load gave less"] += loading > 0 and turn.cached.host == 0
        return ready

    def teardown(self) -> None:
        """Everybody goes. What was on its way arrives by itself, and then nothing is held for anybody."""
        self.far.answer = None
        self.near.prompt = self.far.prompt = True
        while self.turns:
            self.cache.finish(self.turns.pop(), 0)
        while self.queued:
            self.cache.leave(self.queued.pop())
        for _ in range(100):
            self.clock.advance(10**8)
            self.cache.tiers.step()
            self.cache.returning.step(SLOW, pressed=False)
        self.cache.returning.stop()
        self.cache.tiers.step()
        assert self.cache.tiers.idle
        stats = self.cache.stats()
        assert stats.jobs_in_flight == 0
        assert all(use.protected == use.in_flight == 0 for use in stats.pools)
        super().teardown()
        self.cache.tiers.close()

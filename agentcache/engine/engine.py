"""The embedded engine: admits, matches, reserves, prefills on the grid, decodes in one batch, publishes.

One step does, in this order: what has arrived from other tiers is taken in, what sessions will read that are about to
return is sent for, unless a request waits for anything, requests that wait are admitted one at a time (so that each
finds what the one before it published), up to `prefill_tokens` of prompts are computed chunk by chunk, then every
running request gets one token. A request whose prefix is still on its way holds up nobody's token.
Slots for what a prompt publishes are reserved before it starts; nothing that runs ever waits for slots, so everything
ends, and the head of the queue gets its turn.
"""

import random
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from agentcache.cache import Prompt
from agentcache.engine.admission import AdmissionRules
from agentcache.engine.api import (
    Accepted,
    CachedTokens,
    Course,
    EngineLoad,
    Event,
    Finished,
    FinishReason,
    GenerateRequest,
)
from agentcache.engine.computing import SEEDS
from agentcache.engine.running import EngineParts, Running, failure_of
from agentcache.engine.scheduler import Asked, PrefillOrder, WaitingQueue
from agentcache.engine.untold import Untold
from agentcache.engine.work import Waiting, Work
from agentcache.errors import CacheError, Kind
from agentcache.keys import Namespace
from agentcache.tiers.null import NullTier
from agentcache.tiers.stores.api import BlobStore
from agentcache.types import TierName
from agentcache.views import ABSENT

SWEEP_NS = 1_000_000_000
HOUSEKEEPING_S = 1.0
"""How often an idle engine looks whether sessions have expired."""
TRANSFER_S = 0.02
"""How often one that waits for other tiers looks at their deadlines; it is woken for what arrives."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """How much runs at once. `publishes_decoded` False: only pages computed from prompts are published."""

    max_running: int = 8
    queue_limit: int = 64
    prefill_tokens: int = 512
    order: PrefillOrder = PrefillOrder.FCFS
    publishes_decoded: bool = True


class Engine:
    """One model, one cache, one thread.

    Caller  calls everything from one thread; drives `step` while not `idle`, and now and then otherwise
    """

    def __init__(self, parts: EngineParts, limits: EngineLimits) -> None:
        self.cache = parts.cache
        self.runner = parts.runner
        self.info = parts.info
        self.clock = parts.clock
        self.bell = parts.bell
        self._parts = parts
        self._limits = limits
        self._rules = AdmissionRules(parts.info, parts.policy, parts.sizes, parts.caches)
        self._random = random.Random(parts.seed)
        self._waiting: WaitingQueue[Waiting] = WaitingQueue(limits.queue_limit, limits.order)
        self._untold = Untold(parts.pace, parts.cache.tiers.handing)
        self._counts: Counter[str] = Counter()
        self._running = Running(parts, limits.publishes_decoded, self._untold, self._counts)
        self._swept_ns = parts.clock.now_ns()
        self._stalled = False

    def submit(self, request: GenerateRequest) -> Accepted:
        """Take in a request; it waits until a step admits it.

        Errors  EMPTY_PROMPT, PROMPT_TOO_LONG, OVER_POOL, QUEUE_FULL, BAD_REQUEST, SESSION_*, BAD_SESSION_ID; each
                leaves nothing behind
        """
        if request.request_id in self.active():
            raise CacheError(
                Kind.BAD_REQUEST, "a request with this id is running", request_id=request.request_id
            )
        self._rules.check(request)
        self._waiting.check_room(self._limits.max_running - len(self._running.works))
        ticket = self.cache.enter(request.session)
        prompt = self._prompt(request)
        if prompt.reuse:
            self.cache.tiers.expect(ticket, prompt)
        self._waiting.push(request.request_id, Waiting(request, ticket, prompt, Course(self.clock.now_ns())))
        return Accepted(request.request_id, ticket.session, ticket.generation, ticket.state)

    def abort(self, request_id: str) -> None:
        """End a request wherever it is; what it computed is published. Idempotent; unknown ids are ended already.

        Its Finished comes out of the next step.
        """
        if request_id in self._waiting:
            self._end_waiting(self._waiting.take(request_id), FinishReason.ABORT)
        elif request_id in self._running.works:
            self._running.abort(self._running.works[request_id])
        self._untold.cut(request_id)

    def step(self) -> list[Event]:
        """Admit, prefill, decode and publish once. Answers what happened since the last step; [] when idle.

        What the last step computed is told, and the next one computed, once the time that it takes has passed.
        A failure inside fails the requests that it concerns, with one ENGINE_FAILED each.
        """
        self.sweep()
        self.cache.tiers.step()
        if self.cache.returning.due:
            self.cache.returning.step(self._waiting.rate, len(self._waiting) > 0 or self._running.starting)
        events = self._untold.take()
        if self._parts.pace.busy_ns():
            return events
        before = self._counts.total()
        self._prefill()
        self._running.decode()
        events += self._untold.take()
        self._stalled = not events and self._counts.total() == before
        return events

    def idle(self) -> bool:
        """Nothing waits, runs, or is still to be said."""
        return not (self._running.works or self._waiting) and self._untold.nothing

    def pause_s(self) -> float:
        """How long whoever drives `step` may wait before the next one; `bell` rings when something ends earlier."""
        quiet_s = max(TRANSFER_S, min(HOUSEKEEPING_S, self.cache.returning.due_in_s()))
        if busy_ns := self._parts.pace.busy_ns():
            return min(busy_ns / 1e9, quiet_s)
        if self.idle():
            return quiet_s if self.cache.tiers.idle else TRANSFER_S
        return TRANSFER_S if self._stalled else 0.0

    def rest(self) -> None:
        """Wait until there may be something to do; for drivers without a thread of their own to wake."""
        self.bell.wait(self.pause_s())

    def attach(self, store: BlobStore) -> None:
        """Put an external store behind the cache; from now on it is the engine's to close.

        Errors  IN_USE while there is one: detach it first; BAD_CONFIG for one that is too small. It is closed then
        """
        try:
            if self.cache.tiers.external().state != ABSENT:
                raise CacheError(Kind.IN_USE, "an external store is attached already; detach it first")
            tier = self._parts.external(store)
        except Exception:
            store.close()
            raise
        self.cache.tiers.attach(tier)

    def detach(self) -> None:
        """Go on without the external store; what it holds stays there. Idempotent."""
        self.cache.tiers.attach(NullTier(TierName.EXTERNAL))

    def close(self) -> None:
        """Let go of the tiers: threads, files, connections, servers of our own. The engine is not to be used again."""
        self.cache.tiers.close()

    def active(self) -> tuple[str, ...]:
        """Ids of all requests that have not ended, or whose end is not to be told yet."""
        names = (*self._running.works, *self._waiting.names(), *self._untold.requests())
        return tuple(dict.fromkeys(names))

    def sweep(self) -> None:
        """Let idle sessions expire; looks once a second."""
        now_ns = self.clock.now_ns()
        if now_ns - self._swept_ns >= SWEEP_NS:
            self._swept_ns = now_ns
            self.cache.sweep()

    def load(self) -> EngineLoad:
        """Counts for metrics. Cost O(1)."""
        counts = self._counts
        return EngineLoad(
            waiting=len(self._waiting),
            running=len(self._running.works),
            admitted_total=counts["admitted"],
            prefill_tokens_total=counts["prefill_tokens"],
            cached_tokens_total=counts["cached_tokens"],
            decode_tokens_total=counts["decode_tokens"],
            generated_tokens_total=counts["generated_tokens"],
            finished_total={reason.value: counts[reason] for reason in FinishReason},
        )

    def namespace(self, tenant_salt: str) -> Namespace:
        """What makes equal tokens of this engine's model unequal to those of another tenant, model or layout."""
        return replace(self._parts.namespace, tenant_salt=tenant_salt)

    # admission and prefill

    def _prefill(self) -> None:
        budget = self._limits.prefill_tokens
        while budget > 0:
            heads = self._running.heads() or self._admit()
            if not heads or not self._running.ready(heads[0]):
                return
            budget -= self._running.prefill_chunk(heads[0])

    def _admit(self) -> list[Work]:
        """Match the next waiting request, if there is one and a seat for it."""
        if not len(self._waiting) or len(self._running.works) >= self._limits.max_running:
            return []
        arrived = self.cache.tiers.arrived
        waiting = self._waiting.pop(self._asked, lambda one: one.seated(arrived(one.ticket), self.clock))
        if waiting is None:
            return []
        self._foretell()
        request, begun_ns = waiting.request, self.clock.now_ns()
        try:
            turn = self.cache.begin(waiting.ticket, waiting.prompt)
        except Exception as error:
            self._end_waiting(waiting, FinishReason.ERROR, failure_of(error))
            return []
        seed = self._random.randrange(SEEDS)
        chooser = self._parts.chooses(request, seed)
        course = replace(waiting.course, begun_ns=begun_ns, matched_ns=self.clock.now_ns())
        work = Work(request, course, turn, self.runner.new_state(), chooser)
        self._running.works[request.request_id] = work
        return [work]

    def _foretell(self) -> None:
        """Tell the cache when those that still wait are expected to begin, where they are not taken by age."""
        queue, now_ns = self._waiting, self.clock.now_ns()
        queue.rate.read(self._counts["prefill_tokens"], now_ns, others_wait=len(queue) > 0)
        for waiting, start_ns in queue.starts(now_ns):
            self.cache.expects(waiting.ticket, start_ns)

    def _prompt(self, request: GenerateRequest) -> Prompt:
        tokens = np.array(request.tokens, dtype=np.int32)
        reuse = request.reuse and self._parts.caches
        namespace = self.namespace(request.tenant_salt)
        return Prompt(tokens, namespace, len(tokens) - 1, reuse, request.priority, request.hand_over)

    def _asked(self, waiting: Waiting) -> Asked:
        prompt = waiting.prompt
        return Asked(len(prompt.tokens), self.cache.peek(prompt) if prompt.reuse else 0)

    def _end_waiting(self, waiting: Waiting, reason: FinishReason, error: CacheError | None = None) -> None:
        """The way out of the queue: nothing was taken but the ticket."""
        self.cache.leave(waiting.ticket)
        self._counts[reason] += 1
        request = waiting.request
        self._untold.events.append(
            Finished(request.request_id, reason, len(request.tokens), CachedTokens(), 0, 0, error)
        )

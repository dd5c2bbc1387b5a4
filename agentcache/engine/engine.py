"""The embedded engine: admits, matches, reserves, prefills on the grid, decodes in one batch, publishes.

One step does, in this order: requests that wait are admitted one at a time (so that each finds what the one before it
published), up to `prefill_tokens` of prompts are computed chunk by chunk, then every running request gets one token.
Slots for what a prompt publishes are reserved before it starts; nothing that runs ever waits for slots, so everything
ends, and the head of the queue gets its turn.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import structlog
from torch import Tensor

from agentcache.cache import Prompt, UnifiedRadixCache
from agentcache.clock import Clock
from agentcache.engine.admission import AdmissionRules
from agentcache.engine.api import (
    Accepted,
    EngineInfo,
    EngineLoad,
    Event,
    Finished,
    FinishReason,
    GenerateRequest,
)
from agentcache.engine.publish import PublishPolicy
from agentcache.engine.publisher import Publisher
from agentcache.engine.runner import Runner
from agentcache.engine.sampling import SEEDS, Sampler
from agentcache.engine.scheduler import PrefillOrder, Waiting, WaitingQueue
from agentcache.engine.work import Work
from agentcache.errors import CacheError, Kind
from agentcache.keys import Namespace
from agentcache.types import ComponentName

SWEEP_NS = 1_000_000_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """How much runs at once. `publishes_decoded` False: only pages computed from prompts are published."""

    max_running: int = 8
    queue_limit: int = 64
    prefill_tokens: int = 512
    order: PrefillOrder = PrefillOrder.FCFS
    publishes_decoded: bool = True


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What an engine is put together from. `sizes` are the device pools' slots; `seed` that of unseeded sampling."""

    cache: UnifiedRadixCache
    runner: Runner
    info: EngineInfo
    namespace: Namespace
    policy: PublishPolicy
    sizes: Mapping[ComponentName, int]
    caches: bool
    clock: Clock
    seed: int = 0


class Engine:
    """One model, one cache, one thread.

    Caller  calls everything from one thread; drives `step` while not `idle`, and now and then otherwise
    """

    def __init__(self, parts: EngineParts, limits: EngineLimits) -> None:
        self.cache = parts.cache
        self.runner = parts.runner
        self.info = parts.info
        self.clock = parts.clock
        self._parts = parts
        self._limits = limits
        self._rules = AdmissionRules(parts.info, parts.policy, parts.sizes, parts.caches)
        self._publisher = Publisher(parts.cache, parts.runner, parts.policy)
        self._random = random.Random(parts.seed)
        self._waiting = WaitingQueue(limits.queue_limit, limits.order)
        self._works: dict[str, Work] = {}
        self._events: list[Event] = []
        self._counts: Counter[str] = Counter()
        self._swept_ns = parts.clock.now_ns()

    def submit(self, request: GenerateRequest) -> Accepted:
        """Take in a request; it waits until a step admits it.

        Errors  EMPTY_PROMPT, PROMPT_TOO_LONG, OVER_POOL, QUEUE_FULL, BAD_REQUEST, SESSION_*, BAD_SESSION_ID; each
                leaves nothing behind
        """
        if request.request_id in self._works or request.request_id in self._waiting:
            raise CacheError(
                Kind.BAD_REQUEST, "a request with this id is running", request_id=request.request_id
            )
        self._rules.check(request)
        self._waiting.check_room(self._limits.max_running - len(self._works))
        ticket = self.cache.enter(request.session)
        self._waiting.push(Waiting(request, ticket, self.clock.now_ns()))
        return Accepted(request.request_id, ticket.session, ticket.generation, ticket.state)

    def abort(self, request_id: str) -> None:
        """End a request wherever it is; what it computed is published. Idempotent; unknown ids are ended already.

        Its Finished comes out of the next step.
        """
        if request_id in self._waiting:
            self._end_waiting(self._waiting.take(request_id), FinishReason.ABORT)
        elif request_id in self._works:
            self._guarded(self._works[request_id], self._abort)

    def step(self) -> list[Event]:
        """Admit, prefill, decode and publish once. Answers what happened since the last step; [] when idle.

        A failure inside fails the requests that it concerns, with one ENGINE_FAILED each.
        """
        self.sweep()
        self._prefill()
        self._decode()
        events, self._events = self._events, []
        return events

    def idle(self) -> bool:
        """Nothing waits, runs, or is still to be said."""
        return not (self._works or self._waiting or self._events)

    def active(self) -> tuple[str, ...]:
        """Ids of all requests that have not ended."""
        return (*self._works, *self._waiting.ids())

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
            running=len(self._works),
            admitted_total=counts["admitted"],
            prefill_tokens_total=counts["prefill_tokens"],
            cached_tokens_total=counts["cached_tokens"],
            decode_tokens_total=counts["decode_tokens"],
            finished_total={reason.value: counts[reason] for reason in FinishReason},
        )

    def namespace(self, tenant_salt: str) -> Namespace:
        """What makes equal tokens of this engine's model unequal to those of another tenant, model or layout."""
        return replace(self._parts.namespace, tenant_salt=tenant_salt)

    # admission and prefill

    def _prefill(self) -> None:
        budget = self._limits.prefill_tokens
        while budget > 0:
            heads = [work for work in self._works.values() if not work.completion_tokens] or self._admit()
            if not heads or not self._ready(heads[0]):
                return
            budget -= self._prefill_chunk(heads[0])

    def _admit(self) -> list[Work]:
        """Match the next waiting request, if there is one and a seat for it."""
        if not len(self._waiting) or len(self._works) >= self._limits.max_running:
            return []
        waiting = self._waiting.pop(self._prefix_tokens)
        request = waiting.request
        try:
            turn = self.cache.begin(waiting.ticket, self._prompt(request))
        except Exception as error:
            self._end_waiting(waiting, FinishReason.ERROR, _failure(error))
            return []
        boundaries, need = self._plan(request, turn.boundary_tokens)
        seed = self._random.randrange(SEEDS)
        sampler = Sampler(request.sampling, seed)
        work = Work(request, waiting.submitted_ns, turn, self.runner.new_state(), sampler, boundaries, need)
        self._works[request.request_id] = work
        return [work]

    def _plan(self, request: GenerateRequest, start: int) -> tuple[tuple[int, ...], dict[ComponentName, int]]:
        if not self._caches(request):
            return (), {}
        return self._parts.policy.reservation(
            start, len(request.tokens), request.user_end_tokens, self._parts.sizes
        )

    def _caches(self, request: GenerateRequest) -> bool:
        return request.reuse and self._parts.caches

    def _prompt(self, request: GenerateRequest) -> Prompt:
        tokens = np.array(request.tokens, dtype=np.int32)
        namespace = self.namespace(request.tenant_salt)
        return Prompt(tokens, namespace, len(tokens) - 1, self._caches(request), request.priority)

    def _prefix_tokens(self, request: GenerateRequest) -> int:
        return self.cache.peek(self._prompt(request)) if self._caches(request) else 0

    def _ready(self, work: Work) -> bool:
        """Start the head of the queue once its slots are there; True while it can be computed."""
        if not work.started:
            self._guarded(work, self._start)
        return work.started

    def _start(self, work: Work) -> None:
        started = self._publisher.start(work)
        if not started and len(self._works) == 1:  # nothing else will end and give slots back
            work.boundaries, work.need = (), {}
            started = self._publisher.start(work)
        if started:
            self._counts["admitted"] += 1
            self._counts["cached_tokens"] += work.turn.cached_tokens
            self._events.append(work.admitted())

    def _prefill_chunk(self, work: Work) -> int:
        """Compute up to the next multiple of the grid, publish what is due; the last chunk gives the first token."""
        start = work.state.length
        end = self.runner.chunk_end(start, work.prompt_tokens)
        self._guarded(work, partial(self._compute, end=end))
        self._counts["prefill_tokens"] += end - start
        return end - start

    def _compute(self, work: Work, end: int) -> None:
        logits = self.runner.prefill(work.state, work.tokens[work.state.length : end])
        self._publisher.passed(work)
        if end == work.prompt_tokens:
            self._publisher.return_spare(work)
            self._say(work, logits.float().cpu())

    # decoding

    def _decode(self) -> None:
        """One batched step of every request that has said its first token."""
        works = [work for work in self._works.values() if work.completion_tokens]
        if not works:
            return
        try:
            logits = self.runner.decode([work.state for work in works], [work.tokens[-1] for work in works])
            rows = logits.float().cpu()
        except Exception as error:
            for work in works:
                self._fail(work, error)
            return
        self._counts["decode_tokens"] += len(works)
        for work, row in zip(works, rows, strict=True):
            self._guarded(work, partial(self._decoded, logits=row))

    def _decoded(self, work: Work, logits: Tensor) -> None:
        at_boundary = work.state.length % self._parts.policy.grid_tokens == 0
        if at_boundary and self._limits.publishes_decoded and self._caches(work.request):
            self._publisher.publish_decoded(work)
        self._say(work, logits)

    def _say(self, work: Work, logits: Tensor) -> None:
        """Choose and emit the next token; end the request after the last one."""
        said = work.said(logits, self.clock)
        if isinstance(said, FinishReason):
            self._end(work, said)
            return
        self._events.append(said)
        if work.completion_tokens == work.request.max_tokens:
            self._end(work, FinishReason.LENGTH)

    # ends

    def _abort(self, work: Work) -> None:
        """Publish what a prefill has computed since its last boundary (it stands at a chunk end), and end."""
        at_boundary = work.state.length % self._parts.policy.grid_tokens == 0
        if work.started and not work.completion_tokens and at_boundary and self._caches(work.request):
            self._publisher.publish(work)
        self._end(work, FinishReason.ABORT)

    def _guarded(self, work: Work, action: Callable[[Work], None]) -> None:
        """Run one part of a step; its failure ends this request and no other."""
        try:
            action(work)
        except Exception as error:
            self._fail(work, error)

    def _fail(self, work: Work, error: Exception) -> None:
        log.error("request.failed", request=work.request.request_id, exc_info=error)
        self._end(work, FinishReason.ERROR, _failure(error))

    def _end(self, work: Work, reason: FinishReason, error: CacheError | None = None) -> None:
        """The one way out of a running request: state, slots, lease and ticket go back. Twice is once."""
        if work.request.request_id not in self._works:
            return
        del self._works[work.request.request_id]
        self._counts[reason] += 1
        self._events.append(work.finished(reason, error))
        self.runner.drop(work.state)
        self.cache.finish(work.turn, work.request.user_end_tokens)

    def _end_waiting(self, waiting: Waiting, reason: FinishReason, error: CacheError | None = None) -> None:
        """The way out of the queue: nothing was taken but the ticket."""
        self.cache.leave(waiting.ticket)
        self._counts[reason] += 1
        request = waiting.request
        self._events.append(Finished(request.request_id, reason, len(request.tokens), 0, 0, 0, error))


def _failure(error: Exception) -> CacheError:
    if isinstance(error, CacheError):
        return error
    return CacheError(Kind.ENGINE_FAILED, f"computing this request failed: {type(error).__name__}: {error}")

"""Requests that run: prefill of the first, one batched decode of the others, and the one way out."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import structlog

from agentcache.cache import UnifiedRadixCache
from agentcache.clock import Clock
from agentcache.engine.api import EngineInfo, FinishReason
from agentcache.engine.bell import Bell
from agentcache.engine.computing import AtOnce, Chooses, Pace, Runs
from agentcache.engine.publish import PublishPolicy
from agentcache.engine.publisher import Publisher
from agentcache.engine.untold import Untold
from agentcache.engine.work import Work
from agentcache.errors import CacheError, Kind
from agentcache.keys import Namespace
from agentcache.tiers.api import ExternalTier
from agentcache.tiers.stores.api import BlobStore
from agentcache.types import ComponentName
from agentcache.waits import Told, kind_of

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What an engine is put together from.

    `chooses` makes each request's chooser; `sizes` are the device pools' slots; `seed` that of unseeded sampling;
    `external` makes a tier of a store, and `bell` rings when a tier has done something.
    """

    cache: UnifiedRadixCache
    runner: Runs
    chooses: Chooses
    info: EngineInfo
    namespace: Namespace
    policy: PublishPolicy
    sizes: Mapping[ComponentName, int]
    caches: bool
    clock: Clock
    external: Callable[[BlobStore], ExternalTier]
    bell: Bell
    seed: int = 0
    pace: Pace = field(default_factory=AtOnce)


class Running:
    """The admitted requests, by id, in order of admission. What is to be told and counts go into the engine's own."""

    def __init__(
        self, parts: EngineParts, publishes_decoded: bool, untold: Untold, counts: Counter[str]
    ) -> None:
        self.works: dict[str, Work] = {}
        self._cache = parts.cache
        self._runner = parts.runner
        self._clock = parts.clock
        self._pace = parts.pace
        self._grid_tokens = parts.policy.grid_tokens
        self._sizes = parts.sizes
        self._publisher = Publisher(parts.cache, parts.runner, parts.policy)
        self._publishes_decoded = publishes_decoded
        self._untold = untold
        self._counts = counts

    def heads(self) -> list[Work]:
        """Those that have not said their first token."""
        return [work for work in self.works.values() if not work.completion_tokens]

    @property
    def starting(self) -> bool:
        """One of them waits for its prefix or for slots."""
        return any(not work.started for work in self.works.values())

    def ready(self, work: Work) -> bool:
        """Start the head of the queue once its prefix and its slots are there; True while it can be computed."""
        if not work.started:
            self._guarded(work, self._start)
        return work.started

    def _start(self, work: Work) -> None:
        alone = len(self.works) == 1
        if not self._cache.ready(work.turn, alone):
            return
        if not work.planned:
            self._publisher.plan(work, self._sizes)
        started = self._publisher.start(work)
        if not started and alone and not self._cache.tiers.make_way():
            # nothing will end and give slots back
            work.boundaries, work.need = (), {}
            started = self._publisher.start(work)
        if started:
            work.course = replace(work.course, started_ns=self._clock.now_ns())
            self._counts["admitted"] += 1
            self._counts["cached_tokens"] += work.turn.cached_tokens
            self._untold.events.append(work.admitted())

    def prefill_chunk(self, work: Work) -> int:
        """Compute up to the next multiple of the grid, publish what is due; the last chunk gives the first token."""
        start = work.state.length
        end = self._runner.chunk_end(start, work.prompt_tokens)
        self._guarded(work, partial(self._compute, end=end))
        self._counts["prefill_tokens"] += end - start
        return end - start

    def _compute(self, work: Work, end: int) -> None:
        with self._computing(work):
            logits = self._runner.prefill(work.state, work.tokens[work.state.length : end])
        self._publisher.passed(work)
        if end == work.prompt_tokens:
            self._publisher.return_spare(work)
            with self._computing(work):
                row = self._runner.rows(logits)[0]
            self._say(work, row)

    @contextmanager
    def _computing(self, work: Work) -> Iterator[None]:
        began_ns = self._clock.now_ns()
        yield
        work.prefill_ns += self._clock.now_ns() - began_ns

    def decode(self) -> None:
        """One batched step of every request that has said its first token."""
        works = [work for work in self.works.values() if work.completion_tokens]
        if not works:
            return
        try:
            logits = self._runner.decode([work.state for work in works], [work.tokens[-1] for work in works])
            rows = self._runner.rows(logits)
        except Exception as error:
            for work in works:
                self._fail(work, error)
            return
        self._counts["decode_tokens"] += len(works)
        for work, row in zip(works, rows, strict=True):
            self._guarded(work, partial(self._decoded, row=row))

    def _decoded(self, work: Work, row: Any) -> None:
        if self._publishes_decoded and work.turn.prompt.reuse:
            self._publisher.publish_decoded(work)
        self._say(work, row)

    def _say(self, work: Work, row: Any) -> None:
        """Choose and emit the next token; end the request after the last one."""
        said = work.said(row, self._clock.now_ns() + self._pace.busy_ns())
        if isinstance(said, FinishReason):
            self._end(work, said)
            return
        self._counts["generated_tokens"] += 1
        self._untold.events.append(said)
        if work.completion_tokens == work.request.max_tokens:
            self._end(work, FinishReason.LENGTH)

    def abort(self, work: Work) -> None:
        """Publish what a prefill has computed since its last boundary (it stands at a chunk end), and end."""
        self._guarded(work, self._abort)

    def _abort(self, work: Work) -> None:
        at_boundary = work.state.length % self._grid_tokens == 0
        if work.started and not work.completion_tokens and at_boundary and work.turn.prompt.reuse:
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
        self._end(work, FinishReason.ERROR, failure_of(error))

    def _end(self, work: Work, reason: FinishReason, error: CacheError | None = None) -> None:
        """The one way out of a running request: state, slots, lease and ticket go back. Twice is once."""
        if work.request.request_id not in self.works:
            return
        del self.works[work.request.request_id]
        self._counts[reason] += 1
        end = work.finished(reason, error)
        if work.request.hand_over:
            self._untold.when_stored(work.turn.number, end)
        else:
            self._untold.events.append(end)
        self._runner.drop(work.state)
        self._cache.finish(work.turn, work.request.user_end_tokens, Told(kind_of(reason)))


def failure_of(error: Exception) -> CacheError:
    """What a request is told when a step failed on it."""
    if isinstance(error, CacheError):
        return error
    return CacheError(Kind.ENGINE_FAILED, f"computing this request failed: {type(error).__name__}: {error}")

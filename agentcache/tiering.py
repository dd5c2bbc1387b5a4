"""The tiers below the device, as the cache uses them: what comes up before a turn, what goes down behind it.

queued      expect ──► arrived?       external ─► host (or device)           prefetch.py, claims.py
begins      lock ──► loaded?          host ─► device                         here
ends        ended                     device ─► host, device ─► external     writing.py, handing.py
            held · released           soft classes outside                   keeping.py
"""

from collections.abc import Sequence

from agentcache.controller import HybridCacheController
from agentcache.executor import MovingParts
from agentcache.handing import Handing
from agentcache.keeping import Keeping
from agentcache.keys import Key, PathNames, object_name
from agentcache.prefetch import Prefetcher, PrefetchRules
from agentcache.sessions import Ticket
from agentcache.tiers.api import ExternalStatus, ExternalTier, Keep
from agentcache.tree.api import CoreConfig
from agentcache.turns import ActiveTurn, Prompt
from agentcache.types import Boundary, Locked, MatchResult, SessionId, TierName
from agentcache.writing import Copied, WriteBehind

SLOW_NS = 1_000_000_000
"""A tier that takes longer to come to rest is not given more to do."""


class Tiering:
    """Everything that moves between tiers.

    Nothing here waits but `drain`: `step` is called often, and what is not there yet is looked at again.
    """

    def __init__(self, parts: MovingParts, rules: PrefetchRules) -> None:
        self._core = parts.core
        self._executor = parts.executor
        self._controller = parts.controller
        self._clock = parts.clock
        self._ledger = parts.ledger
        self._keeping = Keeping()
        self.prefetcher = Prefetcher(parts, rules)
        self._writer = WriteBehind(parts, self._keeping)
        self.handing = Handing(parts.core.config, parts.controller, self._writer)

    # before a turn

    def expect(self, ticket: Ticket, prompt: Prompt) -> None:
        """A queued request will ask for this: look outside for it. Errors: BAD_REQUEST for tokens that are none."""
        path, limit = prompt.asks(self._core.config.page_tokens)
        self.prefetcher.start(ticket.number, path, limit, PathNames(self._core.config.page_tokens))

    def names(self, ticket: Ticket, path: Key) -> PathNames:
        """What the pages of a request's path are called outside, as far as that is known already."""
        return self.prefetcher.names(ticket.number, path)

    def arrived(self, ticket: Ticket) -> bool:
        """Whether a queued request should begin now, by the prefetch policy; asked again until it should."""
        return self.prefetcher.arrived(ticket.number)

    def dismiss(self, ticket: Ticket) -> tuple[int, int]:
        """A queued request begins or leaves. Answers which tokens came from outside for it, `[start, end)`."""
        return self.prefetcher.leave(ticket.number)

    def lock(self, match: MatchResult) -> tuple[Locked, int]:
        """Protect what a turn can resume from, and begin to load what of it is on the host: the job, or 0."""
        now = self._clock.now_ns()
        if match.any_tier.length <= match.device.length:
            return self._core.lock(match.device, now), 0
        planned = self._core.plan_load(match.any_tier, TierName.HOST, TierName.DEVICE, now)
        self._executor.apply(planned.effects)
        assert planned.lease, "a load comes with the lease of what is on the device"
        assert planned.job, "a boundary that votes with the host's help has something to load"
        return Locked(planned.lease, match.device, ()), planned.job.number

    def loaded(self, turn: ActiveTurn, alone: bool) -> bool:
        """Whether a turn's load has ended, wholly, partly or not at all. Makes room for it first, evicting.

        With `alone` nothing else will give room: a load that finds none is given up.
        """
        self._executor.settle()
        needs = self._controller.held(turn.loading)
        if needs is not None:
            if self._executor.make_room(needs, self._ledger):
                self._controller.start(turn.loading)
            elif alone and not self.make_way():
                self._controller.cancel(turn.loading)
            self._executor.settle()
        return not self._controller.is_out(turn.loading)

    # behind a turn

    def resumed(self, turn: ActiveTurn) -> None:
        """A turn continues from its boundary."""
        self._writer.hit(_copied(turn, turn.boundary_tokens))

    def ended(self, turn: ActiveTurn) -> None:
        """A turn that still holds its lease has registered, or will not."""
        sent = turn.handed_over_tokens
        if sent:
            self.handing.begin(turn.number, _copied(turn, sent))
        paths = [_copied(turn, boundary) for boundary in turn.published]
        self._writer.published(paths, sent, behind=self.handing.waiting)

    def let_go(self, turn: ActiveTurn) -> None:
        """A turn is over: a load for it that never started is not wanted any more; one on its way may land."""
        if turn.loading and self._controller.held(turn.loading) is not None:
            self._controller.cancel(turn.loading)

    def held(self, turn: ActiveTurn, frontier: Boundary | None) -> None:
        """A session's turn has registered up to here: what it wants back leaves the external tier last."""
        session = turn.ticket.session
        if not self._controller.has_external or session is None or frontier is None:
            return
        pages = turn.names.of(Key(turn.path.tokens[: frontier.length], turn.path.namespace))
        _want(self._controller, self._core.config, self._keeping.hold(session, pages))

    def inherited(self, session: SessionId, parent: SessionId) -> None:
        """A session wants back what its parent does: no more of it is hashed or asked for."""
        if self._controller.has_external:
            as_parent = self._keeping.hold(session, self._keeping.path(parent))
            _want(self._controller, self._core.config, as_parent)

    def released(self, session: SessionId) -> None:
        """A session has ended or idled out."""
        _retain(self._controller, self._core.config, self._keeping.release(session), Keep.LOOSE)

    # the whole

    def step(self) -> None:
        """Settle what has ended and start what is due. Never waits. Cost: a few microseconds when nothing is due."""
        self._executor.settle()
        self.prefetcher.step()
        self.handing.step()
        self._writer.step()

    @property
    def idle(self) -> bool:
        """Nothing is in flight, asked for, or to be sent."""
        at_rest = self.prefetcher.idle and self.handing.idle and self._writer.idle
        return not self._controller.jobs_out and at_rest

    def make_way(self) -> bool:
        """For the only request that runs, which finds no slots: give up what holds them.

        That is a copy that takes too long, or what is kept for a request that waits. False: neither is there, and
        nothing will come free by itself.
        """
        if self._controller.uses(TierName.DEVICE):  # it will come free
            self._writer.give_way()
            return True
        return self.prefetcher.claims.release_last()

    def external(self) -> ExternalStatus:
        """The external tier as it is. Never blocks."""
        return self._controller.external.status()

    def attach(self, tier: ExternalTier) -> None:
        """Go on with another external tier. What the old one was doing ends with what has landed."""
        self.prefetcher.stop()
        self._controller.replace_external(tier)
        self.step()

    def drain(self) -> None:
        """Let everything end that is on its way. Blocks, at most as long as the tiers' deadlines."""
        self.prefetcher.stop()
        while not self.idle:
            began_ns = self._clock.now_ns()
            self._controller.drain()
            if self._clock.now_ns() - began_ns > SLOW_NS:  # what is due would take as long, each
                self._writer.forget()
            self._writer.resume()
            self.step()

    def close(self) -> None:
        """Let go of the tiers' threads, files and connections. What is in flight ends with what has landed."""
        self.prefetcher.stop()
        self._writer.forget()
        self._controller.close()
        self._executor.settle()


def _want(
    controller: HybridCacheController, config: CoreConfig, changed: tuple[list[bytes], list[bytes]]
) -> None:
    """What somebody wants since now, and what nobody does."""
    for pages, keep in zip(changed, (Keep.REFERENCED, Keep.LOOSE), strict=True):
        _retain(controller, config, pages, keep)


def _retain(
    controller: HybridCacheController, config: CoreConfig, pages: Sequence[bytes], keep: Keep
) -> None:
    """Deepest first: what comes first into a class leaves it first, and the rest can still be reached from the root."""
    names = [object_name(page, spec.name) for page in reversed(pages) for spec in reversed(config.specs)]
    if names:
        controller.external.retain(names, keep)


def _copied(turn: ActiveTurn, boundary: int) -> Copied:
    return Copied(Key(turn.path.tokens[:boundary], turn.path.namespace), turn.names)

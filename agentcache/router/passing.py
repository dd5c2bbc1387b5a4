"""One request from the choice of its worker to the end of its answer, with other workers before the first byte.

settle ──► ahead ──► send ──┬─► answer: relay ──► leave
  ▲                         ├─► no answer, full, draining: another worker
  └─────────────────────────┴─► the worker knows a later generation: tag again
"""

from http import HTTPStatus
from typing import Final

import structlog

from agentcache import wire
from agentcache.errors import CacheError, Kind
from agentcache.router.context import Router
from agentcache.router.forwarding import OURS, answer_headers
from agentcache.router.looking import Looking, looking_at
from agentcache.router.metrics import Facts, Tokens
from agentcache.router.prefilling import Prefilling
from agentcache.router.relay import Relay
from agentcache.router.request import Request, said, written
from agentcache.router.settling import Settled, Settling
from agentcache.router.standing import Standing
from agentcache.router.tool_waits import Ended
from agentcache.router.turn_end import UNWATCHED, Watch, watch
from agentcache.router.upstream import Answer, Failure, NoAnswer
from agentcache.types import SessionState
from agentcache.web.status import HTTP_STATUS

SILENCED: Final = 2
"""Workers that may fall silent over one request before nobody else is asked: it may be the request's own doing."""
_WAITED_FOR: Final = frozenset({HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})
_REGISTERED: Final = frozenset({"", SessionState.OPEN, SessionState.EXPIRED})


class Passing:
    """The course of one request. `tried` are workers not to ask again."""

    def __init__(
        self, router: Router, request: Request, standing: Standing, relay: Relay, facts: Facts
    ) -> None:
        self._router = router
        self._request = request
        self._settling = Settling(router, request, standing)
        self._prompt = Prefilling(router, request, self._settling)
        self._relay = relay
        self._facts = facts
        self._tried: set[str] = set()
        self._asked_twice: set[str] = set()
        self._silenced = 0
        self._full = False
        self._last = NoAnswer(Failure.UNSENT, "none was left to ask")
        self._tagged_again = False
        self._worker = ""
        self._registered = False
        self._watch: Watch = UNWATCHED

    async def run(self) -> None:
        """Errors: CacheError before the first byte; UPSTREAM_FAILED after it when the answer broke off."""
        refused = False
        try:
            if self.standing.named:
                arrived_ns = self._facts.times.arrived_ns
                self._router.waits.returned(self.standing.ref, self._request.fields.values, arrived_ns)
            for number in range(1, self._router.settings.attempts + 1):
                self._facts.attempts = number
                if await self._attempt(number):
                    return
            raise self._given_up()
        except CacheError as error:
            refused = error.kind is Kind.NO_WORKER or _refuses(HTTP_STATUS[error.kind])
            raise
        finally:
            refused = refused or _refuses(self._facts.status)
            self._router.standings.leave(self._settling.standing, self._worker, self._registered, refused)
            self._learn()

    @property
    def standing(self) -> Standing:
        """How the request stands to its session now."""
        return self._settling.standing

    async def _attempt(self, number: int) -> bool:
        """Whether an answer was passed on."""
        settled = await self._settled()
        try:
            if settled.chosen.worker in self._tried:  # another router gave it the session meanwhile
                return False
            settled = await self._prompt.ahead(settled)
            self._note(settled)
            answer = await self._sent(settled, f"{self._request.request_id}.{number}")
            if isinstance(answer, NoAnswer):
                self._missed(settled, answer)
                return False
            try:
                if await self._is_for_others(settled, answer):
                    return False
                await self._relayed(settled, answer)
            finally:
                answer.close()
            return True
        finally:
            settled.chosen.flight.end()

    async def _settled(self) -> Settled:
        try:
            return await self._settling.settled(frozenset(self._tried))
        except CacheError as error:
            if error.kind is Kind.NO_WORKER and self._tried:
                raise self._given_up() from None
            raise

    def _note(self, settled: Settled) -> None:
        facts, chosen = self._facts, settled.chosen
        self._worker = chosen.worker
        facts.worker, facts.placed = chosen.worker, chosen.why
        facts.tokens = Tokens()
        if chosen.prompt_tokens:
            facts.tokens = Tokens(chosen.prompt_tokens, chosen.best_tokens, chosen.predicted_tokens)
        facts.times.sent_ns = self._router.clock.now_ns()

    async def _sent(self, settled: Settled, attempt_id: str) -> Answer | NoAnswer:
        """Send it, and wait for the answer to begin while the worker is alive."""
        chosen = settled.chosen
        headers, body = written(self._router, self._request, chosen, settled.standing, attempt_id)
        url = f"{chosen.url}{self._request.target}"
        try:
            async with looking_at(self._router, chosen.worker):
                return await self._router.upstream.send("POST", url, headers, body)
        except TimeoutError:
            return NoAnswer(Failure.SILENT, "it is not heard any more")

    def _missed(self, settled: Settled, answer: NoAnswer) -> None:
        """What a missing answer means for the worker and for this request.

        Errors  CacheError(UPSTREAM_FAILED) where the request must not be sent again
        """
        worker, unsent = settled.chosen.worker, answer.failure is Failure.UNSENT
        self._last = answer
        if settled.chosen.view.kind != OURS and not unsent and not self._request.route.repeatable:
            raise answer.error(worker)
        if answer.failure is Failure.BROKEN and worker not in self._asked_twice:
            self._asked_twice.add(worker)  # it may only have closed a connection that was idle
            return
        self._tried.add(worker)
        if answer.failure is not Failure.GARBAGE:
            self._router.fleet.failed(worker)
        self._silenced += answer.failure is Failure.SILENT
        if self._silenced >= SILENCED:
            raise answer.error(worker)

    def _given_up(self) -> CacheError:
        """Why nobody answered. What only the operator can mend is told to the log alone."""
        if self._full:
            return CacheError(Kind.QUEUE_FULL, "the workers that are left are full; try again")
        if self._last.failure is Failure.REFUSED:
            return CacheError(Kind.UPSTREAM_FAILED, "no worker could take this request")
        if self._last.failure is Failure.GARBAGE:
            return self._last.error(self._worker)
        tried = ", ".join(sorted(self._tried | self._asked_twice))
        return CacheError(Kind.NO_WORKER, f"no worker answered ({self._last.said}); try again", tried=tried)

    async def _is_for_others(self, settled: Settled, answer: Answer) -> bool:
        """Whether our worker refused what another worker, or another tag, may get through; nothing was computed."""
        worker, status = settled.chosen.worker, answer.status
        if settled.chosen.view.kind != OURS or status < HTTPStatus.BAD_REQUEST:
            return False
        if status == HTTPStatus.UNAUTHORIZED:
            return await self._is_refused(settled, answer)
        if status == HTTPStatus.CONFLICT and answer.header(wire.STATE) == SessionState.STALE:
            return await self._is_tagged_again(settled, answer)
        if status == HTTPStatus.SERVICE_UNAVAILABLE and await self._has_restarted(settled):
            return True
        movable = status == HTTPStatus.SERVICE_UNAVAILABLE or (
            status == HTTPStatus.TOO_MANY_REQUESTS and not self._bound_before()
        )
        if not movable or not self._others(worker):
            return False
        self._full = self._full or status == HTTPStatus.TOO_MANY_REQUESTS
        self._tried.add(worker)
        return True

    async def _is_refused(self, settled: Settled, answer: Answer) -> bool:
        """After a worker refused our tag, in which the client has no part: others may take the request."""
        worker, why = settled.chosen.worker, (await answer.whole()).decode("utf-8", "replace")[:300]
        said = f"it refused the router's tag; compare secrets and clocks: {why}"
        structlog.get_logger().error("tag_refused", worker=worker, said=said)
        self._last = NoAnswer(Failure.REFUSED, said)
        self._tried.add(worker)
        self._router.fleet.failed(worker)
        return True

    async def _has_restarted(self, settled: Settled) -> bool:
        """Whether the worker has started anew since we looked: our tag was for the one before, and the next will do."""
        await self._router.fleet.refresh(self._router.store)
        view, before = self._router.fleet.find(settled.chosen.worker), settled.chosen.view.card
        return bool(view and view.card and before and view.card.incarnation != before.incarnation)

    async def _is_tagged_again(self, settled: Settled, answer: Answer) -> bool:
        """After a worker said that our tag is older than what it knows; once."""
        if self._tagged_again or not settled.standing.referenced:
            return False
        self._tagged_again = True
        known = answer.header(wire.GENERATION)
        at_least = int(known) if known.isascii() and known.isdigit() else 0
        await self._settling.tag_again(at_least)
        return True

    def _bound_before(self) -> bool:
        return self.standing.named and not self.standing.first

    def _others(self, worker: str) -> bool:
        if self._request.pinned:
            return False
        without = self._tried | {worker}
        return any(view.answers and view.id not in without for view in self._router.fleet.views())

    async def _relayed(self, settled: Settled, answer: Answer) -> None:
        """The answer as it is, byte for byte, to its end."""
        ours = settled.chosen.view.kind == OURS
        told = said(self._request, settled.chosen, settled.standing, self._prompt.done.said)
        state = answer.header(wire.STATE) if ours else ""
        self._answered(settled, answer, told.get(wire.STATE) or state)
        if ours and settled.standing.referenced and answer.status == HTTPStatus.OK:
            self._watch = self._watching(answer)
        await self._relay.begin(answer.status, answer_headers(answer.headers, told, ours))
        try:
            async with looking_at(self._router, settled.chosen.worker) as looking:
                await self._streamed(answer, looking, ours)
        except TimeoutError:
            why = f"the worker {settled.chosen.worker} was not heard any more in the middle of its answer"
            raise CacheError(Kind.UPSTREAM_FAILED, why) from None
        registers = settled.standing.referenced and answer.status == HTTPStatus.OK
        self._registered = registers and state in _REGISTERED
        if settled.standing.referenced and state in (SessionState.STALE, SessionState.CLOSED):
            self._router.standings.let_go(settled.standing, closed=state == SessionState.CLOSED)
        await self._relay.end()

    async def _streamed(self, answer: Answer, looking: Looking, ours: bool) -> None:
        """The body. Only our workers say at all times that they are there."""
        if not ours:
            looking.end()
        times = self._facts.times
        async for chunk in answer.chunks():
            looking.came()
            times.first_ns = times.first_ns or self._router.clock.now_ns()
            self._facts.answer_bytes += len(chunk)
            await self._relay.pass_on(chunk)
            self._watch.see(chunk)
            looking.owes()

    def _watching(self, answer: Answer) -> Watch:
        """What sees a turn of an open session end, unless nobody wants to know."""
        if not self._router.settings.learn_waits:
            return UNWATCHED
        return watch(
            self._request.route.path, answer.header("content-type"), answer.header("content-encoding")
        )

    def _learn(self) -> None:
        """What the turn's end says of the wait that follows, whether the client has read on after it or not."""
        if self._watch is UNWATCHED:
            return
        ref, tagged, said = self.standing.ref, self.standing.tagged, self._request.expected_s > 0
        ended = Ended(ref, self._worker, tagged.generation, self._watch.end(), said, tagged.prefill)
        self._router.waits.ended(ended)

    def _answered(self, settled: Settled, answer: Answer, state: str) -> None:
        facts, ours = self._facts, settled.chosen.view.kind == OURS
        facts.status, facts.session_state = answer.status, state
        facts.why = settled.standing.why or (answer.header(wire.WHY) if ours else "")
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
            return
        self._router.chooser.learned(settled.chosen)
        cached, prompt = answer.header(wire.CACHED), answer.header(wire.PROMPT)
        if ours and cached.isdigit():
            facts.tokens.cached = int(cached)
        if ours and prompt.isdigit():
            facts.tokens.prompt = int(prompt)
        if ours and prompt.isdigit() and cached.isdigit():
            self._prompt.answered(settled.chosen, int(prompt), int(cached))
        facts.tokens.prefilled = self._prompt.done.tokens or -1


def _refuses(status: int) -> bool:
    """Whether a turn was not begun, for what it asks: it is no use to send it again as it is."""
    return HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _WAITED_FOR

"""A prompt that is computed ahead: by a prefill worker, before the decode worker that answers it is asked.

    chosen (decode) ──► how much is to be computed? ──► by whom? ──► a holder of the session ──► computed, and stored
                                                                                                      │
                        the decode worker is asked ◄────────── whatever has gone wrong ◄──────────────┘

Nothing here makes a request fail: what was not computed the decode worker computes.
"""

import asyncio
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

import msgspec
import structlog

from agentcache import wire
from agentcache.errors import CacheError
from agentcache.router.choosing import Chosen
from agentcache.router.context import Router
from agentcache.router.fleet import WorkerView
from agentcache.router.forwarding import OURS
from agentcache.router.looking import looking_at
from agentcache.router.place import Candidate
from agentcache.router.prefill_place import NoPrefill, PrefillChoice, PrefillWish, place_prefill
from agentcache.router.prefills import LastTurn, Prefills
from agentcache.router.request import Request, prefill_headers
from agentcache.router.settling import Settled, Settling
from agentcache.router.standing import Standing
from agentcache.router.upstream import Answer, Failure, NoAnswer

_REFUSED: Final[Mapping[int, NoPrefill]] = {
    HTTPStatus.TOO_MANY_REQUESTS: NoPrefill.FULL,
    HTTPStatus.SERVICE_UNAVAILABLE: NoPrefill.ABSENT,
    HTTPStatus.CONFLICT: NoPrefill.MOVED,
}
_IN_VAIN: Final = frozenset({NoPrefill.LATE, NoPrefill.UNANSWERED, NoPrefill.FAILED, NoPrefill.NOT_STORED})
"""What cost time and brought nothing, through no fault of the request."""
COMPUTED: Final = "computed"


class _Stored(msgspec.Struct):
    """The part of a prefill worker's answer that is read."""

    stored_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Prefilled:
    """What was computed ahead: so many tokens by this worker; or "" and why nothing was. `had`: what the decode worker
    was expected to have before."""

    worker: str = ""
    tokens: int = 0
    had: int = 0
    why: str = ""

    @property
    def said(self) -> str:
        """As answers say it; "" where nobody was to do anything."""
        if self.worker:
            return f"{self.worker}; {self.tokens} tokens"
        return f"none; {self.why}" if self.why else ""


NOT_ASKED: Final = Prefilled()


class Prefilling:
    """The prompt of one request. `done` is what became of it."""

    def __init__(self, router: Router, request: Request, settling: Settling) -> None:
        self._router = router
        self._request = request
        self._settling = settling
        self._looked = False
        self.done = NOT_ASKED

    async def ahead(self, settled: Settled) -> Settled:
        """Have the prompt computed, if that pays, once for a request. Answers how it stands at its worker since."""
        if self._looked or not self._concerns(settled.chosen.view):
            return settled
        self._looked = True
        wish, candidates = await self._wish(settled)
        choice = place_prefill(wish, candidates) if wish else PrefillChoice(why=NoPrefill.UNKNOWN)
        self.done = Prefilled(why=choice.why)
        if wish and choice.worker:
            settled = await self._by(choice.worker, wish, settled)
        self._prefills.counts[COMPUTED if self.done.worker else self.done.why] += 1
        return settled

    def answered(self, chosen: Chosen, prompt_tokens: int, cached_tokens: int) -> None:
        """The decode worker has begun to answer a prompt of so many tokens, of which it had or found so many."""
        if not _decodes(chosen.view):
            return
        if self._request.identity.session:
            turn = LastTurn(_mark(chosen.view), len(self._request.body), prompt_tokens)
            self._prefills.answered(self._session(chosen), turn)
        done = self.done
        if done.worker:
            self._came(done.worker, chosen, 2 * (cached_tokens - done.had) >= done.tokens - done.had)

    def _came(self, worker: str, decoder: Chosen, found: bool) -> None:
        self._prefills.came(worker, decoder.worker, found, self._router.clock.now_ns())

    @property
    def _prefills(self) -> Prefills:
        return self._router.chooser.sources.prefills

    def _session(self, chosen: Chosen) -> tuple[str, ...]:
        return self._request.tenant.name, self._request.identity.session, chosen.asked.model

    def _concerns(self, decoder: WorkerView) -> bool:
        if not (_decodes(decoder) and self._request.route.turn):
            return False
        return any(view.prefills for view in self._router.fleet.views())

    # how much, and by whom

    async def _wish(self, settled: Settled) -> tuple[PrefillWish | None, Sequence[Candidate]]:
        """None: nobody can say how long the prompt is."""
        decoder, least = settled.chosen.view, self._router.settings.prefill_min_tokens
        before = self._prefills.last_turn(self._session(settled.chosen))
        longer = len(self._request.body) - before.body_bytes
        goes_on = before.worker == _mark(decoder) and longer >= 0
        short = PrefillWish(decoder, 0, 0, least)
        if (longer if goes_on else len(self._request.body)) < least:  # a token has a byte at least
            return short, ()
        tokens = await self._tokens(decoder)
        if not tokens:
            return None, ()
        views = [view for view in self._router.fleet.views() if view.prefills]
        predicted = self._forecast(tokens, (decoder, *views))
        names = tuple(view.id for view in views)
        wish = replace(
            short,
            prompt_tokens=len(tokens),
            cached_tokens=max(predicted.get(decoder.id, 0), before.prompt_tokens if goes_on else 0),
            usual=settled.standing.tagged.prefill,
            resting=self._prefills.resting(names, decoder.id, self._router.clock.now_ns()),
        )
        return wish, [Candidate(view, predicted.get(view.id, 0)) for view in views]

    async def _tokens(self, decoder: WorkerView) -> "array[int]":
        """Asked of the least loaded that can say."""
        tokenizing = self._router.chooser.sources.tokenizing
        views = (decoder, *(view for view in self._router.fleet.views() if view.prefills and view.usable))
        askable = [view for view in views if view.models == decoder.models and not tokenizing.rests(view.id)]
        if not askable:
            return array("I")
        least = min(askable, key=lambda view: (view.load / view.seats, view.id))
        return await tokenizing.tokens(least, self._request.route.path, self._request.fields)

    def _forecast(self, tokens: "array[int]", views: Sequence[WorkerView]) -> dict[str, int]:
        cards = [view.card for view in views if view.card]
        try:
            found = self._router.chooser.sources.index.forecast(cards, self._request.salt, tokens)
        except CacheError:  # no tokens: the worker says what is wrong with them
            return {}
        return dict(found.tokens)

    # having it computed

    async def _by(self, worker: str, wish: PrefillWish, settled: Settled) -> Settled:
        view, flight = self._router.fleet.view(worker), self._router.fleet.begin(worker)
        settled.chosen.flight.put_off()
        self._prefills.tries(worker, settled.chosen.worker, self._router.clock.now_ns())
        try:
            standing = await self._lent(settled.standing, worker)
            if not self.done.why:
                done = await self._computed(view, standing)
                self.done = replace(done, had=min(wish.cached_tokens, done.tokens))
                if done.why in _IN_VAIN:
                    self._came(worker, settled.chosen, found=False)
        finally:
            flight.end()
            settled.chosen.flight.arrive()
        return replace(settled, standing=standing)

    async def _lent(self, standing: Standing, worker: str) -> Standing:
        """A session's close, expiry and the like reach the worker from before it is asked."""
        if not standing.referenced:
            return standing
        try:
            lent = await self._router.standings.lent(standing, worker)
        except CacheError:
            self.done = Prefilled(why=NoPrefill.NO_STORE)
            return standing
        if lent.tagged.prefill != worker:
            self.done = Prefilled(why=NoPrefill.MOVED)
        self._settling.standing = lent
        return lent

    async def _computed(self, view: WorkerView, standing: Standing) -> Prefilled:
        """Wait until it is computed and stored, for a while."""
        name = f"{self._request.request_id}.prefill"
        headers = prefill_headers(self._router, self._request, view, standing, name)
        url = f"{view.url}{self._request.target}"
        try:
            async with (
                asyncio.timeout(self._router.settings.prefill_timeout_s),
                looking_at(self._router, view.id),
            ):
                answer = await self._router.upstream.send("POST", url, headers, self._request.body)
                return await self._heard(view, answer)
        except TimeoutError:
            return Prefilled(why=NoPrefill.LATE)
        except CacheError:  # it broke off
            return Prefilled(why=NoPrefill.UNANSWERED)

    async def _heard(self, view: WorkerView, answer: Answer | NoAnswer) -> Prefilled:
        if isinstance(answer, NoAnswer):
            if answer.failure is Failure.UNSENT:
                self._router.fleet.failed(view.id)
            return Prefilled(why=NoPrefill.UNANSWERED)
        try:
            body = await answer.whole()
        finally:
            answer.close()
        if answer.status == HTTPStatus.UNAUTHORIZED:
            said = f"it refused the router's tag; compare secrets and clocks: {body[:300].decode('utf-8', 'replace')}"
            structlog.get_logger().error("tag_refused", worker=view.id, said=said)
            self._router.fleet.failed(view.id)
        if answer.status != HTTPStatus.OK:
            other = (
                NoPrefill.FAILED if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR else NoPrefill.REFUSED
            )
            return Prefilled(why=_REFUSED.get(answer.status, other))
        tokens = _stored(body)
        return Prefilled(view.id, tokens) if tokens > 0 else Prefilled(why=NoPrefill.NOT_STORED)


def _decodes(view: WorkerView) -> bool:
    """Whether its prompts may be computed by others."""
    return view.kind == OURS and bool(view.card and view.card.role == wire.Role.DECODE)


def _mark(view: WorkerView) -> str:
    """A worker for as long as it has not lost what it had."""
    return f"{view.id}\n{view.card.incarnation}" if view.card else view.id


def _stored(body: bytes) -> int:
    try:
        return msgspec.json.decode(body, type=_Stored).stored_tokens
    except (msgspec.DecodeError, RecursionError):
        return 0

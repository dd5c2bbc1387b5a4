"""Chooses a worker for each request: gathers what is known, looks into the index where that can matter, and places.

Asked ──► wish (binding, same conversation, parent) ──► must it look? ──► tokens ──► forecast ──► place ──► Chosen
                                                        no: by load         none: by fingerprints
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agentcache.clock import Clock
from agentcache.errors import CacheError
from agentcache.router.feed import FeedMode, Feeds
from agentcache.router.fingerprint import Chain, Fingerprints, chain_of
from agentcache.router.fleet import FleetView, Flight, Roster, WorkerView
from agentcache.router.index import Forecast, PrefixIndex
from agentcache.router.place import OVERLOADED, Candidate, Choice, Wish, must_look, place
from agentcache.router.prefills import Prefills
from agentcache.router.tokenizing import Tokenizing
from agentcache.web.fields import Fields

MOVE_REST_S = 10.0
"""A session that moved for load stays for so long, whatever the load."""
REMEMBERED = 100_000
"""Families, sessions and moves that a router remembers."""
MODEL_CHARS = 1024
"""No model has a longer name: it is remembered with each session, and clients may send any."""
NOTHING_LOOKED_UP = Forecast({}, {})


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as placement sees it. Names are "" where there is none.

    `salt` is the namespace of its tenant. `bound`: the session's worker by the store. `parent`: the session's, whose
    worker is `parent_worker`, known or not, and whose path it goes on from if it `forks`. `family`: a key that a client
    sends for all that belongs together. `pinned`: the worker that the request insists on. `exclude`: tried already.
    """

    tenant: str
    salt: str
    route: str
    fields: Fields
    session: str = ""
    bound: str = ""
    parent: str = ""
    parent_worker: str = ""
    forks: bool = False
    family: str = ""
    pinned: str = ""
    exclude: frozenset[str] = frozenset()

    @property
    def model(self) -> str:
        """As the request names it; one that is no text, or longer than any, names none."""
        said = self.fields.values.get("model")
        return said if isinstance(said, str) and len(said) <= MODEL_CHARS else ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where a request goes. It counts as in flight there until `flight.end()`: the caller's, whatever happens.

    `for_once`: serve it there without giving the session to that worker. Tokens are 0 where nobody looked.
    """

    view: WorkerView
    why: str
    flight: Flight
    asked: Asked
    predicted_tokens: int = 0
    best_tokens: int = 0
    prompt_tokens: int = 0
    for_once: bool = False
    chain: Chain = field(default_factory=Chain)

    @property
    def worker(self) -> str:
        return self.view.id

    @property
    def url(self) -> str:
        return self.view.url


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a chooser gets its knowledge."""

    fleet: FleetView
    index: PrefixIndex
    feeds: Feeds
    tokenizing: Tokenizing
    clock: Clock
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    prefills: Prefills = field(default_factory=Prefills)


class Chooser:
    """Placement with its memory. One for a router."""

    def __init__(self, sources: Sources) -> None:
        self._from = sources
        self._usual = _Memory()
        self._moved_ns = _Memory()
        self._siblings = Fingerprints()

    async def choose(self, asked: Asked) -> Chosen:
        """The best worker for a request, counted in flight there from this moment.

        Errors  CacheError(NO_WORKER)
        Cost    O(workers); where the choice is open also the digests of the messages, a call of `/tokenize` and the
                pages that somebody has
        """
        wish, chain = self._wish(asked)
        tokens, forecast = array("I"), NOTHING_LOOKED_UP
        views = self._from.fleet.views()
        if must_look(wish, views):
            tokens = await self._tokens(wish, asked)
            views = self._from.fleet.views()
            forecast = self._forecast(asked.salt, tokens)
        expected, looked_up = self._expected(bool(tokens), forecast, chain, views)
        kin = self._kin(wish, asked)
        wish = replace(wish, looked_up=looked_up, siblings=self._sent_with(kin, views))
        choice = place(wish, [Candidate(view, expected.get(view.id, 0)) for view in views])
        self._siblings.learn(kin, _mark(self._from.fleet.view(choice.worker)))
        self._from.index.read(choice.worker, forecast.paths.get(choice.worker, ()))
        if choice.worker not in (asked.pinned, wish.bound, wish.usual):
            self._from.fleet.settled(choice.worker)
        return self._decided(asked, choice, chain, len(tokens))

    def adopt(self, chosen: Chosen, worker: str) -> Chosen:
        """Another router was first to place the session: the request goes there. Errors: CacheError(NO_WORKER)."""
        if worker == chosen.worker:
            return chosen
        view = self._from.fleet.view(worker)
        chosen.flight.end()
        flight = self._from.fleet.begin(worker)
        return replace(chosen, view=view, why="placed by another router", flight=flight, prompt_tokens=0)

    def learned(self, chosen: Chosen) -> None:
        """The worker has taken the request: what is like it goes there too."""
        asked, mark = chosen.asked, _mark(chosen.view)
        if chosen.chain.digests:
            self._from.fingerprints.learn(chosen.chain, mark)
        if asked.session and not (asked.pinned and chosen.for_once):
            self._usual.put(_session_key(asked), chosen.worker)
        if asked.family and not chosen.for_once:
            self._usual.put(_family_key(asked), chosen.worker)
        if chosen.why.startswith(OVERLOADED):
            self._moved_ns.put(_session_key(asked), self._from.clock.now_ns())

    @property
    def mode(self) -> FeedMode:
        """What predictions rest on now."""
        return self._from.feeds.overall

    @property
    def sources(self) -> Sources:
        return self._from

    async def refresh(self, store: Roster) -> None:
        """Look at the workers again, and follow the events of exactly those that are there."""
        await self._from.fleet.refresh(store)
        views = self._from.fleet.views()
        await self._from.feeds.sync(view.card for view in views if view.card)

    async def close(self) -> None:
        """Stop listening to workers."""
        await self._from.feeds.close()

    def _wish(self, asked: Asked) -> tuple[Wish, Chain]:
        """What the request says and what is remembered. The chain is empty for a request that has a worker already."""
        usual, chain = str(self._usual.get(_session_key(asked))) if asked.session else "", Chain()
        if not (asked.bound or usual or asked.pinned):
            chain = chain_of(asked.fields, asked.salt, asked.model)
            usual = "" if asked.session else self._same_conversation(chain)
        family = self._usual.get(_family_key(asked)) if asked.family else ""
        wish = Wish(
            bound=asked.bound,
            usual=usual,
            near=asked.parent_worker or str(family),
            near_why="near parent" if asked.parent_worker else "near its family",
            forks=asked.forks and bool(asked.parent_worker),
            pinned=asked.pinned,
            model=asked.model,
            exclude=asked.exclude,
            rested=self._rested(asked),
        )
        return wish, chain

    def _kin(self, wish: Wish, asked: Asked) -> Chain:
        """The prompt as children of one parent are told apart; empty for a session that has a worker, or no parent."""
        placed = wish.bound or wish.usual or wish.pinned
        if placed or not asked.parent:
            return Chain()
        return chain_of(asked.fields, asked.salt, asked.model, asked.tenant, asked.parent)

    def _sent_with(self, kin: Chain, views: Sequence[WorkerView]) -> dict[str, int]:
        """Where siblings went, and with how many tokens of this prompt: they may still be computed there."""
        shared = self._siblings.shared_tokens(kin)
        found = ((view, shared.get(_mark(view), 0)) for view in views)
        return {view.id: tokens for view, tokens in found if tokens >= _least_kept(view)}

    def _rested(self, asked: Asked) -> bool:
        moved_ns = self._moved_ns.get(_session_key(asked)) if asked.session else ""
        return moved_ns == "" or self._from.clock.now_ns() - int(moved_ns) >= MOVE_REST_S * 1e9

    def _same_conversation(self, chain: Chain) -> str:
        """The worker of a conversation that this request goes on with, if that is enough to be kept there."""
        mark = self._from.fingerprints.usual(chain)
        found = (view for view in self._from.fleet.views() if _mark(view) == mark)
        return next((view.id for view in found if chain.tokens >= _least_kept(view)), "")

    async def _tokens(self, wish: Wish, asked: Asked) -> "array[int]":
        """Asked of the least loaded worker that can say, and only where somebody's pages are known."""
        askable = [
            view
            for view in self._from.fleet.views()
            if view.usable and view.card and view.id not in wish.exclude
            if not self._from.tokenizing.rests(view.id) and (not wish.model or wish.model in view.models)
        ]
        if not askable or not self._from.index.pages:
            return array("I")
        least = min(askable, key=lambda view: (view.load / view.seats, view.id))
        return await self._from.tokenizing.tokens(least, asked.route, asked.fields)

    def _forecast(self, salt: str, tokens: Sequence[int]) -> Forecast:
        cards = (view.card for view in self._from.fleet.views() if view.card)
        try:
            return self._from.index.forecast(cards, salt, tokens) if tokens else NOTHING_LOOKED_UP
        except CacheError:  # no tokens: the worker says what is wrong with them
            return NOTHING_LOOKED_UP

    def _expected(
        self, tokenized: bool, forecast: Forecast, chain: Chain, views: Sequence[WorkerView]
    ) -> tuple[dict[str, int], bool]:
        """Tokens by worker, and whether none of it is guessed.

        Guessed is what this router sent there before, for whoever's events are not followed; nothing under one chunk.
        Where nobody has any page there is nothing to ask about and nothing to guess.
        """
        shared = self._from.fingerprints.shared_tokens(chain)
        answered = tokenized or not self._from.index.pages
        known = {view.id for view in views if answered and self._from.feeds.mode(view.id) is FeedMode.EVENTS}
        guessed = ((view, shared.get(_mark(view), 0)) for view in views if view.id not in known)
        enough = {view.id: tokens for view, tokens in guessed if tokens >= _least_kept(view)}
        return enough | dict(forecast.tokens), all(view.id in known for view in views if view.answers)

    def _decided(self, asked: Asked, choice: Choice, chain: Chain, prompt_tokens: int) -> Chosen:
        return Chosen(
            view=self._from.fleet.view(choice.worker),
            why=choice.why,
            flight=self._from.fleet.begin(choice.worker),
            asked=asked,
            predicted_tokens=choice.predicted_tokens,
            best_tokens=choice.best_tokens,
            prompt_tokens=prompt_tokens,
            for_once=choice.for_once,
            chain=chain,
        )


class _Memory:
    """A bounded table, least recently used out first; "" where nothing is known."""

    def __init__(self) -> None:
        self._rows: OrderedDict[tuple[str, ...], str | int] = OrderedDict()

    def get(self, key: tuple[str, ...]) -> str | int:
        if key not in self._rows:
            return ""
        self._rows.move_to_end(key)
        return self._rows[key]

    def put(self, key: tuple[str, ...], value: str | int) -> None:
        self._rows[key] = value
        self._rows.move_to_end(key)
        if len(self._rows) > REMEMBERED:
            self._rows.popitem(last=False)


def _session_key(asked: Asked) -> tuple[str, ...]:
    """Agents use several models in one session: each has a usual worker of its own."""
    return ("session", asked.tenant, asked.session, asked.model)


def _family_key(asked: Asked) -> tuple[str, ...]:
    return ("family", asked.tenant, asked.salt, asked.family, asked.model)


def _least_kept(view: WorkerView) -> int:
    """The shortest prefix that a worker keeps."""
    return view.card.grid_tokens if view.card else 1


def _mark(view: WorkerView) -> str:
    """A worker's name for as long as it has not lost what it had."""
    return f"{view.id}\n{view.card.incarnation}" if view.card else view.id

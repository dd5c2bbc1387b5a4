"""A router's chooser without a network: an index fed by hand, and a worker that tokenizes by bytes."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.clock import ManualClock
from agentcache.errors import CacheError, Kind
from agentcache.keys import Namespace, page_hashes, page_key
from agentcache.kv_events import BlockStored
from agentcache.router.choosing import Asked, Chooser, Chosen, Sources
from agentcache.router.feed import FeedMode, Feeds
from agentcache.router.fleet import FleetView
from agentcache.router.index import Message, PrefixIndex
from agentcache.router.tokenizing import Tokenizing
from agentcache.web.fields import Fields
from agentcache.wire import WorkerCard
from tests.fleets import PAGE, Heard, card_of

CHAT = "/v1/chat/completions"
SALT = "salt"


@dataclass(frozen=True)
class Answered:
    status: int
    body: bytes


def tokens_of(body: Mapping[str, Any]) -> list[int]:
    """Messages after one another, byte by byte, each with its role's first letter before it."""
    parts = [f"{each['role'][0]}{each['content']}" for each in body.get("messages", ())]
    return list("".join(parts).encode() or body.get("prompt", "").encode())


class HandFed(Feeds):
    """Follows workers without listening: whoever has a `told` page is up to date."""

    async def sync(self, cards: Iterable[WorkerCard]) -> None:
        for card in cards:
            if card.events_url:
                self.index.follow(card)

    def mode(self, worker: str) -> FeedMode:
        return FeedMode.EVENTS if self.index.synced(worker) else FeedMode.OWN_DECISIONS


class Table:
    """A chooser with all around it. Workers that publish are up to date from the start."""

    def __init__(self, *cards: WorkerCard, budget_pages: int = 100_000) -> None:
        self.clock = ManualClock()
        self.fleet = FleetView(salt="r")
        self.index = PrefixIndex(budget_pages)
        self.roster = Heard(*cards)
        self.questions: list[str] = []
        self.silent = False
        self._feeds = HandFed(self.index, lambda: 0)
        self.tokenizing = Tokenizing(self._post, lambda *_: "", self.clock)
        sources = Sources(self.fleet, self.index, self._feeds, self.tokenizing, self.clock)
        self.chooser = Chooser(sources)
        self._seq: dict[str, int] = {}

    async def __aenter__(self) -> "Table":
        await self.look()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.chooser.close()

    async def look(self) -> None:
        await self.chooser.refresh(self.roster)
        for view in self.fleet.views():
            if view.card and view.card.events_url:
                self.index.caught_up(view.id)

    def told(self, worker: str, tokens: Sequence[int], salt: str = SALT) -> None:
        """The worker has stored all whole pages of these tokens."""
        seq = self._seq.get(worker, 0)
        key = page_key(tokens, Namespace(salt, "m"), PAGE)
        event = BlockStored(list(page_hashes(key, PAGE)), medium="GPU")
        self.index.take(worker, Message(seq, "", [event]))
        self._seq[worker] = seq + 1

    async def ask(self, *messages: dict[str, str], **asked: Any) -> Chosen:
        """Choose for a chat, and leave it in flight."""
        fields = Fields({"messages": list(messages)} | asked.pop("body", {}))
        said: dict[str, Any] = {"tenant": "t", "salt": SALT, "route": CHAT, "fields": fields}
        return await self.chooser.choose(Asked(**(said | asked)))

    async def serve(self, *messages: dict[str, str], **asked: Any) -> Chosen:
        """The same, taken by the worker and ended."""
        chosen = await self.ask(*messages, **asked)
        self.chooser.learned(chosen)
        chosen.flight.end()
        return chosen

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> Answered:
        self.questions.append(url)
        if self.silent:
            raise CacheError(Kind.UPSTREAM_FAILED, "no answer")
        return Answered(200, json.dumps({"tokens": tokens_of(json.loads(body))}).encode())


def publishing(worker: str, **more: Any) -> WorkerCard:
    return card_of(worker, events_url="told by hand", **more)


def says(text: str, role: str = "user") -> dict[str, str]:
    return {"role": role, "content": text}

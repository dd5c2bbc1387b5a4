"""The workers' side of a store in Redis. A worker is registered in every shard, and has a stream in each."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog

from agentcache.ids import scoped
from agentcache.store.api import Beat, Mail, Offer, Offered, OfferVerdict
from agentcache.store.calls import Calls, milliseconds
from agentcache.store.redis_fleet import STREAM_ENTRIES, receipt_fields
from agentcache.types import SessionId
from agentcache.wire import Notice, Order, Receipt, WorkerCard, WorkerLoad

OFFERS = 100  # in one call: a script that runs long keeps everybody waiting
OFFER_WORDS = 3

log = structlog.get_logger(__name__)


class RedisDesk:
    """What a worker tells and asks."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    @property
    def shards(self) -> int:
        return self.calls.shards

    async def register(self, card: WorkerCard) -> str:
        told = msgspec.json.encode(card).decode()
        return self.calls.epochs(await self.calls.ask_all("register", card.worker, card.incarnation, told))

    async def heartbeat(self, worker: str, incarnation: str, highest: int, load: WorkerLoad) -> Beat:
        told = msgspec.json.encode(load).decode()
        beats = await self.calls.ask_all("heartbeat", worker, incarnation, highest, told)
        unswept_ms = max(int(since_ms) for _, _, since_ms in beats)
        epoch = self.calls.epochs([epoch for _, epoch, _ in beats])
        return Beat(all(known for known, _, _ in beats), epoch, unswept_ms / 1000)

    async def leave(self, worker: str, incarnation: str) -> None:
        await self.calls.ask_all("leave", worker, incarnation)

    async def offer(self, worker: str, offers: Sequence[Offer], lost: bool) -> tuple[Offered, ...]:
        of_shard: dict[int, list[int]] = defaultdict(list)
        for at, offer in enumerate(offers):
            of_shard[self.calls.shard(offer.ref.tenant)].append(at)
        answers: dict[int, Offered] = {}
        for shard, places in of_shard.items():
            for start in range(0, len(places), OFFERS):
                some = places[start : start + OFFERS]
                words = [word for at in some for word in _offer_words(offers[at])]
                reply = await self.calls.ask("offer", shard, worker, int(lost), *words)
                answers.update(zip(some, _offered(reply), strict=True))
        return tuple(answers[at] for at in range(len(offers)))

    async def mail(self, worker: str, shard: int, cursor: str, wait_s: float) -> Mail:
        mail = await self._mail(worker, shard, cursor)
        if not cursor or mail.gap or mail.notices or wait_s <= 0:
            return mail
        stream = f"{self.calls.prefix(shard)}m:{worker}"
        with self.calls.refusing():
            entries = await self.calls.line.listen("mail", stream, cursor, STREAM_ENTRIES, wait_s)
        return Mail(_notices(entries), entries[-1][0] if entries else cursor)

    async def receipt(self, receipt: Receipt) -> None:
        sid = scoped(receipt.tenant, SessionId(receipt.session))
        what = (receipt.order.value, sid, receipt.generation, receipt.worker, receipt.outcome.value)
        shard = self.calls.shard(receipt.tenant)
        await self.calls.ask("receipt", shard, *what, receipt.operation, *receipt_fields(receipt))

    async def _mail(self, worker: str, shard: int, cursor: str) -> Mail:
        gap, reached, *entries = await self.calls.ask("mail", shard, worker, cursor, STREAM_ENTRIES)
        return Mail(_notices(entries), reached, bool(gap))


def _offer_words(offer: Offer) -> tuple[str | int, ...]:
    sid = scoped(offer.ref.tenant, SessionId(offer.ref.session))
    idle_ms, ttl_ms = milliseconds(offer.idle_s), milliseconds(offer.ttl_s)
    return (sid, offer.generation, offer.placement, idle_ms, ttl_ms, offer.parent, int(offer.prefill))


def _offered(reply: Sequence[str]) -> list[Offered]:
    answers = (reply[at : at + OFFER_WORDS] for at in range(0, len(reply), OFFER_WORDS))
    return [
        Offered(OfferVerdict(verdict), int(generation), int(placement))
        for verdict, generation, placement in answers
    ]


def _notices(entries: Sequence[Sequence[Any]]) -> tuple[Notice, ...]:
    """The notices among the entries of a stream; a mark of its beginning is none."""
    told = ((at, dict(zip(fields[::2], fields[1::2], strict=True))) for at, fields in entries)
    found = (_notice(at, fields) for at, fields in told if fields.get("order", "?"))
    return tuple(filter(None, found))


def _notice(at: str, fields: dict[str, str]) -> Notice | None:
    """A notice; None where another version has written what we cannot read, so that reading goes on behind it."""
    try:
        return Notice(
            Order(fields["order"]),
            fields["tenant"],
            fields["session"],
            int(fields["generation"]),
            int(fields["placement"]),
            fields["mode"],
            fields["operation"],
            fields["reply_to"],
            at,
            fields.get("parent", ""),
        )
    except (ValueError, KeyError):
        log.warning(
            "notice_unreadable", order=fields.get("order", "")[:200], session=fields.get("session", "")
        )
        return None

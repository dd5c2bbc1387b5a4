"""The fleet's side of a store in Redis: workers, receipts, and the sweep."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog
from redis.exceptions import AuthenticationError, NoPermissionError

from agentcache.errors import CacheError, Kind
from agentcache.ids import scoped
from agentcache.store.api import SessionRef, Swept, WorkerEntry
from agentcache.store.calls import Calls
from agentcache.store.redis_sessions import closed_ones
from agentcache.types import SessionId
from agentcache.wire import HeldPart, Order, Outcome, Receipt, WorkerCard, WorkerLoad

STREAM_ENTRIES = 1000
POLL_S = 0.1
START = "0"
SHOWN = 200  # characters in the log of what cannot be read
FORGET = "agentcache router --forget-sessions"
DENIED = (AuthenticationError, NoPermissionError)
log = structlog.get_logger(__name__)
RELEASED_PARTS = msgspec.json.Decoder(tuple[HeldPart, ...])


class RedisFleet:
    """What routers ask about workers, and what keeps the store tidy. Workers are registered in every shard."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self._unreadable: set[str] = set()
        self._prepared: list[tuple[str, int]] = []

    async def prepare(self) -> str:
        if not self._prepared:
            await self._check_server()
        answers = await self.calls.ask_all("prepare")
        for known, *_ in answers:
            if known != self.calls.format:
                raise CacheError(
                    Kind.BAD_CONFIG,
                    f"the sessions at {self.calls.line.address} are of another format, or for another number of "
                    f"shards: use the agentcache that wrote them, or forget them: {FORGET}",
                    found=known,
                    ours=self.calls.format,
                )
        before, self._prepared = self._prepared, [(epoch, int(count)) for _, epoch, count, _ in answers]
        shards = zip(answers, before, strict=False)
        anew = [(int(kept), count) for (_, epoch, _, kept), (known, count) in shards if epoch != known]
        if anew:
            self._tell_anew(lost=any(kept < count for kept, count in anew))
            await self._check_server()
        return self.calls.epochs([epoch for _, epoch, *_ in answers])

    async def forget(self) -> None:
        with self.calls.refusing():
            await self.calls.line.sweep_out("ac:{*}:*")

    async def raise_above(self, ref: SessionRef, generation: int) -> int:
        sid = scoped(ref.tenant, SessionId(ref.session))
        return int(await self.calls.ask("raise_above", self.calls.shard(ref.tenant), sid, generation))

    async def workers(self) -> tuple[WorkerEntry, ...]:
        entries, unreadable = [], set()
        for one in await self.calls.ask("workers", 0):
            try:
                entries.append(_entry(one))
            except (ValueError, RecursionError) as bad:  # of another version, or by nobody we know
                card = str(one[0])[:SHOWN]
                unreadable.add(card)
                if card not in self._unreadable:
                    log.warning("worker_unreadable", card=card, why=str(bad))
        self._unreadable = unreadable
        return tuple(sorted(entries, key=lambda entry: entry.card.worker.encode()))

    async def drain(self, worker: str, draining: bool) -> bool:
        return all(await self.calls.ask_all("drain", worker, int(draining)))

    async def sweep(self, limit: int) -> Swept:
        swept = Swept()
        for shard in range(self.calls.shards):
            asked, ended, again, closed, lapsed = await self.calls.ask("sweep", shard, limit)
            swept = Swept(
                swept.offered + asked,
                swept.expired + ended,
                swept.closed + closed_ones(closed),
                swept.lapsed + closed_ones(lapsed),
                swept.again or bool(again),
            )
        return swept

    async def receipts(self, router: str, after: str, wait_s: float) -> tuple[tuple[str, Receipt], ...]:
        places = after.split(",") if after else [START] * self.calls.shards
        found = await self._receipts_now(router, places)
        if found or wait_s <= 0:
            return found
        if self.calls.shards == 1:
            stream = f"{self.calls.prefix(0)}r:{router}"
            with self.calls.refusing():
                entries = await self.calls.line.listen(
                    "receipts", stream, after or START, STREAM_ENTRIES, wait_s
                )
            return _receipts([entries], places)
        deadline = asyncio.get_running_loop().time() + wait_s
        while not found and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(POLL_S)
            found = await self._receipts_now(router, places)
        return found

    async def _receipts_now(self, router: str, places: Sequence[str]) -> tuple[tuple[str, Receipt], ...]:
        asked = (
            self.calls.ask("receipts", shard, router, place, STREAM_ENTRIES)
            for shard, place in enumerate(places)
        )
        return _receipts(await asyncio.gather(*asked), places)

    def _tell_anew(self, lost: bool) -> None:
        store = self.calls.line.address
        if lost:
            log.warning(
                "store_lost_data", store=store, what="workers tell what they have: what is open comes back"
            )
        else:
            log.info(
                "store_restarted",
                store=store,
                what="it has what it had at our last look, about a second before",
            )

    async def _check_server(self) -> None:
        """Refuse a server that no store can use. Errors: BAD_CONFIG."""
        address = self.calls.line.address
        try:
            with self.calls.refusing():
                info = await self.calls.line.info()
        except CacheError as bad:
            refused = bad.__cause__
            if isinstance(refused, DENIED) or isinstance(refused and refused.__cause__, DENIED):
                why = "wrong user or password, or a user that may not do what a store needs"
                raise CacheError(Kind.BAD_CONFIG, f"{address}: {why}") from bad
            raise
        if info.get("cluster_enabled") and self.calls.shards == 1:
            why = "this is a node of a cluster: write redis+cluster:// instead of redis://"
            raise CacheError(Kind.BAD_CONFIG, f"{address}: {why}")
        if info.get("maxmemory") and str(info.get("maxmemory_policy")).startswith("allkeys"):
            why = "this server would throw sessions away when it is full: set its maxmemory-policy to noeviction"
            raise CacheError(Kind.BAD_CONFIG, f"{address}: {why}", policy=info["maxmemory_policy"])
        if info.get("role") not in (None, "master"):
            raise CacheError(Kind.BAD_CONFIG, f"{address}: this is a read-only replica: name its master")


def _entry(found: Sequence[Any]) -> WorkerEntry:
    card, load, heard_ms, draining, alive = found
    return WorkerEntry(
        msgspec.json.decode(card, type=WorkerCard),
        msgspec.json.decode(load or "{}", type=WorkerLoad),
        bool(alive),
        int(float(heard_ms)),
        bool(draining),
    )


def _receipts(entries: Sequence[Sequence[Any]], places: Sequence[str]) -> tuple[tuple[str, Receipt], ...]:
    """Receipts of all shards, each with the places of all shards after it."""
    reached, found = list(places), []
    for shard, of_shard in enumerate(entries):
        for place, fields in of_shard:
            reached[shard] = place
            found.append((",".join(reached), _receipt(dict(zip(fields[::2], fields[1::2], strict=True)))))
    return tuple(found)


def receipt_fields(receipt: Receipt) -> list[str]:
    """A receipt as the fields and values of an entry of a stream."""
    fields = {
        "order": receipt.order.value,
        "tenant": receipt.tenant,
        "session": receipt.session,
        "generation": str(receipt.generation),
        "worker": receipt.worker,
        "outcome": receipt.outcome.value,
        "operation": receipt.operation,
        "reply_to": receipt.reply_to,
        "mode": receipt.mode,
        "markers": str(receipt.markers),
        "said": receipt.said,
        "released": msgspec.json.encode(receipt.released).decode(),
    }
    return [word for pair in fields.items() for word in pair]


def _receipt(fields: dict[str, str]) -> Receipt:
    """A receipt; FAILED where another version has written what we cannot read, so that reading goes on behind it."""
    try:
        return _read_receipt(fields)
    except (ValueError, KeyError, RecursionError):
        tenant, session, worker, operation = (
            fields.get(name, "") for name in ("tenant", "session", "worker", "operation")
        )
        unread = "its receipt cannot be read: is it of another version?"
        return Receipt(Order.CLOSE, tenant, session, 0, worker, Outcome.FAILED, operation, said=unread)


def _read_receipt(fields: dict[str, str]) -> Receipt:
    return Receipt(
        Order(fields["order"]),
        fields["tenant"],
        fields["session"],
        int(fields["generation"]),
        fields["worker"],
        Outcome(fields["outcome"]),
        fields["operation"],
        fields["reply_to"],
        RELEASED_PARTS.decode(fields.get("released", "[]")),
        int(fields.get("markers", "0")),
        fields["mode"],
        fields["said"],
    )

"""Listens to the workers' placement events: one subscription a worker, replays when messages are missing.

    connect ──► replay from the next number wanted ──► live ──(gap, silence)──► replay …

A worker that restarts, or that was not reachable for a while, is caught up with by the next replay.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import structlog
import zmq
import zmq.asyncio

from agentcache.errors import CacheError
from agentcache.kv_events import (
    END_SEQ,
    OPEN,
    Seal,
    incarnation_of,
    pack_seq,
    topic_of,
    unpack_seq,
)
from agentcache.router.event_reading import read_places
from agentcache.router.index import Message, PrefixIndex, Taken
from agentcache.wire import WorkerCard

log = structlog.get_logger(__name__)
Frames = list[bytes]


class FeedMode(StrEnum):
    """What predictions rest on."""

    EVENTS = "events"
    OWN_DECISIONS = "own decisions"  # the worker publishes nothing
    DEGRADED = "degraded"  # it publishes, and not all of it has arrived


@dataclass(frozen=True, slots=True)
class FeedRules:
    """Times in seconds. `silence_s`: without a message for so long it is asked whether any was missed. `replay_s`: how
    long an answer is waited for; a worker with much to tell begins late."""

    silence_s: float = 5.0
    replay_s: float = 10.0
    queue_messages: int = 100_000


@dataclass(slots=True)
class FeedState:
    """How far a worker's events are followed. `lag_s` is the age of the last live message when it was read."""

    mode: FeedMode = FeedMode.DEGRADED
    messages: int = 0
    gaps: int = 0
    replays: int = 0
    failed_replays: int = 0
    unreadable: int = 0
    lag_s: float = 0.0


class Feeds:
    """A subscription for each worker that publishes. `now_ms` is Unix time. Caller: `close` at the end."""

    def __init__(
        self,
        index: PrefixIndex,
        now_ms: Callable[[], int],
        rules: FeedRules | None = None,
        seal: Seal = OPEN,
    ) -> None:
        """`seal` reads workers whose events are for routers only."""
        self._index = index
        self._seal = seal
        self._now_ms = now_ms
        self._rules = rules or FeedRules()
        self._context = zmq.asyncio.Context()
        self._feeds: dict[str, _Feed] = {}
        self._silent: set[str] = set()

    async def sync(self, cards: Iterable[WorkerCard]) -> None:
        """Follow exactly these workers. One with a new incarnation, or other addresses, is followed anew."""
        wanted = {card.worker: card for card in cards}
        for worker, feed in list(self._feeds.items()):
            if wanted.get(worker) != feed.card:
                await self._stop(worker, gone=worker not in wanted)
        self._silent = {worker for worker, card in wanted.items() if not card.events_url}
        for worker, card in wanted.items():
            if worker not in self._feeds and card.events_url:
                self._index.follow(card)
                self._feeds[worker] = _Feed(self, card)

    def states(self) -> Mapping[str, FeedState]:
        """By worker, those included that publish nothing."""
        silent = {worker: FeedState(FeedMode.OWN_DECISIONS) for worker in self._silent}
        return silent | {worker: feed.state for worker, feed in self._feeds.items()}

    def mode(self, worker: str) -> FeedMode:
        feed = self._feeds.get(worker)
        return feed.state.mode if feed else FeedMode.OWN_DECISIONS

    @property
    def overall(self) -> FeedMode:
        """The mode of all together: events only where every worker's are followed without a gap."""
        modes = {state.mode for state in self.states().values()} or {FeedMode.OWN_DECISIONS}
        return modes.pop() if len(modes) == 1 else FeedMode.DEGRADED

    async def close(self) -> None:
        """Stop listening. Idempotent."""
        for worker in list(self._feeds):
            await self._stop(worker, gone=True)
        self._context.term()

    async def _stop(self, worker: str, gone: bool) -> None:
        await self._feeds.pop(worker).stop()
        if gone:
            self._index.drop(worker)

    # what a feed asks

    def socket(self, kind: int, url: str) -> zmq.asyncio.Socket:
        """A connected socket that keeps nobody waiting when it is closed. Errors: zmq.ZMQError for no address."""
        made = self._context.socket(kind)
        made.linger = 0
        made.rcvhwm = self._rules.queue_messages
        made.ipv6 = "[" in url
        try:
            seal = self._seal if url.startswith(self._seal.mark) else OPEN
            seal.reader(made)
            made.connect(url.removeprefix(seal.mark))
        except zmq.ZMQError:
            made.close()
            raise
        return made

    @property
    def rules(self) -> FeedRules:
        return self._rules

    def take(self, card: WorkerCard, frames: Frames, live: bool) -> tuple[Taken, float]:
        """Read one message into the index; answers what became of it and its age in seconds. Errors: BAD_REQUEST."""
        topic, seq, payload = frames[-3:] if len(frames) > 2 else (b"", *frames[-2:])
        batch = read_places(payload)
        message = Message(unpack_seq(seq), incarnation_of(topic), batch.events, live)
        taken = self._index.take(card.worker, message)
        if taken is Taken.GAP and not card.replay_url:
            self._index.begin_at(card.worker, message.seq)
            self._index.take(card.worker, message)
        return taken, max(0.0, self._now_ms() / 1000 - batch.ts)

    @property
    def index(self) -> PrefixIndex:
        return self._index


class _Feed:
    """One worker's stream and its replays, in a task of its own."""

    def __init__(self, feeds: Feeds, card: WorkerCard) -> None:
        self._feeds = feeds
        self.card = card
        self.state = FeedState()
        self._again_at = 0.0
        self._task = asyncio.create_task(self._run(), name=f"events of {card.worker}")

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Until cancelled, or until something is wrong that waiting does not mend: an address that is none."""
        try:
            stream = self._feeds.socket(zmq.SUB, self.card.events_url)
            with stream:
                stream.subscribe(b"")
                await self._catch_up()
                while True:
                    await self._listen(stream)
        except Exception:
            log.exception("events not followed", worker=self.card.worker)
            self.state.mode = FeedMode.DEGRADED

    async def _listen(self, stream: zmq.asyncio.Socket) -> None:
        """One live message, or the silence after which it is asked whether any was missed."""
        frames = await _within(self._feeds.rules.silence_s, stream.recv_multipart)
        if frames:
            self._live(frames)
            await _others()
        behind = not self._feeds.index.synced(self.card.worker)
        if not frames or (behind and asyncio.get_running_loop().time() >= self._again_at):
            await self._catch_up()

    def _live(self, frames: Frames) -> None:
        """What cannot be read is missing: the message after it shows a gap."""
        try:
            taken, self.state.lag_s = self._feeds.take(self.card, frames, live=True)
        except (CacheError, ValueError) as error:
            self._unreadable(error)
            return
        self.state.messages += 1
        self.state.gaps += taken is Taken.GAP

    def _unreadable(self, error: Exception) -> None:
        self.state.unreadable += 1
        log.warning("unreadable event", worker=self.card.worker, error=str(error))

    async def _catch_up(self) -> None:
        """Replay what is missing; again from the start if it turns out that the worker restarted."""
        index, worker = self._feeds.index, self.card.worker
        if not self.card.replay_url:
            self._set_mode(FeedMode.DEGRADED)
            return
        for _ in range(2):
            if await self._replayed():
                index.caught_up(worker)
                self._set_mode(FeedMode.EVENTS)
                return
        self.state.failed_replays += 1
        self._again_at = asyncio.get_running_loop().time() + self._feeds.rules.silence_s
        self._set_mode(FeedMode.DEGRADED)

    async def _replayed(self) -> bool:
        """One replay from the next number that is wanted; whether it came to its end without a gap."""
        self.state.replays += 1
        with self._feeds.socket(zmq.DEALER, self.card.replay_url) as asking:
            index, worker = self._feeds.index, self.card.worker
            known = topic_of(index.incarnation(worker))
            await asking.send_multipart([b"", pack_seq(index.next_seq(worker)), known])
            return await self._read_replay(asking)

    async def _read_replay(self, asking: zmq.asyncio.Socket) -> bool:
        while frames := await _within(self._feeds.rules.replay_s, asking.recv_multipart):
            try:
                if unpack_seq(frames[-2]) == END_SEQ:
                    return True
                taken, _ = self._feeds.take(self.card, frames[1:], live=False)
            except (CacheError, ValueError, IndexError) as error:
                self._unreadable(error)
                return False
            if taken is Taken.GAP:
                return False
            await _others()
        return False

    def _set_mode(self, mode: FeedMode) -> None:
        if mode is not self.state.mode:
            log.info("events", worker=self.card.worker, mode=mode.value)
        self.state.mode = mode


async def _others() -> None:
    """Let others have their turn: the next message may be here already, and is then received without a pause."""
    await asyncio.sleep(0)


async def _within(seconds: float, receive: Callable[[], Awaitable[Frames]]) -> Frames:
    """A message, or nothing when none came in time."""
    try:
        async with asyncio.timeout(seconds):
            return await receive()
    except TimeoutError:
        return []

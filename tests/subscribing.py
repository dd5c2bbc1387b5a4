"""A subscriber for tests: blocking sockets with deadlines, on a context of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import zmq

from agentcache.kv_events import END_SEQ, Batch, decode_batch, pack_seq, unpack_seq

DEADLINE_MS = 60_000


@dataclass(frozen=True)
class Message:
    """One message as a reader gets it."""

    topic: bytes
    seq: int
    batch: Batch


class Subscriber:
    """One reader: what is published, and replays."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", events_url: str, replay_url: str) -> None:
        self.events = context.socket(zmq.SUB)
        self.events.subscribe(b"")
        self.events.connect(events_url)
        self.requests = context.socket(zmq.DEALER)
        self.requests.connect(replay_url)

    def heard(self, within_ms: int = DEADLINE_MS) -> Message | None:
        """The next live message."""
        if not self.events.poll(within_ms):
            return None
        topic, seq, payload = self.events.recv_multipart()
        return Message(topic, unpack_seq(seq), decode_batch(payload).batch)

    def ask(self, start: int, *topic: bytes) -> None:
        """`topic`: of the incarnation that it has followed so far."""
        self.requests.send_multipart([b"", pack_seq(start), *topic])

    def answer(self) -> list[Message]:
        """All of a replay up to its end marker."""
        messages: list[Message] = []
        while True:
            assert self.requests.poll(DEADLINE_MS), f"no end marker after {len(messages)} messages"
            empty, topic, seq, payload = self.requests.recv_multipart()
            assert empty == b""
            if unpack_seq(seq) == END_SEQ:
                assert (topic, payload) == (b"", b"")
                return messages
            messages.append(Message(topic, unpack_seq(seq), decode_batch(payload).batch))

    def replay(self, start: int, *topic: bytes) -> list[Message]:
        self.ask(start, *topic)
        return self.answer()

    def close(self) -> None:
        self.events.close(linger=0)
        self.requests.close(linger=0)


@contextmanager
def subscribed(events_url: str, replay_url: str) -> Iterator[Subscriber]:
    """A connected subscriber; what was published before its subscription arrived it has missed."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    subscriber = Subscriber(context, events_url, replay_url)
    try:
        yield subscriber
    finally:
        subscriber.close()
        context.term()

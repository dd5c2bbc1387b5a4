"""Readers that are slow, gone or too many: each gets all at its own pace, nobody else waits, nothing piles up."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import zmq

from agentcache.clock import ManualClock
from agentcache.kv_events import END_SEQ, AllBlocksCleared, Batch, encode_batch, pack_seq, unpack_seq
from agentcache.worker.kv_replay import BURST, MAX_READERS, PATIENCE_NS, Journal, Replays
from tests.subscribing import DEADLINE_MS

LARGE = 1 << 20
"""Payloads that do not hide in the buffers of the machine."""


@dataclass
class Desk:
    """Replays over a real socket that takes two messages a reader; `taken` counts numbers of snapshots made."""

    context: "zmq.Context[zmq.Socket[bytes]]"
    router: "zmq.Socket[bytes]"
    replays: Replays
    journal: Journal
    clock: ManualClock
    taken: list[int]

    def reader(self) -> "zmq.Socket[bytes]":
        dealer = self.context.socket(zmq.DEALER)
        dealer.set(zmq.RCVHWM, 2)
        dealer.set(zmq.RCVBUF, 4096)
        dealer.set(zmq.LINGER, 0)
        dealer.connect(self.router.get_string(zmq.LAST_ENDPOINT))
        return dealer

    @property
    def sent(self) -> int:
        """How many batches the only reader has taken."""
        (reader,) = self.replays._readers.values()
        return reader.next_seq

    def asked(self, dealer: "zmq.Socket[bytes]", start: int) -> None:
        """A request that has arrived."""
        before = self.replays.asked
        dealer.send_multipart([b"", pack_seq(start)])
        assert self.router.poll(DEADLINE_MS)
        self.replays.take_requests()
        assert self.replays.asked == before + 1

    def read(self, dealer: "zmq.Socket[bytes]") -> Iterator[int]:
        """Numbers up to the end marker, pumping meanwhile."""
        while True:
            while not dealer.poll(1):
                self.replays.pump()
            seq = unpack_seq(dealer.recv_multipart()[2])
            if seq == END_SEQ:
                return
            yield seq


@contextmanager
def desk(batches: int = 0, keep: int = 1000, parts: int = 1) -> Iterator[Desk]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.set(zmq.SNDHWM, 2)
    router.set(zmq.SNDBUF, 4096)
    router.set(zmq.ROUTER_MANDATORY, 1)
    router.set(zmq.LINGER, 0)
    router.bind("tcp://127.0.0.1:*")
    journal, clock, taken = Journal(keep, 1 << 40), ManualClock(), list[int]()
    for _ in range(batches):
        journal.add(bytes(LARGE))

    def snapshot(most: int) -> list[bytes]:
        assert most == journal.next_seq
        taken.append(journal.next_seq)
        return [encode_batch(Batch(0.0, [AllBlocksCleared()])), *[bytes(LARGE)] * (parts - 1)]

    try:
        yield Desk(context, router, Replays(router, journal, snapshot, b"t", clock), journal, clock, taken)
    finally:
        context.destroy(linger=0)


def test_a_slow_reader_gets_all_and_nobody_waits_for_it() -> None:
    with desk(batches=40) as at:
        slow, quick = at.reader(), at.reader()
        at.asked(slow, 0)
        for _ in range(3):
            at.replays.pump()  # takes nothing more for now, and does not wait
        at.asked(quick, 38)
        assert [*at.read(quick)] == [38, 39]
        assert at.replays.busy
        assert [*at.read(slow)] == [*range(40)]
        assert not at.replays.busy


def test_who_falls_behind_the_journal_gets_a_snapshot_instead() -> None:
    with desk(batches=30, keep=30) as at:
        slow = at.reader()
        at.asked(slow, 0)
        at.replays.pump()
        for _ in range(30):
            at.journal.add(b"")
        numbers = [*at.read(slow)]
        assert numbers == [*range(len(numbers) - 1), 59]
        assert at.replays.snapshots == 1


def test_who_takes_nothing_is_left_after_a_while() -> None:
    with desk(batches=40) as at:
        stuck = at.reader()
        at.asked(stuck, 0)
        at.replays.pump()
        at.clock.advance(PATIENCE_NS)
        at.replays.pump()
        while at.replays.busy:
            sent = at.sent
            at.clock.advance(PATIENCE_NS + 1)
            at.replays.pump()
            assert not at.replays.busy or at.sent > sent  # its buffers may have had room meanwhile


def test_who_is_gone_is_forgotten() -> None:
    with desk(batches=40) as at:
        leaver = at.reader()
        at.asked(leaver, 0)
        at.replays.pump()
        monitor = at.router.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        leaver.close(linger=0)
        assert monitor.poll(DEADLINE_MS)
        at.router.disable_monitor()
        while at.replays.busy:
            at.replays.take_requests()
            at.replays.pump()


def test_one_snapshot_serves_all_who_want_it_now() -> None:
    with desk(batches=3, keep=1) as at:
        readers = [at.reader() for _ in range(3)]
        for reader in readers:
            at.asked(reader, 0)
        assert [[*at.read(reader)] for reader in readers] == [[2]] * 3
        assert (at.taken, at.replays.snapshots) == ([3], 3)
        at.asked(readers[0], 0)
        assert [*at.read(readers[0])] == [2]
        assert at.taken == [3, 3]  # it is not kept for nobody


def test_the_parts_of_a_snapshot_are_of_one_moment_whatever_is_told_between_them() -> None:
    with desk(batches=30, keep=1, parts=20) as at:
        slow = at.reader()
        at.asked(slow, 0)
        at.replays.pump()
        assert at.replays.busy
        at.journal.add(b"")
        assert [*at.read(slow)] == [*range(10, 31)]
        assert (at.taken, at.replays.snapshots) == ([30], 1)


def test_a_snapshot_for_who_fell_behind_between_its_parts_is_another_one() -> None:
    with desk(batches=30, keep=1, parts=20) as at:
        slow = at.reader()
        at.asked(slow, 0)
        at.replays.pump()
        for _ in range(5):
            at.journal.add(b"")
        assert [*at.read(slow)] == [*range(10, 30), *range(15, 35)]
        assert at.taken == [30, 35]


def test_there_are_only_so_many_readers() -> None:
    with desk(batches=40) as at:
        readers = [at.reader() for _ in range(MAX_READERS)]
        for reader in readers:
            at.asked(reader, 0)
        late = at.reader()
        late.send_multipart([b"", pack_seq(39)])
        assert at.router.poll(DEADLINE_MS)
        at.replays.take_requests()
        assert at.replays.asked == MAX_READERS
        assert [*at.read(readers[0])] == [*range(40)]
        at.asked(late, 39)
        assert [*at.read(late)] == [39]


def test_a_second_request_begins_anew() -> None:
    with desk(batches=40) as at:
        reader = at.reader()
        at.asked(reader, 39)
        at.asked(reader, 38)
        assert [*at.read(reader)] == [38, 39]


@pytest.mark.parametrize("kept", [1, 3, 10])
def test_a_journal_keeps_the_last_batches(kept: int) -> None:
    journal = Journal(kept, 1 << 20)
    assert [journal.add(bytes([number])) for number in range(5)] == [0, 1, 2, 3, 4]
    assert (journal.first_seq, journal.next_seq) == (max(0, 5 - kept), 5)
    assert [journal[seq] for seq in range(journal.first_seq, 5)] == [
        bytes([n]) for n in range(max(0, 5 - kept), 5)
    ]


def test_a_burst_is_shared() -> None:
    """However much one may take at once, the others and what is new have their turn."""
    with desk() as at:
        for _ in range(3 * BURST):
            at.journal.add(b"")
        at.router.set(zmq.SNDHWM, 0)  # for those who connect from now on: all that they want
        at.router.bind("tcp://127.0.0.1:*")
        reader = at.reader()
        at.asked(reader, 0)
        at.replays.pump()
        assert at.replays.busy
        assert [*at.read(reader)] == [*range(3 * BURST)]

"""Lateness changes orders, and loses nothing."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lateness import make_late


async def heard_from(lines: int, words: int) -> list[int]:
    """Which line was heard when, of some that all say as many words at once."""
    heard: list[int] = []
    pairs = [socket.socketpair() for _ in range(lines)]
    streams = [await asyncio.open_connection(sock=one) for one, _ in pairs]

    async def listen(number: int) -> None:
        reader, _ = streams[number]
        for _ in range(words):
            await reader.readexactly(1)
            heard.append(number)
            pairs[number][1].send(b".")

    for _, other in pairs:
        other.send(b".")
    await asyncio.gather(*map(listen, range(lines)))
    for (_, writer), (_, other) in zip(streams, pairs, strict=True):
        writer.close()
        await writer.wait_closed()
        other.close()
    return heard


def test_what_is_ready_at_once_is_heard_in_another_order_and_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_turn = asyncio.run(heard_from(4, 50))
    make_late(monkeypatch.setattr, "1")
    late = asyncio.run(heard_from(4, 50))
    assert late != in_turn
    assert sorted(late) == sorted(in_turn)


def test_what_threads_are_given_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    make_late(monkeypatch.setattr, "1")
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(abs, range(-20, 0))) == list(range(20, 0, -1))

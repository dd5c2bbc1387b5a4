"""`bench routed` without routers: what is asked of each path, what the upstream answers, and the figures."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

import pytest
from rich.console import Console

from agentcache.bench import routed, routed_upstream
from agentcache.bench.routed import HINTS, PATHS, Load, measure, show
from agentcache.bench.routed_upstream import ANSWER, CALL_ID, TOOL, Answering
from agentcache.router.tool_results import results_in
from agentcache.router.turn_end import watch

METRICS = f"# TYPE hints counter\n{HINTS} 7.0\n"


class Heard(Answering):
    """One path, which notes what it is asked."""

    def __init__(self, asked: list[bytes]) -> None:
        super().__init__(asyncio.get_running_loop())
        self._asked = asked

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"GET"):
            self._transport.write(f"HTTP/1.1 200 OK\r\n\r\n{METRICS}".encode())
            self._transport.close()
            return
        self._asked.append(data)
        super().data_received(data)


@asynccontextmanager
async def paths() -> AsyncIterator[dict[int, list[bytes]]]:
    """What each of the ports is asked."""
    loop = asyncio.get_running_loop()
    heard: list[list[bytes]] = [[] for _ in PATHS]
    servers = [
        await loop.create_server(lambda asked=asked: Heard(asked), "127.0.0.1", 0)  # type: ignore[misc]
        for asked in heard
    ]
    yield {server.sockets[0].getsockname()[1]: asked for server, asked in zip(servers, heard, strict=True)}
    for server in servers:
        server.close()


@pytest.mark.asyncio
async def test_all_paths_are_asked_alike_and_the_one_that_learns_is_told_of_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routed_upstream, "APART_S", 0.0)
    monkeypatch.setattr(routed, "AT_ONCE", 4)
    monkeypatch.setattr(routed, "SESSIONS", 3)
    rounds: list[int] = []
    async with paths() as asked:
        found = await measure(list(asked), Load(rate=1000, seconds=0.05, rounds=2), lambda: rounds.append(1))
    assert (found.complete, found.hints, len(rounds)) == (True, 7, 2 * len(PATHS))
    assert found.added_p50_ms == pytest.approx(found.routed.p50_ms - found.direct.p50_ms, abs=1e-3)
    for path, heard in zip(PATHS, asked.values(), strict=True):
        assert getattr(found, path).requests == len(heard) - 2 * 2 * 4, "and two bursts a round"
        brought = [results_in(json.loads(one.partition(b"\r\n\r\n")[2])) for one in heard]
        assert set(brought) == {frozenset({"earlier"}), frozenset({CALL_ID})}
        assert brought.count(frozenset({"earlier"})) == 2 * (2 * 4 + 3), (
            "in each round, whoever is heard first"
        )
    shown = io.StringIO()
    show(found, Console(file=shown, width=150))
    assert "without learning" in shown.getvalue()
    assert json.loads(json.dumps(asdict(found)))["bar_ms"] == 1.0


def test_a_router_reads_of_every_answer_that_a_tool_was_called() -> None:
    seen = watch("/v1/chat/completions", "text/event-stream")
    for event in ANSWER:
        seen.see(event)
    end = seen.end()
    assert (end.reason, end.tools, end.calls) == ("tool_calls", (TOOL,), frozenset({CALL_ID}))


@pytest.mark.asyncio
async def test_a_hint_is_answered_at_once() -> None:
    async with paths() as asked:
        reader, writer = await asyncio.open_connection("127.0.0.1", next(iter(asked)))
        writer.write(b"POST /v1/sessions/a/pause HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")
        assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200")
        writer.close()

"""Spans of real processes: a router and a worker, one switch, one trace, and a collector that hears both."""

import signal
from pathlib import Path

import httpx2
import pytest

from tests.patience import PATIENCE_S
from tests.processes import running
from tests.spans import TRACE, TRACEPARENT, collecting

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]
WORDS = ("--engine", "accounting", "--port", "0", "--router-port", "0", "--grace-s", "1")


async def test_a_router_and_its_worker_tell_one_collector_of_one_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[str, bytes]] = []
    with collecting(heard) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
        folder = ("--router-dir", str(tmp_path / "router"))
        async with running("serve", "--with-router", "--otel", *WORDS, *folder, listens=3) as server:
            async with httpx2.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as http:
                body = {"prompt": "hi", "max_tokens": 2}
                answer = await http.post("/v1/completions", json=body, headers={"traceparent": TRACEPARENT})
                assert answer.status_code == 200, answer.text
            server.process.send_signal(signal.SIGTERM)
            assert await server.ended() == 0
    told = b"".join(body for path, body in heard if path == "/v1/traces")
    for service in (b"agentcache-router", b"agentcache-worker"):
        assert service in told
    assert told.count(bytes.fromhex(TRACE)) >= 6
    assert b"agentcache.place" in told
    assert b"agentcache.prefill" in told

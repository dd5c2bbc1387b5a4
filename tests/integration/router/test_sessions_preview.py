"""Previews of a close, as far as they go: large families, and clients that leave."""

import asyncio
from typing import Any

import pytest
import structlog

from agentcache.router import sessions_api
from agentcache.store.api import SessionRef
from tests.routing import Call, Routed, Upstream, opened_at, routing

pytestmark = pytest.mark.asyncio


async def opened(routed: Routed, **body: Any) -> None:
    assert (await routed.http.post("/v1/sessions", json=body)).status_code == 201


async def test_a_preview_of_a_large_family_shows_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    async with routing() as routed:
        await opened(routed, session_id="s")
        for number in range(6):
            await opened(routed, session_id=f"c{number}", parent="s")
        for shown, more in ((4, True), (6, True), (7, False), (8, False)):
            monkeypatch.setattr(sessions_api, "MAX_SHOWN", shown)
            preview = (await routed.http.delete("/v1/sessions/s?mode=preview")).json()
            assert (len(preview["children"]), preview["more"]) == (min(shown, 7) - 1, more)


async def test_a_preview_ends_with_its_client() -> None:
    async def never(_call: Call) -> None:
        await asyncio.Event().wait()

    async with Upstream(never).serving() as worker, routing() as routed:
        await routed.register("w1", worker.url)
        await routed.store.assign(*await opened_at(routed, SessionRef("default", "s"), "w1"))
        host, port = routed.url.removeprefix("http://").split(":")
        with structlog.testing.capture_logs() as lines:
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"DELETE /v1/sessions/s?mode=preview HTTP/1.1\r\nhost: router\r\n\r\n")
            asked = await worker.hears(1)
            writer.close()
            await asked.gone.wait()
            while not any(line.get("status") for line in lines):
                await asyncio.sleep(0)
        assert [line["status"] for line in lines if "status" in line] == [499]

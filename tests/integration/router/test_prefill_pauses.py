"""What is said of a session's next turn, where one worker computes its prompts and another answers them."""

import asyncio
from typing import Any

import pytest

from agentcache.engine.engine import Engine
from agentcache.ids import scoped
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.types import SessionId, Wait
from tests.integration.router.test_prefill_workers import MIB, PAIR, House, checkpoints, house, prompts

__all__ = ["checkpoints"]
pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]
NAMED = scoped("default", SessionId("s"))


async def test_both_order_by_a_pause_and_by_its_end(checkpoints: Any) -> None:
    async with house(checkpoints["full"], PAIR, MemoryStore(64 * MIB)) as split:
        assert (await split.turn(prompts()[0])).prefill.startswith("p;")
        await split.at_rest()
        assert await hints(split) == [False, False]
        pause = {"tool": "pytest", "expected_s": 600}
        answer = await split.routed.http.post("/v1/sessions/s/pause", json=pause)
        assert answer.status_code == 200
        assert await hints(split) == [True, True]
        for name in PAIR:
            paused = (await split.on(name, lambda engine: engine.cache.session(NAMED))).paused
            assert (paused.tool, paused.expected_s, paused.learned) == ("pytest", 600, name == "p")
        assert (await split.routed.http.post("/v1/sessions/s/resume", json={})).status_code == 200
        assert await hints(split) == [False, False]


async def hints(split: House) -> list[bool]:
    """Whether the order of each worker goes by what was said of its return."""

    def look(engine: Engine) -> Wait:
        return engine.cache._sessions.wait(NAMED)

    waits = await asyncio.gather(*(split.on(name, look) for name in PAIR))
    return [wait.hint_ns is not None for wait in waits]

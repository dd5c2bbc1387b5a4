"""The store in memory judges the one in Redis, over any history."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from agentcache.store.connect import connect
from agentcache.store.memory import MemoryStore
from agentcache.store.redis import RedisStore
from tests.contract.session_store_machine import REACHED, RULES, StoreMachine
from tests.sessionstores import Hours, Servers

MUST_REACH = (
    "Tagged expired",
    "Tagged closed",
    "Tagged stale",
    "Tagged unknown",
    "Opened cycle",
    "Opened fenced",
    "Opened parent_closed",
    "ClosedFamily already",
    "ClosedFamily stale",
    "done True",
    "swept offered",
    "swept expired",
    "swept closed",
    "swept lapsed",
    "swept again",
    "offered keep",
    "offered held",
    "offered closed",
    "offered gone",
    "answered close released",
    "gap",
    "lost",
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with closing(Servers(tmp_path_factory.mktemp("servers"))) as made:
        yield made


def play(url: str, examples: int, steps: int) -> None:
    """Play histories to both stores. A machine has a clock of its own; the connection serves them all."""
    with asyncio.Runner() as runner:
        current: list[Hours] = []

        def now_ms() -> int:
            return current[-1].now_ms()

        made: RedisStore = runner.run(connect(url, RULES, now_ms=now_ms))

        def pair(hours: Hours) -> tuple[Any, Any]:
            current.append(hours)
            epochs = (f"epoch {number}" for number in range(1_000_000))
            return MemoryStore(RULES, hours.now_ms, lambda: next(epochs)), made

        class Machine(StoreMachine):
            pass

        Machine.pair, Machine.runner = staticmethod(pair), runner
        try:
            run_state_machine_as_test(
                Machine,
                settings=settings(
                    max_examples=examples,
                    stateful_step_count=steps,
                    deadline=None,
                    phases=(Phase.generate,),
                    report_multiple_bugs=False,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(made.aclose())


@pytest.mark.timeout(120)
def test_any_history_is_answered_as_the_store_in_memory_answers_it(servers: Servers) -> None:
    REACHED.clear()
    play(servers.url("valkey"), examples=50, steps=80)
    assert not [name for name in MUST_REACH if not REACHED[name]]

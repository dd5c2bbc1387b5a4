"""The store in memory judges the one in Redis, over any history."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from agentcache.store.connect import connect
from agentcache.store.memory import MemoryStore
from agentcache.store.redis import RedisStore
from tests.contract.session_store_machine import REACHED, RULES, StoreMachine
from tests.property.reaching import reach
from tests.sessionstores import PATIENT_S, Hours, Servers

RARE = {
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
    "Tagged limited",
    "offered moved",
    "answered expire released",
    "answered expire busy",
    "lost",
    "told to fork",
    "lent",
}

HISTORIES = settings(
    max_examples=30,
    stateful_step_count=80,
    deadline=None,
    database=None,
    phases=(Phase.generate,),  # a history is as long as it is: to shrink one takes minutes
    suppress_health_check=list(HealthCheck),
)


def play(url: str, number: int) -> None:
    """Play histories to both stores. A machine has a clock of its own; the connection serves them all."""
    with asyncio.Runner() as runner:
        current: list[Hours] = []

        def now_ms() -> int:
            return current[-1].now_ms()

        made: RedisStore = runner.run(connect(url, RULES, now_ms=now_ms, call_s=PATIENT_S))

        def pair(hours: Hours) -> tuple[Any, Any]:
            current.append(hours)
            epochs = (f"epoch {number}" for number in range(1_000_000))
            return MemoryStore(RULES, hours.now_ms, lambda: next(epochs)), made

        class Machine(StoreMachine):
            pass

        Machine.pair, Machine.runner = staticmethod(pair), runner
        try:
            run_state_machine_as_test(seed(number)(Machine), settings=HISTORIES)
        finally:
            runner.run(made.aclose())


@pytest.mark.timeout(600)
def test_any_history_is_answered_as_the_store_in_memory_answers_it(servers: Servers) -> None:
    reach(lambda number: play(servers.url("valkey"), number), REACHED, RARE)

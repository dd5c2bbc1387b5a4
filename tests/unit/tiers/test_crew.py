"""The threads of an external tier: what goes first, and what hangs alone."""

import threading

from agentcache.tiers.crew import Crew, Lane

PATIENCE_S = 60.0


class Step:
    """Work of so many steps, which may be held at a gate, and says in `log` when each runs."""

    def __init__(
        self, name: str, log: list[str], steps: int = 1, gate: threading.Event | None = None
    ) -> None:
        self.live = True
        self.started = threading.Event()
        self.done = threading.Event()
        self._name = name
        self._log = log
        self._steps = steps
        self._gate = gate or threading.Event()
        if not gate:
            self._gate.set()

    def step(self) -> bool:
        self.started.set()
        assert self._gate.wait(PATIENCE_S)
        self._log.append(self._name)
        self._steps -= 1
        if not self._steps:
            self.done.set()
        return self._steps > 0


def test_what_somebody_waits_for_goes_first() -> None:
    log: list[str] = []
    crew = Crew(1)
    gate = threading.Event()
    store = Step("store", log, steps=2, gate=gate)
    crew.put(Lane.STORE, store)
    assert store.started.wait(PATIENCE_S)
    last = Step("upkeep", log)
    crew.put(Lane.UPKEEP, last)
    crew.put(Lane.STORE, Step("next store", log))
    crew.put(Lane.LOAD, Step("load", log, steps=2))
    crew.put(Lane.ASK, Step("ask", log))
    gate.set()
    assert last.done.wait(PATIENCE_S)
    assert log == ["store", "ask", "load", "load", "store", "next store", "upkeep"]
    crew.stop()


def test_stores_that_hang_leave_a_thread_for_loads() -> None:
    log: list[str] = []
    crew = Crew(3)
    gate = threading.Event()
    stores = [Step("store", log, gate=gate) for _ in range(4)]
    for store in stores:
        crew.put(Lane.STORE, store)
    assert stores[1].started.wait(PATIENCE_S)
    load = Step("load", log)
    crew.put(Lane.LOAD, load)
    assert load.done.wait(PATIENCE_S)
    assert not stores[2].started.is_set()
    gate.set()
    assert all(store.done.wait(PATIENCE_S) for store in stores)
    crew.stop()


def test_dead_work_is_forgotten_while_every_thread_hangs() -> None:
    log: list[str] = []
    crew = Crew(1)
    gate = threading.Event()
    first = Step("first", log, gate=gate)
    crew.put(Lane.LOAD, first)
    assert first.started.wait(PATIENCE_S)
    dead, alive = Step("dead", log), Step("alive", log)
    crew.put(Lane.LOAD, dead)
    crew.put(Lane.LOAD, alive)
    dead.live = False
    crew.prune()
    assert crew.queued == 1
    gate.set()
    assert alive.done.wait(PATIENCE_S)
    assert log == ["first", "alive"]
    crew.stop()


def test_stopping_starts_nothing_more_and_does_not_wait_for_what_hangs() -> None:
    log: list[str] = []
    crew = Crew(1)
    gate = threading.Event()
    hung = Step("hung", log, steps=2, gate=gate)
    crew.put(Lane.LOAD, hung)
    assert hung.started.wait(PATIENCE_S)
    crew.put(Lane.LOAD, Step("queued", log))
    crew.stop()
    crew.put(Lane.LOAD, Step("too late", log))
    crew.join(0.01)
    gate.set()
    crew.join(PATIENCE_S)
    assert log == ["hung"]
    assert crew.queued == 0

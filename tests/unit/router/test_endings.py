"""What is told to the store in the background: until it answers, and not for ever."""

import asyncio

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.router import endings as module
from agentcache.router.endings import RETRY_S, Endings

pytestmark = pytest.mark.asyncio


class Store:
    """Answers after so many failures."""

    def __init__(self, failures: int, kind: Kind = Kind.STORE_FAILED) -> None:
        self.calls = 0
        self._failures = failures
        self._kind = kind

    async def done(self) -> str:
        self.calls += 1
        if self.calls <= self._failures:
            raise CacheError(self._kind, "no")
        return "told"


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def endings(pauses: list[float]) -> Endings:
    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    return Endings(pause)


async def test_a_call_is_repeated_with_longer_pauses_until_it_is_answered(
    endings: Endings, pauses: list[float]
) -> None:
    assert await endings.insist(Store(3).done) == ("told",)
    assert pauses == list(RETRY_S[:3])


async def test_a_store_that_never_answers_is_left_alone_in_the_end(
    endings: Endings, pauses: list[float]
) -> None:
    store = Store(100)
    assert await endings.insist(store.done) == ()
    assert store.calls == len(RETRY_S) + 1
    assert pauses == list(RETRY_S)


async def test_a_refusal_is_no_reason_to_repeat(endings: Endings) -> None:
    store = Store(1, Kind.BAD_CONFIG)
    assert await endings.insist(store.done) == ()
    assert store.calls == 1


async def test_only_so_many_wait_for_a_store_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING", 2)
    waiting, up = asyncio.Event(), asyncio.Event()

    async def pause(_seconds: float) -> None:
        waiting.set()
        await up.wait()

    endings = Endings(pause)
    stores = [Store(1) for _ in range(3)]
    calls = [asyncio.ensure_future(endings.insist(store.done)) for store in stores[:2]]
    await waiting.wait()
    await asyncio.sleep(0)
    assert await endings.insist(stores[2].done) == ()
    up.set()
    assert await asyncio.gather(*calls) == [("told",), ("told",)]


async def test_what_is_begun_ends_although_its_caller_is_cancelled(endings: Endings) -> None:
    step, done = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await step.wait()
        done.set()

    async def caller() -> None:
        endings.begin(work())
        await asyncio.Event().wait()

    calling = asyncio.ensure_future(caller())
    while not endings.pending:
        await asyncio.sleep(0)
    calling.cancel()
    await asyncio.wait((calling,))
    step.set()
    await endings.drained(5)
    assert done.is_set()
    assert not endings.pending


async def test_the_end_waits_no_longer_than_it_is_told_to(endings: Endings) -> None:
    endings.begin(_for_ever())
    await endings.drained(0.01)
    assert not endings.pending


async def test_a_fault_is_told_in_the_log(endings: Endings, capsys: pytest.CaptureFixture[str]) -> None:
    async def broken() -> None:
        raise ValueError("a bug")

    endings.begin(broken())
    await endings.drained(5)
    await asyncio.sleep(0)
    assert "ending failed" in capsys.readouterr().out


async def _for_ever() -> None:
    await asyncio.Event().wait()

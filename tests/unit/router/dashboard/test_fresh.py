"""One making of each answer, however many ask, and none while nobody does."""

import asyncio
from collections import Counter

import pytest

from agentcache.clock import ManualClock
from agentcache.errors import CacheError, Kind
from agentcache.router.dashboard.fresh import Fresh

pytestmark = pytest.mark.asyncio
KEEP_NS = 2_000_000_000


class Maker:
    """Makes answers once it may."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.made: Counter[str] = Counter()

    async def make(self, key: str) -> str:
        self.made[key] += 1
        await self.may.wait()
        return f"{key} {self.made[key]}"


class Failing:
    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self) -> str:
        self.asked += 1
        raise CacheError(Kind.UPSTREAM_FAILED, "no answer")


def fresh(limit: int = 4) -> tuple[ManualClock, Fresh[str]]:
    clock = ManualClock(1)
    return clock, Fresh(clock, KEEP_NS / 1e9, limit)


async def test_all_who_ask_meanwhile_get_the_one_answer() -> None:
    _, answers = fresh()
    maker = Maker()
    asking = [asyncio.ensure_future(answers.get("a", lambda: maker.make("a"))) for _ in range(50)]
    await asyncio.sleep(0)
    maker.may.set()
    assert set(await asyncio.gather(*asking)) == {"a 1"}
    assert maker.made == {"a": 1}


async def test_an_answer_is_kept_for_a_while_from_when_its_making_began() -> None:
    clock, answers = fresh()
    maker = Maker()
    maker.may.set()
    assert await answers.get("a", lambda: maker.make("a")) == "a 1"
    clock.advance(KEEP_NS - 1)
    assert await answers.get("a", lambda: maker.make("a")) == "a 1"
    clock.advance(1)
    assert await answers.get("a", lambda: maker.make("a")) == "a 2"


async def test_who_leaves_ends_nothing_that_others_wait_for() -> None:
    _, answers = fresh()
    maker = Maker()
    first, second = (asyncio.ensure_future(answers.get("a", lambda: maker.make("a"))) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    maker.may.set()
    assert await second == "a 1"


async def test_a_failure_is_an_answer_too() -> None:
    _, answers = fresh()
    failing = Failing()
    for _ in range(3):
        with pytest.raises(CacheError, match="no answer"):
            await answers.get("a", failing)
    assert failing.asked == 1


async def test_of_too_many_views_the_last_is_refused_until_others_are_old() -> None:
    clock, answers = fresh(limit=2)
    maker = Maker()
    maker.may.set()
    for key in ("a", "b"):
        await answers.get(key, lambda key=key: maker.make(key))  # type: ignore[misc]
    with pytest.raises(CacheError) as refused:
        await answers.get("c", lambda: maker.make("c"))
    assert refused.value.kind is Kind.QUEUE_FULL
    clock.advance(KEEP_NS)
    assert await answers.get("c", lambda: maker.make("c")) == "c 1"
    assert len(answers) == 1

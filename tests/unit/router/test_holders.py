"""What workers hold of sessions: asked a few at a time, for as long as was said, and only where somebody listens."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.router import holders
from agentcache.router.fleet import WorkerView
from agentcache.router.holders import ASK_S, AT_ONCE, Holders, HolderView
from agentcache.router.upstream import Reply
from agentcache.store.api import SessionRef
from tests.patience import PATIENCE_S, pass_time, until

pytestmark = pytest.mark.asyncio
VIEWS = {
    "w1": WorkerView("w1", "http://w1"),
    "w2": WorkerView("w2", "http://w2"),
    "dead": WorkerView("dead", "http://dead", alive=False),
    "plain": WorkerView("plain", "http://plain", "sglang"),
}


@dataclass
class Workers:
    """Workers that answer, or never do; how many were asked at once, and for how long."""

    silent: set[str] = field(default_factory=set)
    body: bytes = b'{"state": "open", "markers": 1}'
    asked: Counter[str] = field(default_factory=Counter)
    running: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)

    async def get(self, url: str, headers: Mapping[str, str], wait_s: float) -> Reply:
        worker = url.removeprefix("http://").partition("/")[0]
        assert headers == {"authorization": f"Bearer {worker} at http://{worker}"}
        self.asked[worker] += 1
        self.running[worker] += 1
        self.most[worker] = max(self.most[worker], self.running[worker])
        self.waits.append(wait_s)
        try:
            async with asyncio.timeout(wait_s):
                await (asyncio.Event().wait() if worker in self.silent else asyncio.sleep(0))
        except TimeoutError:
            raise CacheError(Kind.UPSTREAM_FAILED, f"{url} gave no answer in time") from None
        finally:
            self.running[worker] -= 1
        return Reply(200, self.body)

    def holders(self, all_s: float) -> Holders:
        return Holders(VIEWS.get, self.get, "{} at {}".format, all_s)


def family(size: int, *holders: str) -> list[tuple[SessionRef, tuple[str, ...]]]:
    return [(SessionRef("t", str(number)), holders) for number in range(size)]


async def test_each_worker_is_asked_a_few_times_at_once_and_for_a_second_each() -> None:
    workers = Workers()
    answers = await workers.holders(60).ask_all([*family(100, "w1", "w2"), *family(1)])
    assert [tuple(one.worker for one in each) for each in answers] == [("w1", "w2")] * 100 + [()]
    assert {one.view for each in answers for one in each} == {HolderView("open", markers=1)}
    assert (dict(workers.most), set(workers.waits)) == ({"w1": AT_ONCE, "w2": AT_ONCE}, {ASK_S})


async def test_a_worker_that_does_not_answer_costs_all_that_time_once_and_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holders, "ASK_S", PATIENCE_S)
    workers = Workers({"w1"})
    asking = asyncio.ensure_future(workers.holders(PATIENCE_S).ask_all(family(100, "w1", "w2")))
    await until(lambda: workers.running == Counter(w1=AT_ONCE) and workers.asked["w2"] == 100)
    pass_time(PATIENCE_S)
    answers = await asking
    assert workers.asked["w1"] == AT_ONCE
    assert workers.asked["w2"] == 100
    said = Counter(one.said for each in answers for one in each)
    assert said == {
        "": 100,
        "it gave no answer": AT_ONCE,
        "not asked: there was no time left": 100 - AT_ONCE,
    }


async def test_who_cannot_answer_is_not_asked() -> None:
    workers = Workers()
    answers = await workers.holders(60).ask(SessionRef("t", "s"), ("dead", "plain", "gone", "w1"))
    assert [one.said for one in answers] == [
        "it is not alive",
        "it does not say what it holds",
        "no worker has this name now",
        "",
    ]
    assert workers.asked == {"w1": 1}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{\xff}",
        b"[" * 100_000,
        b'{"markers": "many"}',
        b'{"turns": [{"at": NaN}]}',
        b'{"turns": [{"at": 1e999}]}',
        b'{"wait": {"expected_s": Infinity}}',
    ],
)
async def test_an_answer_that_makes_no_sense_is_none(body: bytes) -> None:
    """What is no JSON could not be shown on."""
    (asked,) = await Workers(body=body).holders(60).ask(SessionRef("t", "s"), ("w1",))
    assert (asked.view, asked.said) == (HolderView(), "its answer makes no sense")

"""What others have written into the store and we cannot read hides nothing else."""

from typing import Any, cast

import msgspec
import pytest
import structlog

from agentcache.store.calls import Calls
from agentcache.store.redis_desk import RedisDesk
from agentcache.store.redis_fleet import RedisFleet, receipt_fields
from agentcache.wire import Notice, Order, Outcome, Receipt
from tests.sessionstores import card

pytestmark = pytest.mark.asyncio
GOOD = (card("w1"), card("w2"))
SAID = Receipt(Order.CLOSE, "t", "a", 7, "w1", Outcome.RELEASED, "op", "r1")


class Answering:
    """A store's server that answers one thing."""

    shards = 1

    def __init__(self, answer: object) -> None:
        self._answer = answer

    async def ask(self, *_asked: object) -> Any:
        return self._answer


def fleet(answer: object) -> RedisFleet:
    return RedisFleet(cast(Calls, Answering(answer)))


@pytest.mark.parametrize(
    "card",
    ['{"worker":"wx"}', "", "{", "[" * 200_000, '{"worker":1}'],
    ids=["short", "empty", "cut", "deep", "wrong"],
)
async def test_a_worker_whose_card_cannot_be_read_is_left_out_and_named_once(card: str) -> None:
    entries = [[_written(one), "", "1", 0, 1] for one in GOOD]
    looking = fleet([entries[0], [card, "", "1", 0, 1], entries[1]])
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            assert [entry.card.worker for entry in await looking.workers()] == ["w1", "w2"]
    assert [(line["event"], line["card"]) for line in lines] == [("worker_unreadable", card[:200])]


@pytest.mark.parametrize(
    "broken", [{"order": "sing"}, {"outcome": "odd"}, {"generation": "x"}, {"released": "["}]
)
async def test_a_receipt_that_cannot_be_read_is_a_failure_and_reading_goes_on_behind_it(
    broken: dict[str, str],
) -> None:
    good = receipt_fields(SAID)
    fields = [
        word
        for pair in ({**dict(zip(good[::2], good[1::2], strict=True)), **broken}).items()
        for word in pair
    ]
    (first, failed), (second, read) = await fleet([["1-0", fields], ["2-0", good]]).receipts("r1", "", 0)
    assert (first, second, read) == ("1-0", "2-0", SAID)
    assert (failed.session, failed.worker, failed.operation, failed.outcome) == (
        "a",
        "w1",
        "op",
        Outcome.FAILED,
    )


TOLD = {
    "order": "close",
    "tenant": "t",
    "session": "a",
    "generation": "7",
    "placement": "1",
    "mode": "drop",
    "operation": "op",
    "reply_to": "r1",
}


@pytest.mark.parametrize(
    "broken", [{"order": "sing"}, {"generation": "x"}, {"placement": ""}, {"tenant": None}, {"order": None}]
)
async def test_a_notice_that_cannot_be_read_is_left_out_and_named_and_reading_goes_on_behind_it(
    broken: dict[str, str | None],
) -> None:
    """Else a worker of an older version would never hear of a close again."""
    entries = [[at, _words({**TOLD, **said})] for at, said in (("1-0", broken), ("2-0", {}))]
    desk = RedisDesk(cast(Calls, Answering([0, "2-0", *entries])))
    with structlog.testing.capture_logs() as lines:
        mail = await desk.mail("w1", 0, "0-1", 0)
    assert mail.notices == (Notice(Order.CLOSE, "t", "a", 7, 1, "drop", "op", "r1", "2-0"),)
    assert mail.cursor == "2-0"
    assert [line["event"] for line in lines] == ["notice_unreadable"]


def _words(fields: dict[str, str | None]) -> list[str]:
    return [word for name, value in fields.items() if value is not None for word in (name, value)]


def _written(one: object) -> str:
    return msgspec.json.encode(one).decode()

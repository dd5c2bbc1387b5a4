"""A call whose answer was lost with the connection is sent once more, and the second answer is as good as the first."""

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from agentcache.embedded import ServerOptions, open_embedded
from agentcache.store.api import CloseVerdict, Closing, Opening, OpenVerdict, Store, Use
from tests.addresses import LostAnswers, served_by
from tests.sessionstores import CLOCK, A, Hours

pytestmark = pytest.mark.asyncio


class Lossy:
    """A store, and the line to it."""

    def __init__(self, store: Store, line: LostAnswers) -> None:
        self.store = store
        self.line = line

    async def open(self, opening: Opening) -> tuple[OpenVerdict, int]:
        self.line.lose = 1
        opened = await self.store.open(A, opening)
        assert not self.line.lose
        return opened.verdict, opened.generation


@pytest_asyncio.fixture
async def lossy(tmp_path: Path) -> AsyncIterator[Lossy]:
    with closing(open_embedded(tmp_path / "valkey", ServerOptions(), CLOCK)) as server:
        line = LostAnswers(server.socket)
        async with served_by(line.serve, tmp_path / "s", Hours().now_ms) as store:
            yield Lossy(store, line)


async def test_an_open_that_is_sent_again_says_that_it_created_the_session(lossy: Lossy) -> None:
    first = await lossy.open(Opening())
    assert first == (OpenVerdict.CREATED, (await lossy.store.look(A)).generation)
    assert await lossy.open(Opening()) == (OpenVerdict.UNCHANGED, first[1])


async def test_a_fence_that_is_sent_again_raises_once(lossy: Lossy) -> None:
    opened = await lossy.store.open(A, Opening())
    for above in (1, 2):
        fenced = (OpenVerdict.FENCED, opened.generation + above)
        assert await lossy.open(Opening(fence=True)) == fenced


async def test_a_request_that_is_tagged_again_is_in_flight_once(lossy: Lossy) -> None:
    lossy.line.lose = 1
    tagged = await lossy.store.tag(A, Use("r1"))
    assert (tagged.verdict, (await lossy.store.look(A)).in_flight) == ("opened", 1)


async def test_a_close_that_is_sent_again_was_done_already(lossy: Lossy) -> None:
    await lossy.store.open(A, Opening())
    lossy.line.lose = 1
    closed = await lossy.store.close(A, Closing())
    assert (closed.verdict, closed.closed) == (CloseVerdict.ALREADY, ())
    assert (await lossy.store.look(A)).state == "closed"

"""Which routers a worker belongs to, what it calls itself there, and settings that would leave it half tied."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from agentcache.config import Settings
from agentcache.errors import CacheError, Kind
from agentcache.web.headers import RequestHeaders
from agentcache.wire import TAG, ComponentCard, TagSigner
from agentcache.worker.context import Worker
from agentcache.worker.kv_publisher import NoPublisher
from agentcache.worker.link import NO_LINK
from agentcache.worker.linking import Alone, Member, membership
from agentcache.worker.serve import start_worker
from agentcache.worker.tagged import OPEN_GATE
from tests.accounting import SIZES
from tests.tagging import SECRET, Tagging

URL = "http://127.0.0.1:8100"


@pytest.fixture
def secret(tmp_path: Path) -> str:
    file = tmp_path / "secret"
    file.write_bytes(b"s" * 32 + b"\n")
    return str(file)


def settings(**changes: Any) -> Settings:
    return Settings.model_validate({"engine": "accounting", **SIZES, **changes})


def refused(said: str) -> pytest.RaisesExc[CacheError]:
    return pytest.RaisesExc(CacheError, match=said, check=lambda error: error.kind is Kind.BAD_CONFIG)


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[Worker]:
    one = start_worker(settings(), NoPublisher("incarnation"))
    yield one
    await one.thread.stop(0)


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"router_dir": "/r", "redis_url": "redis://h:1", "secret_file": "/s"}, "name one of them"),
        ({"redis_url": "redis://h:1"}, "secret_file"),
        ({"secret_file": "/s"}, "goes with redis_url"),
        ({"worker_id": "w"}, "worker_id is for routers"),
        ({"advertise_url": "http://h:1"}, "advertise_url is for routers"),
        ({"router_dir": "/r", "advertise_url": "h:1"}, "http://HOST:PORT"),
        ({"router_dir": "/r", "advertise_url": "http://h:1/path"}, "http://HOST:PORT"),
        ({"router_dir": "/r", "worker_id": "a b"}, "worker_id has letters"),
        ({"router_dir": "/r", "heartbeat_s": 0}, "heartbeat_s"),
    ],
)
def test_settings_that_leave_a_worker_half_tied_are_refused(said: dict[str, object], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        settings(**said)


def test_what_cannot_be_read_says_what_to_do(tmp_path: Path, secret: str) -> None:
    with refused("agentcache router --router-dir"):
        membership(settings(router_dir=str(tmp_path / "none")), URL)
    with refused("name the file that the routers use"):
        membership(settings(redis_url="redis://h:1", secret_file=str(tmp_path / "none")), URL)
    (tmp_path / "short").write_bytes(b"x")
    with refused("too short"):
        membership(settings(redis_url="redis://h:1", secret_file=str(tmp_path / "short")), URL)
    with refused("--advertise-url"):
        membership(settings(redis_url="redis://h:1", secret_file=secret, host="0.0.0.0"), URL)


@pytest.mark.asyncio
async def test_a_worker_without_a_router_stands_alone(worker: Worker) -> None:
    alone = membership(settings(), URL)
    assert isinstance(alone, Alone)
    assert alone.gate("1") is OPEN_GATE
    assert await alone.link(worker) is NO_LINK


@pytest.mark.asyncio
async def test_a_worker_is_called_by_its_address_or_as_it_is_told(worker: Worker, secret: str) -> None:
    named = [
        ({}, "127.0.0.1:8100", URL),
        ({"advertise_url": "http://[::1]:9"}, "[::1]:9", "http://[::1]:9"),
        ({"worker_id": "w-1", "advertise_url": "http://gate:80"}, "w-1", "http://gate:80"),
    ]
    for more, name, url in named:
        chosen = settings(redis_url="redis://localhost:1", secret_file=secret, host="0.0.0.0", **more)
        member = membership(chosen, URL)
        assert isinstance(member, Member)
        card = await worker.thread.call(partial(member.card, worker=worker))
        assert (card.worker, card.url) == (name, url)


@pytest.mark.asyncio
async def test_a_card_says_what_placement_needs(worker: Worker, secret: str) -> None:
    member = Member(settings(redis_url="redis://localhost:1", secret_file=secret, max_running=3), URL)
    card = await worker.thread.call(lambda engine: member.card(engine, worker))
    assert [part.rule for part in card.components] == ["path", "window", "checkpoint"]
    assert card.components[0] == ComponentCard("FULL", "path", 0)
    assert (card.page_tokens, card.grid_tokens) == (SIZES["page_tokens"], SIZES["grid_tokens"])
    assert (card.model, card.seats, card.queue_limit, card.incarnation) == ("tiny-all", 3, 64, "incarnation")
    home = await worker.thread.call(lambda engine: engine.namespace(""))
    assert card.namespace == (home.model, home.adapter, home.dtype, home.layout)


def test_the_gate_has_the_secret_of_the_file_and_the_workers_name(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET.hex().encode() + b"\n")
    member = Member(
        settings(redis_url="redis://h:1", secret_file=str(tmp_path / "secret"), worker_id="w1"), URL
    )
    tagging = Tagging(signer=TagSigner(SECRET.hex().encode()))
    sent = RequestHeaders([(TAG.encode(), tagging.signer.sign(tagging.tag("s", 7)).encode())])
    with pytest.RaisesExc(CacheError, match="compare the machines' clocks"):  # signed right, in another year
        member.gate("").admit(sent)

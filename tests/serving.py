"""A worker for tests: the real engine on a model of a few hundred thousand weights, driven without sockets."""

import asyncio
import json
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from agentcache.config import Settings
from agentcache.engine.adapter import build_random, make_config
from agentcache.engine.engine import Engine
from agentcache.engine.models import FULL, RECURRENT, WINDOW
from agentcache.engine.tokenizer import ASSETS
from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from agentcache.worker.kv_publisher import open_publisher
from agentcache.worker.serve import start_worker
from tests.chosen import CORE
from tests.patience import PATIENCE_S

CONTEXT_TOKENS = 4096
_FIELDS: dict[str, object] = {
    "vocab_size": 4096,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT_TOKENS,
    "initializer_range": 0.15,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "sliding_window": 32,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_conv_kernel_dim": 4,
}
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")


LAYERS = (RECURRENT, WINDOW, FULL)


def save_tiny_checkpoint(folder: Path, layers: Sequence[str] = LAYERS) -> Path:
    """A checkpoint directory with full attention, a window, a recurrent layer, and our own tokenizer."""
    fields = {**_FIELDS, "layer_types": list(layers), "num_hidden_layers": len(layers)}
    build_random(make_config("lara_mini", fields), seed=1).save_pretrained(folder)
    for name in _TOKENIZER:
        shutil.copy(ASSETS / name, folder / name)
    return folder


def tiny_settings(checkpoint: Path, **changes: Any) -> Settings:
    """Pages of 4 tokens, chunks of 32, and pools of a few hundred pages."""
    small = {
        "core": CORE,
        "page_tokens": 4,
        "grid_tokens": 32,
        "full_slots": 1024,
        "swa_slots": 256,
        "mamba_slots": 64,
        "l3_deadline_s": PATIENCE_S,  # a machine that stands still is no store that is late
        "prefetch_timeout_s": PATIENCE_S,
    }
    return Settings(**{"model": str(checkpoint), "threads": 1, **small, **changes})


def started_worker(checkpoint: Path, **changes: Any) -> Worker:
    """A worker whose engine thread runs. Caller: awaits `worker.thread.stop(0)` in the end, then
    closes `worker.events`."""
    settings = tiny_settings(checkpoint, **changes)
    return start_worker(settings, open_publisher(settings, uuid.uuid4().hex, time.time))


@asynccontextmanager
async def own_worker(checkpoint: Path, **changes: Any) -> AsyncIterator[Worker]:
    """A worker for one test, with settings of its own; nothing may be left when the test is done."""
    worker = started_worker(checkpoint, **changes)
    try:
        yield worker
        await leaves_nothing(worker)
    finally:
        await worker.thread.stop(0)
        worker.events.close()


def nothing_left(engine: Engine) -> None:
    """Nothing runs or waits, no slot is leased, no session is queued or running, and the cache is sound."""
    assert engine.active() == ()
    engine.cache.check()
    stats = engine.cache.stats()
    assert stats.active_turns == 0
    assert all(use.leased == use.in_flight == use.protected == 0 for use in stats.pools), stats.pools
    assert all(view.queued == view.running == 0 for view in engine.cache.sessions())


async def leaves_nothing(worker: Worker) -> None:
    """`nothing_left`, once the copies have ended that turns leave on their way to another tier."""
    async with asyncio.timeout(PATIENCE_S):
        while not await worker.thread.call(_nothing_left_unless_copying):
            await asyncio.sleep(0)


def _nothing_left_unless_copying(engine: Engine) -> bool:
    """False: it is copying, and was not looked at."""
    if engine.cache.stats().jobs_in_flight:
        return False
    nothing_left(engine)
    return True


def empty(engine: Engine) -> None:
    """Close every session and forget everything, whatever a test before this one has left."""
    for view in engine.cache.sessions():
        engine.cache.close_session(view.session)
    engine.cache.flush()


async def at_rest(worker: Worker) -> None:
    """Wait until nothing runs or waits there, of clients that have left neither."""
    async with asyncio.timeout(PATIENCE_S):
        while not await worker.thread.call(Engine.idle):
            await asyncio.sleep(0)


def no_references(engine: Engine) -> None:
    """No open session, no marker, no referenced slot."""
    stats = engine.cache.stats()
    assert stats.sessions.open == stats.open_references == 0
    assert all(use.referenced == 0 for use in stats.pools)


def client_of(worker: Worker) -> httpx2.AsyncClient:
    """An HTTP client that calls the application without sockets."""
    transport = httpx2.ASGITransport(create_app(worker))
    return httpx2.AsyncClient(transport=transport, base_url="http://worker", timeout=PATIENCE_S)


def sse(text: str) -> list[dict[str, Any]]:
    """The events of a stream, `[DONE]` checked and left out."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@dataclass
class Call:
    """One POST, held open: events as they come, and a client that can leave at any point."""

    app: Any
    path: str
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    sent: list[MutableMapping[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._left = asyncio.Event()
        self._news = asyncio.Condition()
        self._messages = iter([{"type": "http.request", "body": json.dumps(self.body).encode()}])
        self.task = asyncio.ensure_future(self.app(self._scope(), self._receive, self._send))

    async def until(self, enough: Callable[[list[MutableMapping[str, Any]]], bool]) -> None:
        """Wait until what was sent is `enough`."""
        async with self._news:
            await self._news.wait_for(lambda: enough(self.sent))

    async def leave(self) -> None:
        """Close the connection and wait for the application to be done with it."""
        self._left.set()
        await self.task

    @property
    def content(self) -> str:
        return b"".join(message.get("body", b"") for message in self.sent).decode()

    def _scope(self) -> dict[str, Any]:
        headers = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        scope = {"type": "http", "method": "POST", "path": self.path, "headers": headers, "query_string": b""}
        return scope | {"http_version": "1.1", "asgi": {"version": "3.0"}, "root_path": "", "scheme": "http"}

    async def _receive(self) -> MutableMapping[str, Any]:
        for message in self._messages:
            return message
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        async with self._news:
            self.sent.append(message)
            self._news.notify_all()

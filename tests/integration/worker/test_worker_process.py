"""A real worker process: the `openai` client, streams, disconnects, SIGTERM and Ctrl-C."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tests.patience import PATIENCE_S
from tests.processes import LOG_BYTES
from tests.serving import sse, tiny_settings

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]  # each starts a process that imports torch
WORDS = "the parser gets bytes where it wants text, and the tests say so; " * 4
LEFT = 'agentcache_requests_total{route="/v1/completions",status="499"} 1.0'
LONG: dict[str, Any] = {"prompt": [5] * 8, "max_tokens": 4000, "ignore_eos": True, "stream": True}


@dataclass
class Running:
    """A started worker and where it listens."""

    process: Process
    url: str
    banner: str

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.wait(), PATIENCE_S)


@asynccontextmanager
async def serving(checkpoint: Path, *more: str) -> AsyncIterator[Running]:
    """`agentcache serve` on a free port, once it listens; killed if it is still there at the end."""
    process = await _started(checkpoint, *more)
    try:
        banner = await _until_listening(process)
        yield Running(process, banner.split("listening on ")[1].strip(), banner)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _started(checkpoint: Path, *more: str) -> Process:
    settings = tiny_settings(checkpoint).model_dump()
    names = ("model", "threads", "page_tokens", "grid_tokens", "full_slots", "swa_slots", "mamba_slots")
    flags = [word for name in names for word in (f"--{name.replace('_', '-')}", str(settings[name]))]
    command = ("-m", "agentcache", "serve", "--port", "0", *flags, *more)
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=PIPE, stderr=PIPE, limit=LOG_BYTES
    )


async def _until_listening(process: Process) -> str:
    said = ""
    assert process.stdout
    while "listening on " not in said:
        line = (await process.stdout.readline()).decode()
        assert line, (await process.communicate())[1].decode()
        said += line
    return said


async def test_the_openai_client_sees_cached_tokens_grow(checkpoint: Path) -> None:
    async with serving(checkpoint) as running:
        assert "random" not in running.banner
        assert "FULL 1,024 pages" in running.banner
        assert f"curl -s {running.url}/v1/chat/completions" in running.banner
        async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none") as client:
            cached = [await _streamed_turn(client, turns) for turns in (1, 2, 3)]
            assert cached[0] == 0 < cached[1] < cached[2]
            with pytest.raises(openai.BadRequestError) as refused:
                await client.completions.create(model="any", prompt="hi", n=2)
            assert refused.value.param == "n"
            assert [model.id async for model in client.models.list()] == ["tiny"]
        async with httpx2.AsyncClient(base_url=running.url, timeout=PATIENCE_S) as http:
            assert (await http.delete("/v1/sessions/agent")).json()["markers"] > 0
            assert (await http.get("/v1/sessions")).json()["open_references"] == 0
            await _hang_up(http)
        running.process.send_signal(signal.SIGTERM)
        assert await running.ended() == 0


async def test_sigterm_lets_streams_end_and_takes_no_new_work(checkpoint: Path) -> None:
    async with (
        serving(checkpoint, "--grace-s", str(PATIENCE_S)) as running,
        httpx2.AsyncClient(base_url=running.url, timeout=PATIENCE_S) as http,
    ):
        body = {**LONG, "max_tokens": 300}
        async with http.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.aiter_lines()
            first = await anext(lines)
            async with http.stream(
                "POST", "/v1/completions", json=LONG
            ) as longer:  # else it may be gone too soon
                await anext(longer.aiter_lines())
                running.process.send_signal(signal.SIGTERM)
                while (await http.get("/ready")).status_code != 503:
                    pass
                refused = await http.post("/v1/completions", json={"prompt": "hi"})
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            rest = [line async for line in lines]
        events = sse("\n\n".join([first, *(line for line in rest if line)]) + "\n\n")
        assert events[-1]["choices"][0]["finish_reason"] == "length"
        assert await running.ended() == 0


@pytest.mark.parametrize(("sent", "grace_s"), [(signal.SIGTERM, "0"), (signal.SIGINT, "60")])
async def test_streams_are_cut_after_the_grace_or_by_a_second_signal(
    checkpoint: Path, sent: signal.Signals, grace_s: str
) -> None:
    async with (
        serving(checkpoint, "--grace-s", grace_s) as running,
        httpx2.AsyncClient(base_url=running.url, timeout=PATIENCE_S) as http,
        http.stream("POST", "/v1/completions", json=LONG) as answer,
    ):
        lines = answer.aiter_lines()
        await anext(lines)
        running.process.send_signal(sent)
        if grace_s != "0":
            while (await http.get("/ready")).status_code != 503:
                pass
            running.process.send_signal(sent)
        last = [line async for line in lines if line][-1]
        assert '"code":"shutting_down"' in last
        assert await running.ended() == 0


async def _hang_up(http: httpx2.AsyncClient) -> None:
    """Leave in the middle of a stream and see its turn end."""
    async with http.stream("POST", "/v1/completions", json=LONG) as answer:
        await anext(answer.aiter_lines())
    told: list[str] = []
    while not {"agentcache_num_running_reqs 0.0", LEFT}.issubset(told):
        told = (await http.get("/metrics")).text.splitlines()


async def _streamed_turn(client: openai.AsyncOpenAI, turns: int) -> int:
    """Stream one greedy turn of a session; how many of its prompt tokens were cached."""
    stream = await client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": f"{number}. {WORDS}"} for number in range(turns)],
        max_tokens=8,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_headers={"x-agentcache-session": "agent"},
    )
    usage = None
    async for chunk in stream:
        usage = chunk.usage or usage
    assert usage
    assert usage.prompt_tokens_details
    return usage.prompt_tokens_details.cached_tokens or 0


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_while_the_model_loads_ends_it_well(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: signal.Signals
) -> None:
    never = "import threading\nthreading.Event().wait()\n"
    (tmp_path / "transformers.py").write_text(never)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = await _started(checkpoint)
    assert process.stderr
    assert b"loading" in await asyncio.wait_for(process.stderr.readline(), 2 * PATIENCE_S)
    process.send_signal(sent)
    said, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert (process.returncode, said) == (0, b"")

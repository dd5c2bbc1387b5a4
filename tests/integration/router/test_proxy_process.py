"""The router as a process: its banner and exit codes, several behind one port, what it leaves behind when it dies,
and real workers that join it."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from agentcache import wire
from agentcache.router.standing import STORE_DOWN
from tests.patience import PATIENCE_S
from tests.ports import free_ports
from tests.processes import all_gone, children, running
from tests.routing import DONE, Call, Upstream, begin_stream, plain_answer

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]
COUNTED = 'agentcache_router_requests_total{route="/v1/completions",status="200"} 12.0'
LATE = "none"
"""The state of a session of which the store said nothing in half a second. The answer says so; it is asked again."""
ACCOUNTING = ("serve", "--port", "0", "--engine", "accounting")


PATIENT = ("--worker-s", str(PATIENCE_S), "--close-wait-s", "30")


def router(folder: Path, *more: str) -> tuple[str, ...]:
    return ("router", "--port", "0", "--router-dir", str(folder / "router"), *PATIENT, *more)


async def test_a_router_says_what_clients_set_and_ends_with_its_server_on_sigterm(tmp_path: Path) -> None:
    async with (
        running(*router(tmp_path)) as started,
        httpx2.AsyncClient(base_url=started.url, timeout=PATIENCE_S) as http,
    ):
        assert f"OPENAI_BASE_URL={started.url}/v1" in started.banner
        assert f"agentcache serve --router-dir {tmp_path / 'router'}" in started.banner
        assert (await http.get("/health")).json() == {"status": "ok"}
        assert (await http.get("/ready")).status_code == 503
        below = children(started.process.pid)
        assert below
        started.process.send_signal(signal.SIGTERM)
        assert await started.ended() == 0
        await all_gone(below)
    assert (tmp_path / "router" / "secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("command", ["router", "worker", "several"])
async def test_a_log_that_cannot_be_written_keeps_nobody_from_serving_or_ending(
    tmp_path: Path, command: str
) -> None:
    words = {
        "router": router(tmp_path),
        "several": router(tmp_path, "--workers", "2"),
        "worker": (*ACCOUNTING, "--grace-s", "1"),
    }[command]
    with Path("/dev/full").open("w") as full:
        async with (
            running(*words, stderr=full.fileno()) as started,
            httpx2.AsyncClient(base_url=started.url, timeout=PATIENCE_S) as http,
        ):
            for path in ("/health", "/nothing", "/v1/models"):
                assert (await http.get(path)).status_code < 500
            started.process.send_signal(signal.SIGTERM)
            assert await started.ended() == 0


async def test_sigterm_lets_streams_end_and_takes_no_new_work(tmp_path: Path) -> None:
    step = asyncio.Event()

    async def halfway(call: Call) -> None:
        await begin_stream(call)
        await call.chunk(b"data: 1\n\n")
        await step.wait()
        await call.chunk(DONE)
        await call.chunk(b"")

    async with (
        Upstream(halfway).serving() as upstream,
        running(
            *router(tmp_path, "--upstream", f"openai={upstream.url}", "--grace-s", str(PATIENCE_S))
        ) as started,
        httpx2.AsyncClient(base_url=started.url, timeout=PATIENCE_S) as http,
    ):
        async with http.stream("POST", "/v1/completions", json={"stream": True}) as answer:
            parts = answer.aiter_raw()
            assert await anext(parts) == b"data: 1\n\n"
            started.process.send_signal(signal.SIGTERM)
            while "shutting_down" not in (await http.get("/ready")).text:
                pass
            refused = await http.post("/v1/completions", json={})
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            step.set()
            assert b"".join([part async for part in parts]) == DONE
        assert await started.ended() == 0


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
async def test_several_processes_share_the_port_and_end_with_the_first(
    tmp_path: Path, sent: signal.Signals
) -> None:
    async with (
        Upstream(plain_answer).serving() as upstream,
        running(*router(tmp_path, "--workers", "2", "--upstream", f"openai={upstream.url}")) as started,
    ):
        answers = [await answered(started.url) for _ in range(12)]
        assert {answer.status_code for answer in answers} == {200}
        assert (
            len({answer.headers[wire.GENERATION] for answer in answers if not is_late(answer.headers)}) == 1
        )
        async with httpx2.AsyncClient(base_url=started.url, timeout=PATIENCE_S) as http:
            async with asyncio.timeout(PATIENCE_S):
                while COUNTED not in (await http.get("/metrics")).text:
                    pass  # the process that answered last counts after its answer
        below = children(started.process.pid)
        started.process.send_signal(sent)
        assert await started.ended() == (0 if sent is signal.SIGTERM else -sent)
        await all_gone(below)


def is_late(headers: Mapping[str, str]) -> bool:
    """Whether an answer was given without its session, and says that this was for the store."""
    state, why = headers.get(wire.STATE), headers.get(wire.WHY)
    assert (state == LATE) == (why == STORE_DOWN), (state, why)
    return state == LATE


async def answered(url: str, **body: object) -> httpx2.Response:
    """By whichever process takes the connection; one that has not heard of its upstream for a second is asked again."""
    while True:
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as http:
            answer = await http.post("/v1/completions", json=body, headers={"x-session-id": "s"})
        if answer.status_code != 503:
            return answer


async def test_sessions_outlive_a_killed_router_unless_it_is_told_to_forget_them(tmp_path: Path) -> None:
    async with Upstream(plain_answer).serving() as upstream:
        seen = []
        for more in ((), (), ("--forget-sessions",)):
            async with (
                running(*router(tmp_path, "--upstream", f"openai={upstream.url}", *more)) as started,
                httpx2.AsyncClient(base_url=started.url, timeout=PATIENCE_S) as http,
            ):
                while is_late((answer := await answered(started.url)).headers):
                    pass
                seen.append(int(answer.headers[wire.GENERATION]))
                await http.get("/v1/sessions")
                await asyncio.to_thread(_written, tmp_path / "router")
                below = children(started.process.pid)
                started.process.kill()
                await started.ended()
                await all_gone(below)
    assert seen[0] == seen[1] < seen[2]


def _written(folder: Path) -> None:
    """Wait until the server has written its log to disk, which it does each second."""
    logs = list(folder.glob("appendonlydir/*.incr.aof"))
    assert logs
    while not any(b"ac:" in log.read_bytes() for log in logs):
        pass


async def test_a_port_that_is_taken_is_told_in_one_line(tmp_path: Path) -> None:
    async with Upstream().serving() as other:
        port = other.url.rsplit(":")[-1]
        for more in ((), ("--workers", "2")):
            words = ("-m", "agentcache", *router(tmp_path, *more, "--port", port))
            process = await asyncio.create_subprocess_exec(sys.executable, *words, stderr=PIPE)
            said = (await process.communicate())[1].decode()
            assert process.returncode == 2
            assert f"port {port}" in said
            assert "Traceback" not in said


async def test_workers_join_a_router_and_sessions_live_through_it(tmp_path: Path) -> None:
    joined = ("--router-dir", str(tmp_path / "router"))
    async with (
        running(*router(tmp_path)) as started,
        running(*ACCOUNTING, *joined) as one,
        running(*ACCOUNTING, *joined) as two,
        openai.AsyncOpenAI(base_url=f"{started.url}/v1", api_key="none") as client,
        httpx2.AsyncClient(base_url=started.url, timeout=PATIENCE_S) as http,
    ):
        await _until_workers(http, 2)
        said: list[Any] = [{"role": "user", "content": "the parser gets bytes where it wants text; " * 40}]
        workers, cached = list[str](), list[int]()
        while len(workers) < 3:
            raw = await client.chat.completions.with_raw_response.create(
                model="any", messages=said, max_tokens=4, extra_headers={"x-agentcache-session": "agent"}
            )
            answer = raw.parse()
            late = is_late(raw.headers)
            assert late or raw.headers[wire.STATE] == "open"
            workers += [] if late else [raw.headers[wire.WORKER]]
            details = answer.usage.prompt_tokens_details if answer.usage else None
            cached.append((details.cached_tokens if details else None) or 0)
            said += [
                {"role": "assistant", "content": answer.choices[0].message.content or ""},
                {"role": "user", "content": "go on"},
            ]
        assert len(set(workers)) == 1
        assert cached[0] == 0 < cached[-1]
        assert cached[1] or len(cached) > len(workers), "who is late has no worker of its own"
        direct = await http.post(f"{one.url}/v1/completions", json={"prompt": "hi"})
        assert direct.status_code == 401
        closed = (await http.delete("/v1/sessions/agent")).json()
        assert closed["state"] == "closed"
        while True:
            after = await http.post(
                "/v1/completions",
                json={"prompt": "hi", "max_tokens": 2},
                headers={"x-agentcache-session": "agent"},
            )
            if not is_late(after.headers):
                break
        assert (after.status_code, after.headers[wire.STATE]) == (200, "closed")
        victim = one if workers[0] == one.url.removeprefix("http://") else two
        victim.process.kill()
        again = await http.post(
            "/v1/completions",
            json={"prompt": "hi", "max_tokens": 2},
            headers={"x-agentcache-session": "next"},
        )
        assert again.status_code == 200


async def _until_workers(http: httpx2.AsyncClient, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await http.get("/ready")).json().get("workers") != count:
            await asyncio.sleep(0)


async def test_a_worker_brings_its_own_router_and_takes_it_along(tmp_path: Path) -> None:
    (number,) = free_ports(1)
    port = str(number)
    words = (*ACCOUNTING, "--with-router", "--router-port", port, "--router-dir", str(tmp_path / "router"))
    async with running(*words, listens=3) as started:
        assert started.url == f"http://127.0.0.1:{port}"
        assert started.banner.splitlines()[-1] == f"router listening on {started.url}"
        while is_late((answer := await answered(started.url, prompt="hi", max_tokens=2)).headers):
            pass
        assert (answer.status_code, answer.headers[wire.STATE]) == (200, "open")
        below = children(started.process.pid)
        started.process.send_signal(signal.SIGTERM)
        assert await started.ended() == 0
        await all_gone(below)

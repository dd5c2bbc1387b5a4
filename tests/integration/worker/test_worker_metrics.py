"""What `/metrics` counts is what the answers said: each request once, whatever it waited for."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from tests.serving import Call, client_of, own_worker

pytestmark = pytest.mark.asyncio
TEXT = "/v1/completions"
Figures = dict[tuple[str, tuple[str, ...]], float]


async def scrape(client: httpx2.AsyncClient) -> Figures:
    """Every sample without our prefix, by name and label values, labels in alphabetical order."""
    text = (await client.get("/metrics")).text
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    return {
        (s.name.removeprefix("agentcache_"), tuple(value for _, value in sorted(s.labels.items()))): s.value
        for s in samples
    }


async def post(client: httpx2.AsyncClient, tokens: list[int], **more: Any) -> dict[str, Any]:
    body = {"prompt": tokens, "max_tokens": 5, "ignore_eos": True, "temperature": 0, **more}
    answer = await client.post(TEXT, json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_totals_are_the_sums_of_the_answers(checkpoint: Path) -> None:
    """R190, R191: prompt, cached and generated tokens, and every reason for a miss by its component."""
    async with own_worker(checkpoint) as worker, client_of(worker) as client:
        base = list(range(100, 300))
        prompts = [base, base, [*base, *range(400, 500)], [*base[:70], *range(500, 530)]]
        answers = [await post(client, prompt) for prompt in prompts]
        await post(client, base, agentcache={"reuse": False})
        usages = [answer["usage"] for answer in answers]
        figures = await scrape(client)
        hits = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
        assert hits[1] == 192
        assert figures["prompt_tokens_total", ()] == sum(usage["prompt_tokens"] for usage in usages)
        assert figures["cached_tokens_total", ("device",)] == sum(hits)
        assert figures["cache_hit_rate", ()] == sum(hits) / figures["prompt_tokens_total", ()]
        assert figures["generation_tokens_total", ()] == 5 * 5
        assert figures["prefill_tokens_total", ()] == sum(map(len, prompts)) - sum(hits) + len(base)
        said = [answer["agentcache"]["why"] for answer in answers]
        misses = {key[1]: count for key, count in figures.items() if key[0] == "cache_misses_total"}
        assert sum(misses.values()) == sum(why != "full hit" for why in said)
        assert all(
            any(why.startswith(f"{reason} {component} at ") for why in said) for component, reason in misses
        )
        assert figures["finished_requests_total", ("length",)] == 5


async def test_a_request_whose_client_left_is_counted_as_such(checkpoint: Path) -> None:
    """R062: it is in no other count, and its slots are free or evictable again."""
    async with own_worker(checkpoint) as worker, client_of(worker) as client:
        body = {"prompt": [5] * 80, "max_tokens": 3900, "ignore_eos": True, "stream": True}
        call = Call(create_app(worker), TEXT, body)
        with capture_logs() as lines:
            await call.until(lambda sent: len(sent) > 3)
            await call.leave()
        [told] = [line for line in lines if line["event"] == "request"]
        assert (told["reason"], told["status"]) == ("client_gone", 499)
        assert 2 <= told["completion_tokens"] < 3900
        await until_idle(worker)
        figures = await scrape(client)
        assert figures["finished_requests_total", ("client_gone",)] == 1
        assert figures["requests_total", (TEXT, "499")] == 1
        assert figures["num_running_reqs", ()] == figures["active_turns", ()] == 0
        for component in ("FULL", "SWA", "MAMBA"):
            states = {
                state: figures["pool_slots", (component, state, "device")]
                for state in ("size", "free", "cached")
            }
            assert states["free"] + states["cached"] == states["size"]


async def until_idle(worker: Worker) -> None:
    while not await worker.thread.call(lambda engine: engine.idle()):
        await asyncio.sleep(0)

"""What a scrape says: sums of the same requests stand side by side, and what placement rests on is told."""

from dataclasses import replace

import pytest

from agentcache.router.feed import Feeds
from agentcache.router.gauges import Placement
from agentcache.router.metrics import Facts, RouterMetrics, Times, Tokens
from tests.choosing import Table
from tests.fleets import card_of
from tests.routing import routing


def lines(metrics: RouterMetrics) -> list[str]:
    return metrics.render((), store_up=True).decode().splitlines()


def passed(tokens: Tokens) -> Facts:
    return Facts("/v1/completions", Times(1), status=200, tokens=tokens)


def test_best_predicted_and_delivered_are_of_the_same_requests() -> None:
    metrics = RouterMetrics()
    metrics.count_passed(passed(Tokens(prompt=100, best=80, predicted=64, cached=60)))
    metrics.count_passed(passed(Tokens(prompt=100, cached=90)))  # bound: nobody looked
    metrics.count_passed(passed(Tokens(prompt=100, best=80, predicted=80)))  # its answer does not say
    told = lines(metrics)
    for what, count in {"best": 80, "predicted": 64, "delivered": 60}.items():
        assert f'agentcache_router_cached_tokens_total{{what="{what}"}} {count}.0' in told
    assert "agentcache_router_reused_tokens_total 150.0" in told
    assert "agentcache_router_prompt_tokens_total 200.0" in told


@pytest.mark.asyncio
async def test_what_placement_rests_on_is_told() -> None:
    async with Table(card_of("b")) as table:
        sources = table.chooser.sources
        feeds = Feeds(sources.index, lambda: 0)
        try:
            await feeds.sync([card_of("a", events_url="tcp://127.0.0.1:9"), card_of("b")])
            feeds.states()["a"].gaps = 3
            table.tokenizing.counts.asked = 2
            metrics = RouterMetrics()
            metrics.add(Placement(replace(sources, feeds=feeds)))
            told = lines(metrics)
        finally:
            await feeds.close()
    assert 'agentcache_router_events_followed{mode="degraded",worker="a"} 1.0' in told
    assert 'agentcache_router_events_followed{mode="own decisions",worker="b"} 1.0' in told
    for what, count in {"messages": 0, "gaps": 3, "replays": 0, "failed_replays": 0, "unreadable": 0}.items():
        assert f'agentcache_router_events{{what="{what}",worker="a"}} {count}.0' in told
    assert 'agentcache_router_events_lag_seconds{worker="a"} 0.0' in told
    assert 'agentcache_router_index_pages{what="known"} 0.0' in told
    assert 'agentcache_router_index_pages{what="dropped"} 0.0' in told
    assert 'agentcache_router_tokenizing{what="asked"} 2.0' in told
    assert 'agentcache_router_tokenizing{what="failed"} 0.0' in told


@pytest.mark.asyncio
async def test_a_routers_metrics_tell_it() -> None:
    async with routing() as routed:
        text = (await routed.http.get("/metrics")).text
    assert 'agentcache_router_index_pages{what="known"} 0.0' in text.splitlines()

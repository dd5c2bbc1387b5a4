"""Hit rates of what came between two looks, where workers go, come back and start anew: by hand."""

import json
from collections.abc import Sequence

import pytest
from rich.console import Console

from agentcache.errors import CacheError, Kind
from agentcache.top.command import Way, World, show
from agentcache.top.fetching import Said

URL = "http://router:8000"
Counted = tuple[int, int]
"""Tokens of prompts, and of these from the device; a third count is from the host."""
Workers = dict[str, tuple[int, ...] | None]
"""By name what was counted; None: listed, and not reached."""


def worker_metrics(prompt: int, device: int, host: int = 0) -> str:
    return f"""
# TYPE agentcache_sessions_open gauge
agentcache_sessions_open 0.0
# TYPE agentcache_prompt_tokens counter
agentcache_prompt_tokens_total {prompt}.0
# TYPE agentcache_cached_tokens counter
agentcache_cached_tokens_total{{cache_source="device"}} {device}.0
agentcache_cached_tokens_total{{cache_source="host"}} {host}.0
"""


def router_metrics(prompt: int, reused: int) -> str:
    return f"""
# TYPE agentcache_router_workers gauge
agentcache_router_workers{{state="usable"}} 1.0
# TYPE agentcache_router_prompt_tokens counter
agentcache_router_prompt_tokens_total {prompt}.0
# TYPE agentcache_router_reused_tokens counter
agentcache_router_reused_tokens_total {reused}.0
"""


class Servers:
    """A router and its workers, who say at each look what is written for it."""

    def __init__(self, looks: Sequence[Workers], own: Sequence[Counted] = ()) -> None:
        self._looks = looks
        self._own = own or [(0, 0)] * len(looks)
        self._at = -1

    def fetch(self, base: str, path: str) -> Said:
        if base != URL:
            counted = self._looks[self._at][base.removeprefix("http://")]
            if not counted:
                raise CacheError(Kind.UNREACHABLE, "nobody")
            return Said(200, worker_metrics(*counted))
        if path == "/metrics":
            self._at += 1
            return Said(200, router_metrics(*self._own[self._at]))
        listed = [
            {"id": name, "url": f"http://{name}", "kind": "agentcache", "alive": True, "state": "alive"}
            for name in self._looks[self._at]
        ]
        return Said(200, json.dumps({"data": listed if path == "/v1/workers" else []}))

    def rates(self, capsys: pytest.CaptureFixture[str]) -> list[dict[str, float | None] | None]:
        """What `top --json` says of lately, look by look."""
        left = iter(self._looks[1:])

        def sleep(_seconds: float) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            show(World(self.fetch, lambda: 0.0, sleep, Console()), URL, Way(json=True))
        return [json.loads(line)["hit_rate_lately"] for line in capsys.readouterr().out.splitlines()]


def lately(capsys: pytest.CaptureFixture[str], *looks: Workers, own: Sequence[Counted] = ()) -> list[object]:
    """Of all tiers, after the first look."""
    first, *rates = Servers(looks, own).rates(capsys)
    assert first is None
    return [rate["all"] if rate else rate for rate in rates]


def test_rates_are_of_what_came_meanwhile_by_tier(capsys: pytest.CaptureFixture[str]) -> None:
    looks: list[Workers] = [{"a": (100, 10), "b": (50, 50)}, {"a": (200, 60, 30), "b": (150, 75)}]
    _, rates = Servers(looks).rates(capsys)
    assert rates == {"all": 0.525, "device": 0.375, "host": 0.15, "external": 0.0}
    assert lately(capsys, *looks, looks[-1]) == [0.525, None]


def test_a_worker_that_goes_takes_nothing_away(capsys: pytest.CaptureFixture[str]) -> None:
    assert lately(capsys, {"a": (1000, 900), "b": (0, 0)}, {"b": (400, 100)}) == [0.25]
    assert lately(capsys, {"a": (1000, 900), "b": (0, 0)}, {"a": None, "b": (1400, 350)}) == [0.25]


def test_a_worker_that_comes_back_is_counted_on(capsys: pytest.CaptureFixture[str]) -> None:
    back: Workers = {"a": (1100, 950), "b": (500, 100)}
    assert lately(capsys, {"a": (1000, 900), "b": (0, 0)}, {"b": (400, 100)}, back) == [0.25, 0.25]
    assert lately(capsys, {"a": (1000, 900), "b": (0, 0)}, {"a": None, "b": (400, 100)}, back) == [0.25, 0.25]


def test_a_worker_that_starts_anew_counts_from_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert lately(capsys, {"a": (1000, 900), "b": (5000, 0)}, {"a": (80, 20), "b": (5020, 5)}) == [0.25]


def test_a_worker_that_nobody_saw_before_counts_from_what_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    looks: list[Workers] = [
        {"a": (0, 0)},
        {"a": (100, 25), "b": (900, 900)},
        {"a": (100, 25), "b": (1000, 900)},
    ]
    assert lately(capsys, *looks) == [0.25, 0.0]


def test_a_routers_own_counts_are_compared_with_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    seen: Workers = {"a": (5000, 4000)}
    looks: list[Workers] = [seen, {"a": None}, {"a": None}, {"a": (5100, 4075)}, {}]
    own = [(300, 60), (400, 110), (10, 4), (110, 4), (210, 94)]
    assert lately(capsys, *looks, own=own) == [0.5, 0.4, 0.75, 0.9]
    _, away, *_ = Servers(looks, own).rates(capsys)
    assert away == {"all": 0.5}, "a router knows no tiers"

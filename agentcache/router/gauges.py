"""What placement rests on, as the process that is asked sees it: events followed, pages known, prompts tokenized."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agentcache.router.choosing import Sources
from agentcache.router.metrics import NAMESPACE

_COUNTED: Final = ("messages", "gaps", "replays", "failed_replays", "unreadable")


class Placement(Collector):
    """Sums are since this process began. They are gauges: of several processes behind a port another may answer."""

    def __init__(self, sources: Sources) -> None:
        self._from = sources

    def collect(self) -> Iterator[Metric]:
        states = self._from.feeds.states()
        followed = GaugeMetricFamily(
            f"{NAMESPACE}_events_followed", "1 for what predictions rest on", labels=["worker", "mode"]
        )
        events = GaugeMetricFamily(
            f"{NAMESPACE}_events",
            "Placement events of a worker, and what went wrong",
            labels=["worker", "what"],
        )
        lag = GaugeMetricFamily(
            f"{NAMESPACE}_events_lag_seconds", "Age of the last one when it was read", labels=["worker"]
        )
        for worker, state in states.items():
            followed.add_metric([worker, state.mode.value], 1)
            lag.add_metric([worker], state.lag_s)
            for what in _COUNTED:
                events.add_metric([worker, what], getattr(state, what))
        yield from (followed, events, lag)
        index = self._from.index
        pages = {"known": index.pages, "dropped": index.dropped_pages}
        yield _by_what("index_pages", "Pages known of all workers, and given up for the budget", pages)
        yield _by_what(
            "prefills",
            "Prompts for decode workers, computed ahead or why not",
            dict(self._from.prefills.counts),
        )
        asked = asdict(self._from.tokenizing.counts)
        yield _by_what("tokenizing", "Prompts that workers were asked to tokenize, and how that went", asked)


def _by_what(name: str, text: str, counts: Mapping[str, int]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(f"{NAMESPACE}_{name}", text, labels=["what"])
    for what, count in counts.items():
        gauge.add_metric([what], count)
    return gauge

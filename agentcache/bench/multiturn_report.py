"""What `bench multiturn` found: one JSON object, a table, and the bars.

    {model, shape, unlimited_hit_rate,
     configs: {l1 | l1_l2 | l1_l2_l3: {rounds: [{round, prompt_tokens, cached_tokens: {device, host, external},
                                                 hit_rate, ttft_ms}], effective_input_tokens_per_s}},
     unlimited: as one of configs, working_set_slots: {component: slots},
     sizes: {device_slots, raised, host_bytes, working_set_bytes}, verdict: {tokens_equal, differences, bars}}

Configurations that were left out are not in `configs`; a bar that needs one has the value null.
"""

import itertools
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from agentcache.bench.multiturn_run import Conversation, Round, differences
from agentcache.bench.multiturn_shape import Shape, Sizes
from agentcache.types import ComponentName

L1, L1_L2, L1_L2_L3, UNLIMITED = "l1", "l1_l2", "l1_l2_l3", "unlimited"
TITLES = {L1: "L1", L1_L2: "L1+L2", L1_L2_L3: "L1+L2+L3", UNLIMITED: "unlimited"}
Report = dict[str, Any]
"""The JSON object, as the module's head draws it."""


@dataclass(frozen=True, slots=True)
class Found:
    """A whole run: slots of the working set by component, the tiers' sizes, and the configurations' runs by name."""

    model: str
    shape: Shape
    working_set: Mapping[ComponentName, int]
    sizes: Sizes
    runs: Mapping[str, Conversation]


def report(found: Found) -> Report:
    """The JSON object of a run."""
    configs = {name: _config(found.shape, run) for name, run in found.runs.items()}
    unlimited = configs.pop(UNLIMITED)
    result: Report = {
        "model": found.model,
        "shape": asdict(found.shape),
        "unlimited_hit_rate": hit_rate(unlimited, range(1, found.shape.rounds + 1)),
        "configs": configs,
        "unlimited": unlimited,
        "working_set_slots": dict(found.working_set),
        "sizes": asdict(found.sizes),
    }
    apart = list(_apart(found.runs))
    result["verdict"] = {"tokens_equal": not apart, "differences": apart, "bars": bars(result)}
    return result


def _config(shape: Shape, run: Conversation) -> Report:
    late = [one for one in run.rounds if one.number in shape.late_rounds]
    speed = sum(one.prompt_tokens for one in late) / sum(one.wall_s for one in late)
    return {
        "rounds": [_round(one) for one in run.rounds],
        "effective_input_tokens_per_s": round(speed, 1),
    }


def _round(one: Round) -> Report:
    return {
        "round": one.number,
        "prompt_tokens": one.prompt_tokens,
        "cached_tokens": dict(one.cached_tokens),
        "hit_rate": round(one.hit_rate, 5),
        "ttft_ms": one.ttft_ms,
    }


def _apart(runs: Mapping[str, Conversation]) -> Iterator[Report]:
    expected = runs[UNLIMITED].answers
    for name, run in runs.items():
        for one in differences(expected, run.answers):
            yield {"config": name, **asdict(one), "near_tie": one.near_tie}


def harmless(result: Report) -> bool:
    """Every difference between the configurations' answers is the toss of a near tie."""
    return all(one["near_tie"] for one in result["verdict"]["differences"])


def hit_rate(config: Report, rounds: range) -> float:
    """Cached by prompt tokens of these rounds together."""
    chosen = [one for one in config["rounds"] if one["round"] in rounds]
    cached: int = sum(sum(one["cached_tokens"].values()) for one in chosen)
    prompts: int = sum(one["prompt_tokens"] for one in chosen)
    return round(cached / prompts, 5)


# bars

HIT_SHARE, LAST_HIT_RATE, SPEED_UP = 0.99, 0.96, 10.0


def bars(result: Report) -> list[Report]:
    """What the external tier has to reach: title, value, at_least, met (null: a configuration was left out)."""
    shape = Shape(**result["shape"])
    configs = result["configs"]
    share = last = times = None
    if L1_L2_L3 in configs:
        external = configs[L1_L2_L3]
        share = hit_rate(external, range(1, shape.rounds + 1)) / result["unlimited_hit_rate"]
        last = hit_rate(external, shape.last_rounds)
        if L1 in configs:
            speed = "effective_input_tokens_per_s"
            times = external[speed] / configs[L1][speed]
    first_last, first_late = shape.last_rounds.start, shape.late_rounds.start
    return [
        _bar("hit rate of L1+L2+L3, as a share of the unlimited one", share, HIT_SHARE),
        _bar(f"hit rate of L1+L2+L3 from round {first_last} on", last, LAST_HIT_RATE),
        _bar(f"input throughput of L1+L2+L3 from round {first_late} on, times that of L1", times, SPEED_UP),
    ]


def _bar(title: str, value: float | None, at_least: float) -> Report:
    known = value if value is None else round(value, 4)
    return {
        "title": title,
        "value": known,
        "at_least": at_least,
        "met": None if value is None else value >= at_least,
    }


# for people


def show(result: Report, with_bars: bool, console: Console) -> None:
    """Print the table, what the answers say, and the bars if asked."""
    shape = Shape(**result["shape"])
    title = (
        f"{result['model']}: {shape.clients} clients × {shape.rounds} rounds, {shape.request_length} new and "
        f"{shape.output_length} generated tokens, grid {shape.grid_tokens}; medians of each tenth of the rounds"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("rounds")
    shown = {**result["configs"], UNLIMITED: result["unlimited"]}
    for name in shown:
        table.add_column(f"{TITLES[name]}: cached", justify="right")
        table.add_column("first token", justify="right")
    for rounds in tenths(shape.rounds):
        cells = (cell for config in shown.values() for cell in _cells(config, rounds))
        table.add_row(f"{rounds.start}-{rounds.stop - 1}", *cells)
    console.print(table)
    for line in lines(result, with_bars):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def tenths(rounds: int) -> list[range]:
    """Up to ten ranges, as equal as can be, that cover the rounds from 1 on."""
    parts = min(10, rounds)
    edges = [rounds * part // parts + 1 for part in range(parts + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(edges)]


def _cells(config: Report, rounds: range) -> tuple[str, str]:
    chosen = [one for one in config["rounds"] if one["round"] in rounds]
    return (
        f"{statistics.median([one['hit_rate'] for one in chosen]):.1%}",
        f"{statistics.median([one['ttft_ms'] for one in chosen]):,.0f} ms",
    )


def lines(result: Report, with_bars: bool) -> Iterator[str]:
    """The sums below the table."""
    shape = Shape(**result["shape"])
    shown = {**result["configs"], UNLIMITED: result["unlimited"]}
    yield f"hit rate over all rounds; prompt tokens a second from round {shape.late_rounds.start} on"
    for name, config in shown.items():
        rate = hit_rate(config, range(1, shape.rounds + 1))
        yield f"  {TITLES[name]:<10}{rate:>8.2%}{config['effective_input_tokens_per_s']:>12,.0f}"
    yield _answers(result["verdict"])
    if with_bars:
        yield from (_said(bar) for bar in result["verdict"]["bars"])


def _answers(verdict: Report) -> str:
    apart = verdict["differences"]
    if not apart:
        return "answers: the same in every configuration, token for token"
    first = ", ".join(
        f"{TITLES[one['config']]} client {one['client']} round {one['round']} (margin {one['margin']:.1e})"
        for one in apart[:4]
    )
    kind = "at near ties" if all(one["near_tie"] for one in apart) else "WRONG"
    return f"answers: {len(apart)} conversations differ, {kind}: {first}"


def _said(bar: Report) -> str:
    if bar["value"] is None:
        return f"not measured  {bar['title']}"
    verdict = "met" if bar["met"] else "MISSED"
    return f"{verdict:<7}{bar['value']:>9.4f} (at least {bar['at_least']})  {bar['title']}"

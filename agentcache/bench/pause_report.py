"""What `bench pause` found, as JSON or as a table: medians over trials, against the arm that was never evicted."""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from agentcache.bench.pause_lane import Lane, Return
from agentcache.bench.pause_run import Options
from agentcache.bench.pause_shape import KEPT, RECOMPUTED, Arm, Shape

Report = dict[str, Any]
BAR: Final = 1.5
"""How many times what it takes when nothing was evicted the first token may take."""
TIERS: Final = ("device", "host", "external")


def report(options: Options, shape: Shape, lanes: Sequence[Lane]) -> Report:
    """A row for each arm, and whether the run was what it claims to be."""
    medians = {lane.arm.name: _median(lane) for lane in lanes}
    rows = [_row(lane, medians) for lane in lanes]
    different = sum(len({one.logits for one in same}) > 1 for same in zip(*_returns(lanes), strict=True))
    whole = all(row["trials"] == shape.trials == row["as_claimed"] for row in rows)
    return {
        "options": asdict(options),
        "shape": asdict(shape),
        "bar": BAR,
        "rows": rows,
        "different_answers": different,
        "complete": whole and not different,
    }


def _row(lane: Lane, medians: dict[str, float]) -> Report:
    arm, returns = lane.arm, lane.returns
    ratio = medians[arm.name] / medians[KEPT]
    return {
        "arm": arm.name,
        "told": arm.told,
        "trials": len(returns),
        "first_token_ms": round(medians[arm.name], 2),
        "first_token_most_ms": round(max(one.first_token_ms for one in returns), 2),
        "ratio": round(ratio, 3),
        "sooner_than_recomputed": round(medians[RECOMPUTED] / medians[arm.name], 2),
        "met": None if arm.name == KEPT else ratio <= BAR,
        "cached_tokens": {tier: median(getattr(one.cached, tier) for one in returns) for tier in TIERS},
        "as_claimed": sum(_is_as_claimed(arm, lane.shape, one) for one in returns),
        "brought": sum(arm.told and one.cached.device == lane.shape.cached_tokens for one in returns),
        "returns": [asdict(one) for one in returns],
    }


def _is_as_claimed(arm: Arm, shape: Shape, one: Return) -> bool:
    """Whether it was pushed off so far, and found where the arm says. One that was told may have come too early."""
    whole = shape.cached_tokens
    if arm.pushed and (one.device_tokens or (arm.store and one.host_tokens)):
        return False
    if arm.told:
        return one.cached.total == whole
    there = {tier: getattr(one.cached, tier) for tier in TIERS if getattr(one.cached, tier)}
    kept = arm.pushed or one.device_tokens == whole
    return kept and there == ({arm.tier: whole} if arm.tier else {})


def _median(lane: Lane) -> float:
    return median(one.first_token_ms for one in lane.returns)


def _returns(lanes: Sequence[Lane]) -> list[list[Return]]:
    return [lane.returns for lane in lanes]


def show(result: Report, titles: dict[str, str], console: Console) -> None:
    """A line for each arm, and what the answers say."""
    shape = result["shape"]
    table = Table(
        title=f"{result['options']['model']}: back after {shape['pause_s']:g} s, {shape['cached_tokens']:,} tokens "
        f"cached and {shape['new_tokens']} new",
        caption=f"medians of {shape['trials']}; ratio: to never evicted, at most {BAR} allowed; sooner than recomputed",
        title_justify="left",
        caption_justify="left",
    )
    names = ("pushed off", "first token", "most", "ratio", "sooner", *TIERS, "as claimed", "bar")
    for name in names:
        table.add_column(name, justify="left" if name == names[0] else "right", no_wrap=True)
    for row in result["rows"]:
        cached = [f"{row['cached_tokens'][tier]:,.0f}" for tier in TIERS]
        met = {None: "", True: "met", False: "not met"}[row["met"]]
        times = [f"{row[name]:,.1f} ms" for name in ("first_token_ms", "first_token_most_ms")]
        factors = [f"{row['ratio']:.2f}", f"{row['sooner_than_recomputed']:.1f}x"]
        claimed = f"{row['as_claimed']} of {row['trials']}"
        table.add_row(titles[row["arm"]], *times, *factors, *cached, claimed, met)
    console.print(table)
    wrong = result["different_answers"]
    said = f"{wrong} differ, WRONG" if wrong else "the same in every arm, bit for bit"
    console.print(f"first tokens' logits: {said}", highlight=False)

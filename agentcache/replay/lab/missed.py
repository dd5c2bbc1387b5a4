"""Which sessions of a replay had to compute most again, and what ended the hits of their calls."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from agentcache.replay.lab.serving import Replayed, Why
from agentcache.replay.paged import Workload

WORST = 10


@dataclass(frozen=True, slots=True)
class SessionMisses:
    """One session of a replay. `again_tokens`: after a page that is gone; `why`: calls by what ended their hit."""

    session: str
    calls: int
    prompt_tokens: int
    hit_rate: float
    again_tokens: int
    why: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def worst(workload: Workload, replayed: Sequence[Replayed], count: int = WORST) -> list[SessionMisses]:
    """The sessions that had to compute most again, the worst first."""
    by_session: dict[int, list[Replayed]] = {}
    for one in replayed:
        by_session.setdefault(one.call.session, []).append(one)
    missed = [_misses(workload, calls) for calls in by_session.values()]
    return sorted(missed, key=lambda one: (-one.again_tokens, one.session))[:count]


def missed_table(sessions: Sequence[SessionMisses]) -> Table:
    table = Table(title="sessions that computed most again", title_justify="left")
    table.add_column("session")
    for column in ("calls", "hit rate", "tokens after a lost page"):
        table.add_column(column, justify="right")
    table.add_column("what ended the hits of its calls")
    for one in sessions:
        why = ", ".join(f"{name} {count}" for name, count in sorted(one.why.items()))
        table.add_row(one.session, str(one.calls), f"{one.hit_rate:.3f}", f"{one.again_tokens:,}", why)
    return table


def _misses(workload: Workload, calls: Sequence[Replayed]) -> SessionMisses:
    prompt = sum(one.call.prompt_tokens for one in calls)
    cached = sum(one.found.pages for one in calls) * workload.page_tokens
    lost = [one for one in calls if one.found.why in (Why.EVICTED, Why.CLOSED)]
    return SessionMisses(
        session=workload.sessions[calls[0].call.session].name,
        calls=len(calls),
        prompt_tokens=prompt,
        hit_rate=cached / max(1, prompt),
        again_tokens=sum(one.call.reusable - one.found.pages for one in lost) * workload.page_tokens,
        why=dict(sorted(Counter(one.found.why.value for one in calls).items())),
    )

"""What the sessions of a replay had to compute again, and what ended the hits of their calls."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from agentcache.replay.lab.serving import Replayed, Why
from agentcache.replay.paged import PagedCall, Workload


@dataclass(frozen=True, slots=True)
class SessionMisses:
    """One session of a replay. `again_tokens`: what a call before had computed, and is not found.

    `why`: calls by what ended their hit; `tokens`: what they may have reused and did not find, by the same: where it
    had been computed before by what ended the hit, and behind that as new.
    `changed_at`: the calls that left the path of the one before: turn, and the token from which on they differ.
    """

    session: str
    calls: int
    prompt_tokens: int
    hit_rate: float
    again_tokens: int
    why: Mapping[str, int]
    tokens: Mapping[str, int]
    changed_at: Sequence[tuple[int, int]]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def missed(workload: Workload, replayed: Sequence[Replayed]) -> list[SessionMisses]:
    """Every session, those that had to compute most again first."""
    by_session: dict[int, list[Replayed]] = {}
    for one in replayed:
        by_session.setdefault(one.call.session, []).append(one)
    found = [_misses(workload, calls) for calls in by_session.values()]
    return sorted(found, key=lambda one: (-one.again_tokens, one.session))


def missed_table(sessions: Sequence[SessionMisses], where: str) -> Table:
    """These sessions; `where` they were replayed."""
    table = Table(title=f"sessions that computed most again: {where}", title_justify="left")
    table.add_column("session")
    for column in ("calls", "hit rate", "tokens computed again"):
        table.add_column(column, justify="right")
    table.add_column("what ended the hits of its calls")
    for one in sessions:
        why = ", ".join(f"{name} {count}" for name, count in sorted(one.why.items()))
        table.add_row(Text(one.session), str(one.calls), f"{one.hit_rate:.3f}", f"{one.again_tokens:,}", why)
    return table


def changed_at(workload: Workload, call: PagedCall) -> int | None:
    """The token from which on a prompt differs from the path before it, by whole pages; None: it goes on from it."""
    if call.extends:
        return None
    before, prompt = workload.sessions[call.session].calls[call.turn - 1].prompt, call.prompt
    if len(workload.content):
        before, prompt = workload.content[before], workload.content[prompt]
    length = min(len(before), len(prompt))
    differ = np.flatnonzero(before[:length] != prompt[:length])
    return int(differ[0] if len(differ) else length) * workload.page_tokens


def _misses(workload: Workload, calls: Sequence[Replayed]) -> SessionMisses:
    prompt = sum(one.call.prompt_tokens for one in calls)
    cached = sum(one.found.pages for one in calls) * workload.page_tokens
    pages: Counter[Why] = Counter()
    for one in calls:
        pages[one.found.why] += one.found.again
        pages[one.found.behind] += one.call.reusable - one.found.pages - one.found.again
    missing = {why.value: count * workload.page_tokens for why, count in pages.items() if count}
    missing.pop(Why.NOTHING.value, 0)  # the end of a prompt that is no whole chunk
    changed = ((one.call.turn, changed_at(workload, one.call)) for one in calls)
    return SessionMisses(
        session=workload.sessions[calls[0].call.session].name,
        calls=len(calls),
        prompt_tokens=prompt,
        hit_rate=cached / max(1, prompt),
        again_tokens=sum(one.found.again for one in calls) * workload.page_tokens,
        why=dict(sorted(Counter(one.found.ended_by for one in calls).items())),
        tokens=dict(sorted(missing.items())),
        changed_at=sorted((turn, token) for turn, token in changed if token is not None),
    )

"""Small workloads and their scripts, for what is replayed in the lab."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from agentcache.clock import ManualClock
from agentcache.engine.scheduler import PrefillOrder
from agentcache.replay.lab.serving import NANOSECONDS, Machine, Replayed, Served
from agentcache.replay.lab.world import Script, World
from agentcache.replay.paged import PAGE_TOKENS, PagedCall, Workload, page
from agentcache.replay.trace import Call, Facts, Origin, Session

AT_ONCE = Machine(prefill=math.inf, from_host=math.inf, from_external=math.inf, decode=math.inf)
"""A machine on which nothing takes time."""


@dataclass(frozen=True, slots=True)
class Says:
    """One call: the blocks of its prompt (a page each), how many pages its answer fills; `spare` tokens fill no page.

    Without spare tokens the last page of the prompt is always computed.
    """

    prompt: Sequence[int]
    answer: int = 0
    spare: int = 1

    @property
    def call(self) -> Call:
        facts = Facts(
            prompt_tokens=len(self.prompt) * PAGE_TOKENS + self.spare,
            output_tokens=self.answer * PAGE_TOKENS,
        )
        return Call(keep=0, blocks=tuple(self.prompt), facts=facts)


def workload(*sessions: Sequence[Says], parents: dict[int, tuple[int, int]] | None = None) -> Workload:
    """Sessions by what their calls say; `parents[n]` are the parent of session n and after how many of its calls."""
    traced = []
    for number, said in enumerate(sessions):
        parent, after_call = (parents or {}).get(number, (-1, 0))
        origin = Origin(parent=str(parent) if parent >= 0 else "", after_call=after_call)
        calls = tuple(says.call for says in said)
        traced.append(
            Session(str(number), calls, f"session {number}", block_tokens=PAGE_TOKENS, origin=origin)
        )
    return page(traced, encode=lambda _: [])


def script(
    paged: Workload, starts: Sequence[int], gaps: Sequence[Sequence[int]], closes: bool = False
) -> Script:
    """`starts` are those of the sessions without a parent, in order."""
    alone = [session.index for session in paged.sessions if session.parent < 0]
    return Script(paged, dict(zip(alone, starts, strict=True)), gaps, closes)


class Checkable(Served, Protocol):
    """A `Served` that can say whether all is well."""

    def check(self) -> None: ...


class _Checked:
    def __init__(self, served: Checkable) -> None:
        self._served = served

    def __getattr__(self, name: str) -> Callable[..., object]:
        def ask(*args: object) -> object:
            answer = getattr(self._served, name)(*args)
            self._served.check()
            return answer

        return ask


def checked(served: Checkable) -> Served:
    """The same, and its `check` runs after every call."""
    return cast(Served, _Checked(served))


def replayed(told: Script, machine: Machine, served: Served) -> list[Replayed]:
    return World(told, machine, served, ManualClock()).run()


def hits(calls: Sequence[Replayed]) -> int:
    """Pages found, on every tier."""
    return sum(call.found.pages for call in calls)


def random_workload(rng: random.Random, sessions: int = 4, calls: int = 4, blocks: int = 2) -> Workload:
    """Prompts that part soon and meet again: histories that grow, are cut back and begin anew."""
    told: list[list[Says]] = []
    for _ in range(rng.randint(1, sessions)):
        said: list[Says] = []
        history: list[int] = []
        for _ in range(rng.randint(1, calls)):
            history = history[: rng.choice([len(history), len(history), rng.randint(0, len(history))])]
            history = [*history, *(rng.randint(1, blocks) for _ in range(rng.randint(1, 3)))]
            said.append(Says(history, rng.choice([0, 0, 1, 2]), rng.choice([0, 1, 1])))
        told.append(said)
    parents = {
        number: (rng.randrange(number), rng.randint(0, 3))
        for number in range(1, len(told))
        if rng.random() < 0.2
    }
    return workload(*told, parents=parents)


def random_script(rng: random.Random, paged: Workload, longest_ns: int) -> Script:
    """Starts and gaps of up to so many nanoseconds; few enough to make things happen at one moment."""
    alone = [session for session in paged.sessions if session.parent < 0]
    starts = [rng.randint(0, longest_ns) for _ in alone]
    gaps = [[rng.randint(0, longest_ns) for _ in session.calls] for session in paged.sessions]
    return script(paged, starts, gaps, closes=rng.random() < 0.5)


def peak(paged: Workload) -> int:
    """The pages of the largest call: with fewer, something does not fit."""
    return max(call.peak_pages for session in paged.sessions for call in session.calls)


def random_machine(rng: random.Random) -> Machine:
    """With a queue or without one, so fast that pages take as long as gaps, or at once."""
    if rng.random() < 0.2:
        return AT_ONCE
    second = NANOSECONDS * PAGE_TOKENS
    return Machine(
        prefill=second / rng.randint(1, 5),
        from_host=second / rng.randint(1, 2),
        decode=second / rng.randint(1, 20),
        queue=rng.random() < 0.6,
        turns=rng.choice(list(PrefillOrder)),
    )


def calls_of(paged: Workload) -> list[PagedCall]:
    return [call for session in paged.sessions for call in session.calls]

"""How long a request wants its prompt kept, in the words of every API, and what an answer says became of each.

    prompt_cache_retention, prompt_cache_options   OpenAI's
    prompt_cache_breakpoint, cache_control         OpenAI's and Anthropic's marks in a prompt, each with a ttl or none
    kv_hints                                       vLLM's and SGLang's, from whoever may send them (`kv_hints.py`)

A time is the idle lease of the request's session: the longest that is asked for, and never more than the server allows,
nor less than the session was opened with.
It holds nothing on any tier. Routers and workers read alike.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agentcache import wire
from agentcache.web.fields import Fields
from agentcache.web.kv_hints import KV_HINTS, Hints, read_hints
from agentcache.web.status import refuse

RETENTION: Final = "prompt_cache_retention"
OPTIONS: Final = "prompt_cache_options"
CACHE_CONTROL: Final = "cache_control"
BREAKPOINT: Final = "prompt_cache_breakpoint"
MARKS: Final = (CACHE_CONTROL, BREAKPOINT)
WORDS: Final = (b"prompt_cache_", CACHE_CONTROL.encode(), KV_HINTS.encode())
"""A body without any of these asks for nothing."""
USUAL: Final = 0.0
"""Of a lease that is asked for: the server's own."""
NO_SESSION: Final = "no session"
_NEAR_S: Final = 0.001
_NOT_PASSED_ON: Final = "not passed on"
_TTL: Final = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_SECONDS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_IN_MEMORY: Final = frozenset({"in_memory", "in-memory"})
_MARKED: Final = ("system", "tools", "messages", "input")
_INSIDE: Final = ("content", "output", "function")
_DEPTH: Final = 3
"""Of a block in a result in a message."""


class Outcome(StrEnum):
    """What became of a wish."""

    ACCEPTED = "accepted"
    CLIPPED = "clipped"  # in part
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one wish, by the name of its field, and why it is not more."""

    name: str
    outcome: Outcome
    said: str = ""


@dataclass(frozen=True, slots=True)
class Leases:
    """Idle leases of a server in seconds: its own, and the longest that a request can ask for."""

    usual_s: float = 1800.0
    longest_s: float = 3600.0

    def grant(self, asked: Mapping[str, float]) -> float:
        """The lease of a session whose request asks for these; 0: for none. Never over `longest_s`."""
        if not asked:
            return 0.0
        return self.clipped(max(seconds or self.usual_s for seconds in asked.values()))

    def clipped(self, asked_s: float) -> float:
        """The lease that somebody gets who asks for this one; 0: for none."""
        return min(asked_s, self.longest_s)

    def opened(self, name: str, asked_s: float, has_s: float) -> Mapping[str, str]:
        """The header that says what became of a lease that an open asked for, where the session has `has_s` now."""
        said = _leased(name, asked_s, has_s, "")
        if abs(has_s - self.clipped(asked_s)) > _NEAR_S:
            said = Verdict(name, Outcome.IGNORED, f"it was open already, with {has_s:g} s")
        return {wire.RETENTION: header_text((said,))}


@dataclass(frozen=True, slots=True)
class Retention:
    """What a request asks for. `leases`: seconds by the name that asks for them; `marked`: what its marks are called.

    `settled` is what became of the rest, whoever serves it.
    """

    leases: Mapping[str, float]
    marked: tuple[str, ...] = ()
    expected_s: float = 0.0
    settled: tuple[Verdict, ...] = ()
    expecting: tuple[str, ...] = ()

    def verdicts(self, granted_s: float, expected_s: float, why_not: str = "") -> Iterator[Verdict]:
        """What became of all but the marks, for a session with this lease that is expected back then (0: not said).

        `why_not`: no session is there that could have either.
        """
        for name, asked_s in self.leases.items():
            yield _leased(name, asked_s, granted_s, why_not)
        for name in self.expecting:
            if why_not or not expected_s:
                yield Verdict(name, Outcome.IGNORED, why_not or _NOT_PASSED_ON)
            else:
                yield Verdict(name, Outcome.ACCEPTED, f"expected back in {expected_s:g} s")
        yield from self.settled


NOTHING_ASKED: Final = Retention({})


def read_retention(fields: Fields, hints_allowed: bool) -> Retention:
    """What a request asks for, in any of the APIs. Cost O(blocks of its messages).

    Errors   CacheError(BAD_REQUEST) with the field's name for what is no time, mark or envelope of hints
    """
    leases: dict[str, float] = {}
    settled: list[Verdict] = []
    marked: dict[str, None] = {}
    if fields.has(RETENTION):
        said = fields.text(RETENTION)
        leases[RETENTION] = USUAL if said in _IN_MEMORY else _seconds(said, RETENTION, "in_memory or ")
    _read_options(fields.inner(OPTIONS), leases, settled)
    for name, place, value in _marks(fields.values):
        ttl_s = _mark_ttl(name, Fields({name: value}, place))
        marked[name] = None
        if ttl_s:
            leases[f"{name}.ttl"] = max(ttl_s, leases.get(f"{name}.ttl", 0.0))
    hints = read_hints(fields, hints_allowed) if fields.has(KV_HINTS) else Hints()
    leases.update(hints.leases)
    settled += [Verdict(name, Outcome.IGNORED, why) for name, why in hints.ignored]
    return Retention(leases, tuple(marked), hints.expected_s, tuple(settled), hints.expecting)


def header_text(verdicts: tuple[Verdict, ...]) -> str:
    """The header's value: `prompt_cache_retention=clipped (3600 s of 86400 s); kv_hints=ignored (not allowed)`."""
    return "; ".join(f"{one.name}={one.outcome}" + (f" ({one.said})" if one.said else "") for one in verdicts)


def has_mark(values: Mapping[str, object]) -> str:
    """The name of the mark on a block, a message or what it holds; "" for none."""
    return next((name for name, _, _ in _marks_on(values, "", _DEPTH)), "")


def marks_of(values: Mapping[str, object]) -> dict[str, object]:
    """The mark of what `values` holds, as the field of a message that stands for it."""
    name = has_mark(values)
    return {name: {}} if name else {}


def _read_options(options: Fields, leases: dict[str, float], settled: list[Verdict]) -> None:
    if options.has("mode"):
        mode, name = options.text("mode"), options.param("mode")
        if mode not in ("implicit", "explicit"):
            raise options.wrong("mode", "implicit or explicit")
        kept = "what a turn computes is kept, marked or not"
        explicit = Verdict(name, Outcome.IGNORED, kept)
        settled.append(explicit if mode == "explicit" else Verdict(name, Outcome.ACCEPTED))
    if options.has("ttl"):
        leases[options.param("ttl")] = _seconds(options.text("ttl"), options.param("ttl"))
    if options.flag("prewarm"):
        said = "send max_tokens 0 to /v1/messages"
        settled.append(Verdict(options.param("prewarm"), Outcome.IGNORED, said))


def _mark_ttl(name: str, holder: Fields) -> float:
    """The seconds that a mark names, 0 for none."""
    mark = holder.inner(name)
    word, wanted = ("type", "ephemeral") if name == CACHE_CONTROL else ("mode", "explicit")
    if mark.text(word) != wanted:
        raise mark.wrong(word, wanted)
    return _seconds(mark.text("ttl"), mark.param("ttl")) if mark.has("ttl") else 0.0


def _seconds(text: str, param: str, others: str = "") -> float:
    found = _TTL.fullmatch(text)
    if not found:
        raise refuse(f"{param} must be {others}a time such as 30s, 5m, 1h or 24h", param)
    return float(int(found[1]) * _SECONDS[found[2]])


Found = tuple[str, str, object]
"""A mark's name, where it stands, and what it says."""


def _marks(values: Mapping[str, object]) -> Iterator[Found]:
    if values.get(CACHE_CONTROL) is not None:
        yield CACHE_CONTROL, "", values[CACHE_CONTROL]
    for name in _MARKED:
        yield from _marks_in(values.get(name), name, _DEPTH)


def _marks_in(members: object, place: str, depth: int) -> Iterator[Found]:
    if not isinstance(members, list):
        return
    for number, member in enumerate(members):
        if isinstance(member, dict) and _is_marked(member, depth):
            for name, at, value in _marks_on(member, "", depth):
                yield name, f"{place}[{number}]{'.' if at else ''}{at}", value


def _is_marked(member: Mapping[str, object], depth: int) -> bool:
    """Whether it is worth a closer look; of long histories little is."""
    if CACHE_CONTROL in member or BREAKPOINT in member:
        return True
    for inner in [member[name] for name in _INSIDE if name in member] if depth else ():
        for one in inner if isinstance(inner, list) else [inner]:
            if isinstance(one, dict) and _is_marked(one, depth - 1):
                return True
    return False


def _marks_on(member: Mapping[str, object], place: str, depth: int) -> Iterator[Found]:
    for name in MARKS:
        if member.get(name) is not None:
            yield name, place, member[name]
    if depth == 0:
        return
    for name in _INSIDE:
        inner = member.get(name)
        if isinstance(inner, list):
            yield from _marks_in(inner, name, depth - 1)
        elif isinstance(inner, dict):
            for found, at, value in _marks_on(inner, "", depth - 1):
                yield found, f"{name}{'.' if at else ''}{at}", value


def _leased(name: str, asked_s: float, granted_s: float, why_not: str) -> Verdict:
    if why_not or not granted_s:
        return Verdict(name, Outcome.IGNORED, why_not or _NOT_PASSED_ON)
    if asked_s > granted_s:
        return Verdict(name, Outcome.CLIPPED, f"{granted_s:g} s of {asked_s:g} s")
    return Verdict(name, Outcome.ACCEPTED)

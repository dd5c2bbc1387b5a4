"""What a request gets in the state that its session is in (design §4.5): pure, without a change."""

from dataclasses import dataclass

from agentcache.errors import CacheError, Kind
from agentcache.records import SessionRecord, SessionRules, nanoseconds
from agentcache.types import SessionState, SessionTag


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a request is served: by the current generation, by one that it `opens` (> 0), or unreferenced."""

    state: SessionState
    opens: int = 0
    registers: bool = True


_JOIN = Verdict(SessionState.OPEN)
_AS_CLOSED = Verdict(SessionState.CLOSED, registers=False)
_AS_NOBODY = Verdict(SessionState.NONE, registers=False)
_AS_LATE = Verdict(SessionState.STALE, registers=False)


def judge(
    record: SessionRecord, tag: SessionTag, rules: SessionRules, now_ns: int, suspect_through: int
) -> Verdict:
    """How a request is served. Through `suspect_through` an unknown id may have ended and been forgotten.

    Errors  SESSION_STALE for a generation that is not the current one, and for a strict one that comes too late;
            SESSION_CLOSED for a strict or fenced request that would be served unreferenced
    """
    issued = (tag.generation or 0) if tag.issued else 0
    if issued <= suspect_through and suspect_through:
        verdict = _AS_NOBODY
    elif tag.generation is None:
        verdict = _judge_plain(record, tag.issued, rules, now_ns)
    elif tag.issued:
        verdict = _judge_issued(record, tag.generation, tag.placement)
    else:
        verdict = _judge_fenced(record, tag.generation)
    insists = tag.strict or not (tag.issued or tag.generation is None)
    if insists and verdict is _AS_LATE:
        raise stale(record, tag.generation)
    if insists and not verdict.registers:
        raise CacheError(
            Kind.SESSION_CLOSED,
            "the session is closed; open it again, or send the request without fence and strict",
            session=record.session,
            generation=record.current,
        )
    return verdict


def _judge_plain(record: SessionRecord, issued: bool, rules: SessionRules, now_ns: int) -> Verdict:
    if record.state is SessionState.OPEN:
        return _JOIN
    early = now_ns - record.closed_ns <= nanoseconds(rules.reopen_after_s)
    if record.state is SessionState.CLOSED and (issued or early):
        return _AS_CLOSED
    return Verdict(_greeting(record), opens=record.last + 1)


def _judge_issued(record: SessionRecord, generation: int, placement: int) -> Verdict:
    """A router's tag: the router alone opens generations, so a higher one is current at once."""
    if generation <= record.closed_through:
        return _AS_CLOSED
    if (generation, placement) <= record.placing.released:
        return _AS_LATE
    if generation < record.current:
        raise stale(record, generation)
    if record.state is SessionState.OPEN and generation == record.current:
        return _JOIN
    return Verdict(_greeting(record), opens=generation)


def _judge_fenced(record: SessionRecord, generation: int) -> Verdict:
    """A client's fence: it names the current generation or is stale, a higher one too."""
    if generation != record.current or record.state in (SessionState.EXPIRED, SessionState.NONE):
        raise stale(record, generation)
    return _JOIN if record.state is SessionState.OPEN else _AS_CLOSED


def _greeting(record: SessionRecord) -> SessionState:
    return SessionState.EXPIRED if record.state is SessionState.EXPIRED else SessionState.OPEN


def stale(record: SessionRecord, generation: int | None) -> CacheError:
    """The refusal of a generation; the fact `current` names the one to use."""
    return CacheError(
        Kind.SESSION_STALE,
        "the generation is not the session's current one",
        session=record.session,
        generation=generation,
        current=record.current,
        state=record.state.value,
    )

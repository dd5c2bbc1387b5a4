"""Reader for mini-swe-agent trajectories, versions 1 and 2, and the bare message lists of old ones.

Every assistant message is one call; its prompt is all the messages before it. Only what the agent sent is kept:
role, content and the tool fields, never `extra`, and not the `exit` message with which version 2 ends its files.

Version 2 stamps the end of every answer and of every tool. Version 1 has only `created` of the provider's response,
in whole seconds, and that is its start: what is after it is split into answer and tool by a rule.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from agentcache.replay.formats.conversation import asked_first, cut, sent
from agentcache.replay.formats.history import Names, elapsed
from agentcache.replay.formats.record import Record, record_of
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import Facts, Gap, Origin, Session
from agentcache.waits import WaitKind

_EXIT = "exit"
ANSWER_S = 2.0
ANSWER_S_PER_TOKEN = 0.011
"""What an answer takes where only its start is known, fitted to 10,000 gaps of such trajectories."""


class MiniSweReader:
    """`{messages, trajectory_format, instance_id, info}`, or a list of messages; one document a session."""

    format = "mini-swe-agent"
    description = "trajectories of mini-swe-agent 1 and 2 (.traj.json, or one a line)"
    document_is_session = True

    def accepts(self, first: Document) -> bool:
        value = first.value
        if isinstance(value, list):
            return bool(value) and isinstance(value[0], dict) and "role" in value[0]
        if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
            return False
        return str(value.get("trajectory_format", self.format)).startswith(self.format)

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]:
        for source in files:
            names = Names()
            for document in source.documents():
                session = read_session(document, source.stem)
                yield replace(session, name=names.new(session.name))


def read_session(document: Document, stem: str) -> Session:
    """The session of one document; without an `instance_id` it is named after its file and line.

    Errors  CacheError(BAD_TRACE) naming the place and the message or field that is wrong
    """
    fallback = f"{stem}-{document.line}" if document.line else stem
    value = {"messages": document.value} if isinstance(document.value, list) else document.value
    record = record_of(value, document)
    record.need("messages")
    told = [one for one in record.children("messages") if one.text("role") != _EXIT]
    messages = [sent(one) for one in told]
    answers = asked_first(told, [at for at, message in enumerate(messages) if message["role"] == "assistant"])
    times = list(_times(told, answers))

    def facts(turn: int, at: int) -> Facts:
        gap = _gap(times[turn - 1], times[turn]) if turn else Gap()
        return _facts(told[at].child("extra").child("response"), gap, times[turn])

    group = record.text("instance_id")
    return Session(
        group or fallback,
        tuple(cut(messages, answers, facts)),
        document.place,
        origin=Origin(start_s=times[0].asked_s if times and times[0].known else None, group=group),
    )


@dataclass(frozen=True, slots=True)
class _Times:
    """When one call was sent and its answer was whole, in seconds since 1970, and which of both is not estimated."""

    asked_s: float = 0.0
    ended_s: float = 0.0
    asked_measured: bool = False
    ended_measured: bool = False
    known: bool = True


_NEVER_TOLD = _Times(known=False)


def _times(records: Sequence[Record], answers: Sequence[int]) -> Iterator[_Times]:
    """Errors: CacheError(BAD_TRACE) for a time before the one before it."""
    _check_order(records)
    before = 0
    for at in answers:
        extra = records[at].child("extra")
        stamps = [record.child("extra").number("timestamp") or 0.0 for record in records[before:at]]
        asked_s = max(stamps, default=0.0)
        before = at + 1
        if asked_s and "timestamp" in extra:
            yield _Times(asked_s, extra.needed("timestamp"), True, True)
        else:
            yield _estimated(extra)


def _check_order(records: Sequence[Record]) -> None:
    latest = 0.0
    for record in records:
        extra = record.child("extra")
        stamped = "timestamp" in extra
        stamp, name = (extra, "timestamp") if stamped else (extra.child("response"), "created")
        moment = stamp.number(name) or latest
        if moment < latest:
            raise stamp.early(name)
        latest = moment


def _estimated(extra: Record) -> _Times:
    response = extra.child("response")
    takes_s = ANSWER_S + ANSWER_S_PER_TOKEN * response.child("usage").count("completion_tokens")
    if "timestamp" in extra:
        ended_s = extra.needed("timestamp")
        return _Times(ended_s - takes_s, ended_s, ended_measured=True)
    if "created" in response:
        created_s = response.needed("created")
        return _Times(created_s, created_s + takes_s, asked_measured=True)
    return _NEVER_TOLD


def _gap(before: _Times, now: _Times) -> Gap:
    if not (before.known and now.known):
        return Gap(WaitKind.TOOL)
    measured = before.ended_measured and now.asked_measured
    return Gap(WaitKind.TOOL, elapsed(before.ended_s, now.asked_s), measured)


def _facts(response: Record, gap: Gap, times: _Times) -> Facts:
    usage, choices = response.child("usage"), response.children("choices")
    cached = usage.child("prompt_tokens_details")
    return Facts(
        gap=gap,
        api_s=elapsed(times.asked_s, times.ended_s) if times.known else None,
        prompt_tokens=usage.count("prompt_tokens"),
        output_tokens=usage.count("completion_tokens"),
        cached_tokens=cached.count("cached_tokens") if "cached_tokens" in cached else None,
        finish=choices[0].text("finish_reason").lower() if choices else "",
        model=response.text("model"),
    )

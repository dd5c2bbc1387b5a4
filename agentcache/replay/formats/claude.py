"""Reader for Claude Code's logs (`~/.claude/projects/…/<session>.jsonl`), sub-agents and compactions included.

The log lacks the system prompt and the tools; what the first call is charged for beyond its text is taken for them
(`Session.hidden`), the same for all sessions of one version, model and project. What the model thought is left out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentcache.replay.formats.claude_lines import SYNTHETIC, Answer, Asked, Family
from agentcache.replay.formats.history import elapsed, finish_of, shared
from agentcache.replay.formats.record import Record
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import (
    CHARACTERS_PER_TOKEN,
    Call,
    Facts,
    Gap,
    Hidden,
    Link,
    Message,
    Origin,
    Session,
)

_LOGGED = frozenset({"user", "assistant", "system", "progress", "summary", "file-history-snapshot"})
_OTHERS = frozenset({"queue-operation", "attachment", "last-prompt", "permission-mode"})
_COMPACTION = "acompact"


class ClaudeCodeReader:
    """One event a line; a session's sub-agents are in files of their own, or in its own file."""

    format = "Claude Code"
    description = "Claude Code's own session logs, with sub-agents and compactions (.jsonl)"
    document_is_session = False

    def accepts(self, first: Document) -> bool:
        value = first.value
        if not isinstance(value, dict) or str(value.get("type")) not in _LOGGED | _OTHERS:
            return False
        return bool(value.keys() & {"sessionId", "snapshot", "leafUuid"})

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]:
        """Files of one session are told by its id, so the first lines of all files are read first.

        A file that names no session is one by its own name, which is how Claude Code names its files.
        """
        families: dict[str, tuple[str, list[Source]]] = {}
        for source in files:
            session = _session_id(source)
            _, members = families.setdefault(session or str(source.path), (session or source.stem, []))
            members.append(source)
        told: set[str] = set()
        for name, members in families.values():
            yield from _sessions(Family(name).read(sorted(members, key=_sub_agents_last)), told)


@dataclass(frozen=True, slots=True, eq=False)
class _Spoken:
    """One call: what it asked and what was answered."""

    asked: Asked
    answer: Answer


def _session_id(source: Source) -> str:
    for document in source.documents():
        if isinstance(document.value, dict) and document.value.get("sessionId"):
            return str(document.value["sessionId"])
    return ""


def _sub_agents_last(source: Source) -> bool:
    return source.path.name.startswith("agent-")


def _sessions(family: Family, told: set[str]) -> Iterator[Session]:
    """The main agent and then the others as they began; `told`: answers that an earlier file had."""
    spoken: dict[str, list[_Spoken]] = {"": []}
    for name, answer in family.answers.items():
        model = answer.first.message.text("model")
        if name not in told and model != SYNTHETIC:
            told.add(name)
            spoken.setdefault(answer.first.agent, []).append(_Spoken(family.asked(answer), answer))
    main = spoken.pop("")
    if main:
        origin = Origin(start_s=main[0].asked.at_s)
        yield _session(family, family.name, main, origin, Gap(), _hidden(main, "main"))
    for agent, calls in sorted(spoken.items(), key=lambda item: item[1][0].asked.at_s):
        yield _sub_agent(family, agent, calls, main)


def _sub_agent(family: Family, agent: str, calls: Sequence[_Spoken], main: Sequence[_Spoken]) -> Session:
    """A compaction goes on from all that its parent has; others begin anew."""
    start_s = calls[0].asked.at_s
    ended = [call.answer.end_s for call in main if call.answer.end_s <= start_s]
    gap = Gap(seconds=elapsed(ended[-1], start_s)) if ended else Gap()
    forks = agent.startswith(_COMPACTION) and bool(main)
    link = Link.FORK if forks else Link.SPAWN
    origin = Origin(family.name, link, len(ended), start_s) if main else Origin(start_s=start_s)
    hidden = _hidden(main, "main") if forks else _hidden(calls, "sub-agent")
    return _session(family, f"{family.name}/{agent}", calls, origin, gap, hidden)


def _session(
    family: Family, name: str, spoken: Sequence[_Spoken], origin: Origin, first: Gap, hidden: Hidden
) -> Session:
    calls: list[Call] = []
    before: list[Message] = []
    for turn, one in enumerate(spoken):
        keep = shared(before, one.asked.prompt)
        ended_s = spoken[turn - 1].answer.end_s if turn else 0.0
        gap = Gap(one.asked.kind, elapsed(ended_s, one.asked.at_s)) if turn else first
        added = tuple(one.asked.prompt[keep:])
        calls.append(Call(keep, added, one.answer.as_message(), facts=_facts(family, one, gap)))
        before = one.asked.prompt
    return Session(
        name, tuple(calls), spoken[0].answer.first.record.document.place, origin=origin, hidden=hidden
    )


def _facts(family: Family, one: _Spoken, gap: Gap) -> Facts:
    answer = one.answer
    ended = [line.message for line in answer.lines if line.message.text("stop_reason")]
    last = ended[-1] if ended else answer.lines[-1].message
    stop = last.text("stop_reason") or ("tool_use" if answer.tools else "end_turn")
    return Facts(
        gap=gap,
        api_s=elapsed(one.asked.at_s, answer.end_s),
        prompt_tokens=_prompt_tokens(last),
        output_tokens=last.child("usage").count("output_tokens") if ended else 0,
        cached_tokens=last.child("usage").count("cache_read_input_tokens"),
        finish=finish_of(stop),
        model=last.text("model"),
        tools=tuple(_tools(family, answer)),
    )


def _tools(family: Family, answer: Answer) -> Iterator[tuple[str, float | None]]:
    for name, block in answer.tools.items():
        result = family.results.get(name)
        yield block.text("name"), elapsed(answer.end_s, result[0].at_s) if result else None


def _prompt_tokens(message: Record) -> int:
    usage = message.child("usage")
    parts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(usage.count(part) for part in parts)


def _hidden(spoken: Sequence[_Spoken], role: str) -> Hidden:
    """What was sent before the log's first message, as long as the first call was charged for beyond its text."""
    first = spoken[0]
    line = first.answer.first
    text = sum(len(str(message)) for message in first.asked.prompt)
    tokens = max(0, _prompt_tokens(line.message) - text // CHARACTERS_PER_TOKEN)
    family = re.sub(r"-\d{8}$", "", line.message.text("model"))
    name = "/".join(("Claude Code", line.record.text("version"), family, role, line.record.text("cwd")))
    return Hidden(name, tokens) if tokens else Hidden()

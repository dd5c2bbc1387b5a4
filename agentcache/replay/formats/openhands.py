"""Reader for OpenHands: the event lists of its first version and of its SDK, and the exports made for training.

From documentation, except for the shape of the exports. Event lists do not have the prompts: they are put together
from the events, one call for each response of the model, without what the agent's memory may have cut. What a
condenser takes out is taken out.

    delegate ─► the sub-agent's events ─► delegate's observation      one list, in the first version
    conversation/events/, conversation/subagents/<id>/events/         a list each, in the SDK
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from agentcache.replay.formats.aiperf import tools_prefix
from agentcache.replay.formats.conversation import asked_first, cut, finish_by, sent, tools_of, wait_after
from agentcache.replay.formats.dialogue import Dialogue, Happened, between, called
from agentcache.replay.formats.history import Names, said
from agentcache.replay.formats.openhands_events import (
    call_of,
    is_answer,
    is_event,
    take_event,
    take_observation,
)
from agentcache.replay.formats.record import Record, record_of
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import NOTHING_HIDDEN, Facts, Gap, Hidden, Link, Message, Origin, Session
from agentcache.waits import WaitKind

_DELEGATE = "delegate"
_SUB_AGENTS = "subagents"


class OpenHandsReader:
    """Events in a list, one a line or a directory of them; `{instance_id, history: [events]}`; `{messages, tools}`."""

    format = "OpenHands"
    description = "events (0.x and SDK; .json, .jsonl, directories) and training exports (from documentation)"
    document_is_session = False

    def accepts(self, first: Document) -> bool:
        value = first.value
        if isinstance(value, list):
            return _are_events(value)
        if not isinstance(value, dict) or "trajectory_format" in value:
            return False
        exported = isinstance(value.get("messages"), list) and bool(value.keys() & {"tools", "resolved"})
        return exported or is_event(value) or _are_events(value.get("history"))

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]:
        """Cost: the events of one conversation in memory, and of conversations in directories when their calls were."""
        logs: dict[Path, _Log] = {}
        for source in files:
            documents = source.documents()
            first = next(documents, None)
            if first and (source.parts or is_event(first.value)):
                yield from _of_pieces(source, chain([first], documents), logs)
            elif first:
                yield from _of_documents(source, chain([first], documents))


def _are_events(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and is_event(value[0])


def _of_documents(source: Source, documents: Iterable[Document]) -> Iterator[Session]:
    """Each document a conversation."""
    names = Names()
    for document in documents:
        value = {"history": document.value} if isinstance(document.value, list) else document.value
        record = record_of(value, document)
        fallback = f"{source.stem}-{document.line}" if document.line else source.stem
        name = names.new(record.name("instance_id") or fallback)
        if "messages" in record:
            yield _exported(record, name)
        else:
            log = _Log(name, names, record.name("instance_id"))
            yield from log.read(record.children("history")).sessions(document.place)


def _of_pieces(source: Source, documents: Iterable[Document], logs: "dict[Path, _Log]") -> Iterator[Session]:
    """All documents one conversation; `logs`: those of the directories before it, among which its parent may be."""
    here = source.path.parent
    parent = logs.get(here.parent) if here.name == _SUB_AGENTS else None
    name = f"{parent.name}/{source.stem}" if parent else source.stem
    log = logs[source.path] = _Log(name, Names()).read(_once(documents))
    if parent:
        log.begin_below(parent)
    yield from log.sessions(str(source.path))


def _once(documents: Iterable[Document]) -> Iterator[Record]:
    """The events of all documents, each a page or one event; what is in a page and alone is told once."""
    told: set[str] = set()
    for document in documents:
        page = document.value if isinstance(document.value, list) else None
        events = Record({"": page}, document).children("") if page else [record_of(document.value, document)]
        for event in events:
            name = event.name("id")
            if not name or name not in told:
                yield event
            told.add(name)


@dataclass(slots=True)
class _Agent:
    """An agent as far as its events are read.

    `call`: the tool call of its parent that it answers; `before_s`: when that call's answer was whole; `task`: what it
    was given to do, until it is told in a message
    """

    name: str
    parent: str = ""
    after_call: int = 0
    before_s: float | None = None
    call: str = ""
    task: str = ""
    dialogue: Dialogue = field(default_factory=Dialogue)
    hidden: Hidden = NOTHING_HIDDEN

    def session(self, place: str, group: str) -> Session:
        start_s = self.dialogue.start_s
        link = Link.SPAWN if self.parent else Link.NONE
        origin = Origin(self.parent, link, self.after_call, start_s, group)
        calls = tuple(self.dialogue.calls(Gap(seconds=between(self.before_s, start_s))))
        return Session(self.name, calls, place, origin=origin, hidden=self.hidden)


class _Log:
    """A list of events, of one agent and of those that it began, each of which acts until it is done."""

    def __init__(self, name: str, names: Names, group: str = "") -> None:
        self._names = names
        self._group = group
        self._agents = [_Agent(name)]
        self._acting = self._agents[:]
        self._latest_s = float("-inf")

    @property
    def name(self) -> str:
        return self._agents[0].name

    def begin_below(self, parent: "_Log") -> None:
        """Tell that this conversation was begun by that one, after the calls that had ended."""
        agent = self._agents[0]
        start_s = agent.dialogue.start_s or 0.0
        ended = [end_s for end_s in parent._agents[0].dialogue.ends if end_s <= start_s]
        agent.parent, agent.after_call = parent.name, len(ended)
        agent.before_s = ended[-1] if ended else None

    def read(self, events: Iterable[Record]) -> "_Log":
        """Errors: BAD_TRACE, also for a time before the one before it."""
        for event in events:
            at_s = event.moment("timestamp")
            if at_s is not None:
                if at_s < self._latest_s:
                    raise event.early("timestamp")
                self._latest_s = at_s
            self._take(event, Happened(event.name("id"), at_s))
        return self

    def sessions(self, place: str) -> Iterator[Session]:
        """Its agents, as they began."""
        return (agent.session(place, self._group) for agent in self._agents)

    def _take(self, event: Record, happened: Happened) -> None:
        """Of the SDK, each agent's events are in a list of their own."""
        agent = self._acting[-1]
        if "kind" not in event:
            self._take_first_version(event, agent, happened)
            return
        if event.text("kind") == "SystemPromptEvent":
            agent.hidden = tools_prefix(event)
        take_event(event, agent.dialogue, happened)

    def _take_first_version(self, event: Record, agent: _Agent, happened: Happened) -> None:
        action = event.text("action")
        if event.text("observation") == _DELEGATE and len(self._acting) > 1:
            self._acting.pop()
            take_observation(event, self._acting[-1].dialogue, happened, agent.call)
            return
        if action == "system":
            agent.hidden = tools_prefix(event.child("args"))
        answers = is_answer(event)
        if answers and agent.task and not agent.dialogue.asked:
            agent.dialogue.ask(said("user", f"TASK: {agent.task}"), WaitKind.UNKNOWN, happened)
        take_event(event, agent.dialogue, happened)
        if answers and action == _DELEGATE:
            self._begin(event, agent)

    def _begin(self, event: Record, parent: _Agent) -> None:
        ends = parent.dialogue.ends
        begun = _Agent(
            self._names.new(f"{parent.name}/{event.name('id')}"),
            parent.name,
            parent.dialogue.answers,
            ends[-1] if ends else None,
            call_of(event, "id"),
            event.child("args").child("inputs").text("task"),
        )
        self._agents.append(begun)
        self._acting.append(begun)


def _exported(record: Record, name: str) -> Session:
    told = record.children("messages")
    messages = [_sent(one) for one in told]
    answers = asked_first(told, [at for at, message in enumerate(messages) if message["role"] == "assistant"])

    def facts(turn: int, at: int) -> Facts:
        gap = Gap(wait_after(messages[at - 1])) if turn else Gap()
        return Facts(
            gap,
            finish=finish_by(messages[at]),
            tools=tools_of(Record(messages[at], record.document, told[at].at)),
        )

    calls = tuple(cut(messages, answers, facts))
    origin = Origin(group=record.name("instance_id"))
    return Session(name, calls, record.document.place, origin=origin, hidden=tools_prefix(record))


def _sent(record: Record) -> Message:
    """Older exports have one call, `function_call`, without an id."""
    function = record.child("function_call")
    if not function.value:
        return sent(record)
    call = called("", function.text("name"), function.text("arguments"))
    return sent(Record({**record.value, "tool_calls": [call]}, record.document, record.at))

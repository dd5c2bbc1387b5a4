"""Reader for OpenHands: the event lists of its first version and of its SDK, and the exports made for training.

From documentation, except for the shape of the exports. Event lists do not have the prompts: they are put together
from the events, one call for each response of the model, without what the agent's memory may have cut. What a
condenser takes out is taken out. Sub-agents (`delegate`) are told with the agent that began them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from agentcache.replay.formats.aiperf import tools_prefix
from agentcache.replay.formats.conversation import cut, finish_by, sent, tools_of, wait_after
from agentcache.replay.formats.dialogue import Dialogue, Happened, called, texts_of
from agentcache.replay.formats.history import Names, said
from agentcache.replay.formats.record import Record, record_of
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import Facts, Gap, Hidden, Message, Place, Session
from agentcache.waits import WaitKind

_UNSAID = frozenset({"agent_state_changed", "change_agent_state", "null", "recall", "stop"})


class OpenHandsReader:
    """A list of events, or `{instance_id, history: [events]}`, or `{messages, tools}`."""

    format = "OpenHands"
    description = "event lists (0.x and SDK) and training exports (.json, .jsonl; from documentation)"
    document_is_session = True

    def accepts(self, first: Document) -> bool:
        value = first.value
        if isinstance(value, list):
            return _is_event(value[:1])
        if not isinstance(value, dict) or "trajectory_format" in value:
            return False
        exported = isinstance(value.get("messages"), list) and bool(value.keys() & {"tools", "resolved"})
        return exported or _is_event(value.get("history"))

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]:
        for source in files:
            names = Names()
            for document in source.documents():
                value = {"history": document.value} if isinstance(document.value, list) else document.value
                record = record_of(value, document)
                fallback = f"{source.stem}-{document.line}" if document.line else source.stem
                name = names.new(record.name("instance_id") or fallback)
                yield _exported(record, name) if "messages" in record else _logged(record, name)


def _is_event(events: Any) -> bool:
    if not isinstance(events, list) or not events or not isinstance(events[0], dict):
        return False
    return "source" in events[0] and bool(events[0].keys() & {"action", "observation", "kind"})


def _exported(record: Record, name: str) -> Session:
    told = record.children("messages")
    messages = [_sent(one) for one in told]
    answers = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    if answers and answers[0] == 0:
        raise told[0].bad("role", "is 'assistant', but no answer can come first")

    def facts(turn: int, at: int) -> Facts:
        gap = Gap(wait_after(messages[at - 1])) if turn else Gap()
        return Facts(
            gap,
            finish=finish_by(messages[at]),
            tools=tools_of(Record(messages[at], record.document, told[at].at)),
        )

    calls = tuple(cut(messages, answers, facts))
    among = Place(group=record.name("instance_id"))
    return Session(name, calls, record.document.place, among=among, hidden=tools_prefix(record))


def _sent(record: Record) -> Message:
    """Older exports have one call, `function_call`, without an id."""
    function = record.child("function_call")
    if not function.value:
        return sent(record)
    call = called("", function.text("name"), function.text("arguments"))
    return sent(Record({**record.value, "tool_calls": [call]}, record.document, record.at))


def _logged(record: Record, name: str) -> Session:
    dialogue, latest_s = Dialogue(), float("-inf")
    hidden = Hidden()
    for event in record.children("history"):
        at_s = event.moment("timestamp")
        if at_s is not None and at_s < latest_s:
            raise event.bad("timestamp", "is earlier than that of the event before it")
        latest_s = latest_s if at_s is None else at_s
        happened = Happened(event.name("id"), at_s)
        if event.text("kind") == "SystemPromptEvent":
            hidden = tools_prefix(event)
        if "kind" in event:
            _of_sdk(event, dialogue, happened)
        elif "action" in event:
            _action(event, dialogue, happened)
        else:
            _observation(event, dialogue, happened)
    among = Place(start_s=dialogue.start_s, group=record.name("instance_id"))
    return Session(name, tuple(dialogue.calls()), record.document.place, among=among, hidden=hidden)


def _action(event: Record, dialogue: Dialogue, happened: Happened) -> None:
    """Of version 0: something the agent does, or somebody says."""
    kind, arguments = event.text("action"), event.child("args")
    if kind == "condensation":
        _condense(arguments, dialogue)
    elif kind == "system":
        dialogue.ask(said("system", arguments.text("content")), WaitKind.UNKNOWN, happened)
    elif kind in _UNSAID:
        return
    elif event.text("source") != "agent":
        text = arguments.text("content") or event.text("message")
        dialogue.ask(said("user", text), WaitKind.HUMAN, happened)
    else:
        metadata = event.child("tool_call_metadata")
        response = metadata.child("model_response")
        text = arguments.text("content" if kind == "message" else "thought")
        message = {**said("assistant", text), "tool_calls": list(_call(event, metadata))}
        dialogue.answer(response.text("id"), message, happened)
        if response.value:
            _usage(dialogue, response)


def _call(event: Record, metadata: Record) -> Iterator[Mapping[str, Any]]:
    kind = event.text("action")
    if metadata.value:
        names = metadata.text("tool_call_id"), metadata.text("function_name")
    elif kind == "message":
        return
    else:
        names = f"event {event.name('id')}", kind
    arguments = {name: value for name, value in event.child("args").value.items() if name != "thought"}
    yield called(*names, json.dumps(arguments))


def _usage(dialogue: Dialogue, response: Record) -> None:
    usage = response.child("usage")
    details = usage.child("prompt_tokens_details")
    dialogue.note(
        Facts(
            prompt_tokens=usage.count("prompt_tokens"),
            output_tokens=usage.count("completion_tokens"),
            cached_tokens=details.count("cached_tokens") if "cached_tokens" in details else None,
            model=response.text("model"),
        )
    )


def _observation(event: Record, dialogue: Dialogue, happened: Happened) -> None:
    """Of version 0: what became of an action."""
    event.need("observation")
    kind, text = event.text("observation"), event.text("content") or event.text("message")
    if kind in _UNSAID:
        return
    called_as = event.child("tool_call_metadata").text("tool_call_id") or f"event {event.name('cause')}"
    dialogue.ask({**said("tool", text), "tool_call_id": called_as}, WaitKind.TOOL, happened)


def _condense(arguments: Record, dialogue: Dialogue) -> None:
    first, last = arguments.count("forgotten_events_start_id"), arguments.count("forgotten_events_end_id")
    forgotten = [str(name) for name in arguments.items("forgotten_event_ids")]
    if "forgotten_events_start_id" in arguments and "forgotten_events_end_id" in arguments:
        forgotten += dialogue.names(lambda name: name.isdigit() and first <= int(name) <= last)
    _forget(arguments, forgotten, dialogue)


def _forget(record: Record, names: Sequence[str], dialogue: Dialogue) -> None:
    summary = record.text("summary")
    message = said("user", summary) if summary else None
    dialogue.forget(names, message, record.count("summary_offset"))


def _of_sdk(event: Record, dialogue: Dialogue, happened: Happened) -> None:
    kind = event.text("kind")
    if kind == "Condensation":
        _forget(event, [str(name) for name in event.items("forgotten_event_ids")], dialogue)
    elif kind in _SDK:
        _SDK[kind](event, dialogue, happened)


def _system(event: Record, dialogue: Dialogue, happened: Happened) -> None:
    dialogue.ask(said("system", texts_of(event, "system_prompt")), WaitKind.UNKNOWN, happened)


def _message(event: Record, dialogue: Dialogue, happened: Happened) -> None:
    event.need("llm_message")
    told = event.child("llm_message")
    message = said(told.text("role") or "user", texts_of(told, "content"))
    if message["role"] == "assistant":
        dialogue.answer(event.text("llm_response_id"), message, happened)
    else:
        dialogue.ask(message, WaitKind.HUMAN, happened)


def _sdk_action(event: Record, dialogue: Dialogue, happened: Happened) -> None:
    event.need("tool_call_id", "tool_name")
    told = event.child("tool_call")
    arguments = told.text("arguments") or told.child("function").text("arguments")
    call = called(event.text("tool_call_id"), event.text("tool_name"), arguments)
    message = {**said("assistant", texts_of(event, "thought")), "tool_calls": [call]}
    dialogue.answer(event.text("llm_response_id"), message, happened)


def _sdk_result(event: Record, dialogue: Dialogue, happened: Happened) -> None:
    observation = event.child("observation")
    text = texts_of(observation, "content") or observation.text("output")
    text = text or event.text("error") or event.text("rejection_reason")
    message = {**said("tool", text), "tool_call_id": event.text("tool_call_id")}
    dialogue.ask(message, WaitKind.TOOL, happened)


_SDK: dict[str, Callable[[Record, Dialogue, Happened], None]] = {
    "SystemPromptEvent": _system,
    "MessageEvent": _message,
    "ActionEvent": _sdk_action,
    "ObservationEvent": _sdk_result,
    "AgentErrorEvent": _sdk_result,
    "UserRejectObservation": _sdk_result,
}
"""What a prompt is made of; other kinds tell of the run."""

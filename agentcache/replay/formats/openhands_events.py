"""What an event of OpenHands says: of its first version (`action`, `observation`), or of its SDK (`kind`)."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agentcache.replay.formats.dialogue import Dialogue, Happened, called, texts_of
from agentcache.replay.formats.history import said
from agentcache.replay.formats.record import Record
from agentcache.replay.trace import Facts
from agentcache.waits import WaitKind

_UNSAID = frozenset({"agent_state_changed", "change_agent_state", "null", "recall", "stop"})


def is_event(value: Any) -> bool:
    """Whether it looks like an event of either version."""
    return (
        isinstance(value, dict)
        and "source" in value
        and bool(value.keys() & {"action", "observation", "kind"})
    )


def is_answer(event: Record) -> bool:
    """Of version 0: whether it is a part of what the model said."""
    action = event.text("action")
    return event.text("source") == "agent" and action not in _UNSAID | {"", "system", "condensation"}


def call_of(event: Record, action: str) -> str:
    """The tool call of an event; one that has none is named by its action, whose number is the field `action`."""
    return event.child("tool_call_metadata").text("tool_call_id") or f"event {event.name(action)}"


def take_event(event: Record, dialogue: Dialogue, happened: Happened) -> None:
    """Put one event into the conversation of the agent that sees it. Errors: BAD_TRACE."""
    if "kind" in event:
        _of_sdk(event, dialogue, happened)
    elif "action" in event:
        _action(event, dialogue, happened)
    else:
        event.need("observation")
        take_observation(event, dialogue, happened, call_of(event, "cause"))


def take_observation(event: Record, dialogue: Dialogue, happened: Happened, called_as: str) -> None:
    """Of version 0: what became of an action."""
    kind, text = event.text("observation"), event.text("content") or event.text("message")
    if kind not in _UNSAID:
        dialogue.ask({**said("tool", text), "tool_call_id": called_as}, WaitKind.TOOL, happened)


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
    if kind == "message" and not metadata.value:
        return
    arguments = {name: value for name, value in event.child("args").value.items() if name != "thought"}
    yield called(call_of(event, "id"), metadata.text("function_name") or kind, json.dumps(arguments))


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

"""Reader for mini-swe-agent trajectories, versions 1 and 2, and the bare message lists of old ones.

Every assistant message is one call; its prompt is all the messages before it. Only what the agent sent is kept:
role, content and the tool fields, never `extra`, and not the `exit` message with which version 2 ends its files.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from agentcache.errors import CacheError, Kind
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import Call, Message, Session

SENT_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name")


class MiniSweReader:
    """`{messages, trajectory_format, instance_id, info}`, or a list of messages; one document a session."""

    format = "mini-swe-agent"

    def accepts(self, first: Document) -> bool:
        value = first.value
        if isinstance(value, list):
            return bool(value) and isinstance(value[0], dict) and "role" in value[0]
        if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
            return False
        return str(value.get("trajectory_format", self.format)).startswith(self.format)

    def sessions(self, source: Source) -> Iterator[Session]:
        for document in source.documents():
            yield read_session(document, source.stem)


def read_session(document: Document, stem: str) -> Session:
    """The session of one document; without an `instance_id` it is named after its file and line.

    Errors  CacheError(BAD_TRACE) naming the place and the message that is wrong
    """
    fallback = f"{stem}-{document.line}" if document.line else stem
    value = document.value if isinstance(document.value, dict) else {"messages": document.value}
    messages = value.get("messages")
    if not isinstance(messages, list):
        raise _bad(document, "has no list of messages")
    sent = [_sent(message, number, document) for number, message in enumerate(messages)]
    spoken = [message for message in sent if message["role"] != "exit"]
    return Session(str(value.get("instance_id") or fallback), _calls(spoken, document), document.place)


def _calls(sent: list[Message], document: Document) -> tuple[Call, ...]:
    """Cut the conversation at its assistant messages: `added [from, at) | recorded at | next from at`."""
    answers = [at for at, message in enumerate(sent) if message["role"] == "assistant"]
    if answers and answers[0] == 0:
        raise _bad(document, "begins with an assistant message: its prompt is missing")
    starts = [0, *answers]
    return tuple(
        Call(start, tuple(sent[start:at]), sent[at]) for start, at in zip(starts, answers, strict=False)
    )


def _sent(message: Any, number: int, document: Document) -> Message:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise _bad(document, f"has no role in message {number}")
    content = message.get("content")
    without_text = content is None and (message.get("tool_calls") or message["role"] == "exit")
    if not isinstance(content, str | list) and not without_text:
        raise _bad(document, f"has no content in message {number} ({message['role']})")
    return _clean({name: message[name] for name in SENT_FIELDS if message.get(name) is not None})


def _clean(message: dict[str, Any]) -> Mapping[str, Any]:
    """The message with half surrogate pairs, which no JSON over HTTP can carry, replaced by U+FFFD."""
    content = message.get("content")
    if isinstance(content, str) and any("\ud800" <= character <= "\udfff" for character in content):
        message["content"] = content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return message


def _bad(document: Document, what: str) -> CacheError:
    message = f"{document.place} {what}: not a whole mini-swe-agent trajectory. Repair or remove it"
    return CacheError(Kind.BAD_TRACE, message)

"""What a trace is, whatever file it came from: sessions of calls, each call a change of the history.

A reader (one for each format, `readers.py`) makes these values; everything after it knows no format.

    Trace ─► Session ─► Call = what of the history stays, what is added, what is known of time and tokens

A prompt is told in messages (text that a tokenizer makes tokens of) or in blocks (ids of whole blocks of
`block_tokens` tokens each, from traces that hide their text). A session is told in one of the two.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agentcache.waits import WaitKind

CHARACTERS_PER_TOKEN = 4
"""What a token of a text is taken for where nothing counts it."""

LATEST_S = 4e9
"""No moment is later and no wait longer: two of them fit into 64 bits of nanoseconds."""

Message = Mapping[str, Any]
"""One chat message as it is sent: `role` and `content`, and the tool fields where the trace has them."""


class Link(StrEnum):
    """How a session began below its parent."""

    NONE = "none"
    SPAWN = "spawn"  # with a prompt of its own
    FORK = "fork"  # with the parent's history up to `after_call`


@dataclass(frozen=True, slots=True)
class Gap:
    """The time before a call, from the end of the answer before it (or from where the session begins).

    `seconds` None: the trace does not say. `measured` False: a part of a time that the trace has only as a whole.
    """

    kind: WaitKind = WaitKind.UNKNOWN
    seconds: float | None = None
    measured: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """What a trace tells of one call. 0 tokens and None: it does not say.

    Units  `api_s`: seconds from sending to the end of the answer; tokens are the provider's
           `cached_tokens`: what the provider says that it had of the prompt
           `finish`: why the answer ended, as OpenAI's API says it: stop, tool_calls, length
           `tools`: name of each tool that the answer calls, and the seconds that it took
    """

    gap: Gap = Gap()
    api_s: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None
    finish: str = ""
    model: str = ""
    tools: tuple[tuple[str, float | None], ...] = ()


NOTHING_KNOWN = Facts()


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the model, as a change of the history that the call before it was given.

    `keep` leading messages (or blocks) of that history stay and `added` (or `blocks`) follow them, so an append
    (keep = all), a truncation and a rewrite are the same value. `recorded` is what the model answered in the trace; it
    is history for later calls only where their `added` holds it.
    """

    keep: int
    added: tuple[Message, ...] = ()
    recorded: Message = field(default_factory=dict)
    blocks: tuple[int, ...] = ()
    facts: Facts = NOTHING_KNOWN


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a session comes from: from which other one, when, and of which task.

    `parent` is the name of another session of the same file; `after_call` counts that session's calls that had ended
    when this one began. `start_s` is seconds on the trace's own clock (since 1970 where it says that), so that only
    differences count; None where only the session's own times are known. `group` names the task, the same for all
    its sessions (runs, trials).
    """

    parent: str = ""
    link: Link = Link.NONE
    after_call: int = 0
    start_s: float | None = None
    group: str = ""


ALONE = Origin()


@dataclass(frozen=True, slots=True)
class Hidden:
    """A prefix that was sent and is not in the trace (tools, a system prompt): equal `name`s are equal prefixes.

    In a session told in blocks it is the first `tokens` of those, which all sessions of that name share.
    """

    name: str = ""
    tokens: int = 0


NOTHING_HIDDEN = Hidden()


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation. `name` is unique in its file only; `place` says where it was read, for messages.

    `block_tokens` 0: told in messages. Otherwise in blocks of so many tokens, whose ids are equal in the whole trace
    (`scope` "") or only in sessions of the same `scope`.
    """

    name: str
    calls: tuple[Call, ...]
    place: str
    block_tokens: int = 0
    scope: str = ""
    origin: Origin = ALONE
    hidden: Hidden = NOTHING_HIDDEN

    @property
    def has_text(self) -> bool:
        """Whether messages tell every prompt."""
        return not self.block_tokens and all(call.keep + len(call.added) for call in self.calls)

    def prompts(self) -> Iterator[list[Message]]:
        """The messages that each call sends, in order; built call by call, a list of its own for each.

        Cost  O(messages) references a call; no text is copied
        """
        history: list[Message] = []
        for call in self.calls:
            history = [*history[: call.keep], *call.added]
            yield list(history)

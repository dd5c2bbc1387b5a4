"""The names by which agent tools say which session, and what else, a request belongs to."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agentcache.web.fields import Fields
from agentcache.web.headers import RequestHeaders

BODY_SESSION: Final = "session_id"
"""Of the body: as much ours as others', and therefore read as strictly as our header."""


class Role(StrEnum):
    """What a name says about the request."""

    SESSION = "session"
    PARENT = "parent"
    AGENT = "agent"  # a sub-agent of the session: with it, SESSION/AGENT is the session
    PARENT_AGENT = "parent agent"
    SUPERSEDED = "superseded"
    FINAL = "final"
    FAMILY = "family"
    NEVER = "never read"


class Place(StrEnum):
    HEADER = "header"
    BODY = "body"


@dataclass(frozen=True, slots=True)
class Row:
    """One name. `group`: names that speak of one session; what a group says of a session other than the one taken
    is left out. Headers are in lower case with dashes, fields of the body are paths."""

    role: Role
    place: Place
    name: str
    group: str
    senders: str


def _rows(place: Place, group: str, senders: str, roles: Mapping[str, Role]) -> tuple[Row, ...]:
    return tuple(Row(role, place, name, group, senders) for name, role in roles.items())


_HEADER, _BODY = Place.HEADER, Place.BODY

TABLE: Final[tuple[Row, ...]] = (
    *_rows(_HEADER, "plain", "vLLM, llm-d, AIBrix, OpenCode", {"x-session-id": Role.SESSION}),
    *_rows(_BODY, "plain", "SGLang, vLLM, OpenRouter", {BODY_SESSION: Role.SESSION}),
    *_rows(_BODY, "plain", "vLLM", {"vllm_xargs.session_id": Role.SESSION}),
    *_rows(
        _HEADER,
        "plain",
        "Fireworks, Cloudflare, Mistral, OpenCode, llm-d",
        {"x-session-affinity": Role.SESSION},
    ),
    *_rows(
        _HEADER,
        "claude",
        "Claude Code",
        {
            "x-claude-code-session-id": Role.SESSION,
            "x-claude-code-agent-id": Role.AGENT,
            "x-claude-code-parent-agent-id": Role.PARENT_AGENT,
            "x-claude-code-compaction": Role.SUPERSEDED,
            "x-claude-code-context-compacted": Role.SUPERSEDED,
        },
    ),
    *_rows(
        _HEADER,
        "codex",
        "Codex",
        {
            "thread-id": Role.SESSION,
            "session-id": Role.SESSION,
            "x-codex-parent-thread-id": Role.PARENT,
        },
    ),
    *_rows(_HEADER, "plain", "OpenCode", {"x-opencode-session": Role.SESSION}),
    *_rows(_HEADER, "plain", "OpenCode", {"x-parent-session-id": Role.PARENT}),
    *_rows(_BODY, "plain", "SGLang (proposed)", {"parent_session_id": Role.PARENT}),
    *_rows(
        _HEADER,
        "dynamo",
        "Dynamo",
        {
            "x-dynamo-session-id": Role.SESSION,
            "x-dynamo-parent-session-id": Role.PARENT,
            "x-dynamo-session-final": Role.FINAL,
        },
    ),
    *_rows(
        _BODY,
        "dynamo",
        "Dynamo",
        {
            "nvext.agent_context.session_id": Role.SESSION,
            "nvext.agent_context.parent_session_id": Role.PARENT,
            "nvext.agent_context.session_final": Role.FINAL,
            "nvext.agent_context.compaction": Role.SUPERSEDED,
            "agent_context.session_id": Role.SESSION,
            "agent_context.parent_session_id": Role.PARENT,
            "agent_context.session_final": Role.FINAL,
            "agent_context.compaction": Role.SUPERSEDED,
        },
    ),
    *_rows(_HEADER, "litellm", "LiteLLM, OpenHands", {"x-litellm-session-id": Role.SESSION}),
    *_rows(
        _BODY,
        "litellm",
        "LiteLLM",
        {"litellm_session_id": Role.SESSION, "metadata.session_id": Role.SESSION},
    ),
    *_rows(_HEADER, "sglang", "SGLang (proposed)", {"x-sglang-session-id": Role.SESSION}),
    *_rows(_HEADER, "xai", "xAI", {"x-grok-conv-id": Role.SESSION}),
    *_rows(_HEADER, "vertex", "Vertex AI", {"x-vertex-ai-session-id": Role.SESSION}),
    *_rows(_HEADER, "bifrost", "Bifrost", {"x-bf-session-id": Role.SESSION}),
    *_rows(_HEADER, "aibrix", "AIBrix", {"x-aibrix-session-key": Role.SESSION}),
    *_rows(_HEADER, "smg", "SMG", {"x-smg-routing-key": Role.SESSION}),
    *_rows(_BODY, "openai", "OpenAI, Codex", {"prompt_cache_key": Role.FAMILY}),
    *_rows(_HEADER, "mcp", "MCP (a tool's session)", {"mcp-session-id": Role.NEVER}),
)
"""Names of others, first one first. The first session that can be one is taken."""


def spellings(row: Row) -> tuple[str, ...]:
    """The names of a header; a proxy may have made underscores of dashes."""
    underscored = row.name.replace("-", "_")
    return (row.name,) if underscored == row.name else (row.name, underscored)


def _places(names: Iterable[tuple[str, int]]) -> Mapping[str, tuple[int, ...]]:
    """Positions in the table by name."""
    found: dict[str, tuple[int, ...]] = {}
    for name, position in names:
        found[name] = (*found.get(name, ()), position)
    return found


_BY_HEADER: Final = _places(
    (name, position)
    for position, row in enumerate(TABLE)
    if row.place is Place.HEADER
    for name in spellings(row)
)
_BY_FIELD: Final = _places(
    (row.name.partition(".")[0], position) for position, row in enumerate(TABLE) if row.place is Place.BODY
)
"""By the outermost field of their path."""


def sent(headers: RequestHeaders, fields: Fields) -> Mapping[Role, Sequence[Row]]:
    """The rows whose names are there, in the order of the table."""
    positions = {place for name in _BY_HEADER.keys() & headers.names for place in _BY_HEADER[name]}
    positions.update(place for name in _BY_FIELD.keys() & fields.values.keys() for place in _BY_FIELD[name])
    found: dict[Role, list[Row]] = {}
    for position in sorted(positions):
        found.setdefault(TABLE[position].role, []).append(TABLE[position])
    return found

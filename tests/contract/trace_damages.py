"""What is damaged in the golden traces of each format, and what is said of it; `test_trace_readers.py` does it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TEXT, NUMBER, LIST, OBJECT = "not a text", "not a number", "not a list", "not an object"
COUNT = "not a whole number from 0 on"
TIME = "not a time as 2026-01-31T12:00:00Z"
NEGATIVE = "a negative time"
NO_CLOCK = "a time that no clock has"
EARLY = "earlier than the one before it"
PART = "neither a text nor a list of parts"
FIRST = "is 'assistant', but no answer can come first"
NO_OBJECT = "is not an object"
NO_NUMBER = "holds something that is not a whole number"


@dataclass(frozen=True)
class Damage:
    """A field of a golden file replaced, and what is said of it, or of another one.

    `line` counts from 1 and is 0 in a file that is one document; `field` is the way to it, as errors name it.
    """

    line: int
    field: str
    to: Any
    said: str
    of: tuple[int, str] = (-1, "")


def wrong(line: int, field: str, to: Any, wanted: str) -> Damage:
    """The error shows what is there."""
    return Damage(line, field, to, f"is {to!r}, {wanted}")


def missing(line: int, field: str) -> Damage:
    return Damage(line, field, None, "is missing")


BLOCKS: Mapping[str, Sequence[Damage]] = {
    "weka.jsonl": (
        wrong(1, "requests", "many", LIST),
        Damage(1, "requests[1]", 7, NO_OBJECT),
        wrong(1, "block_size", 0, "not at least 1 token"),
        wrong(1, "tool_tokens", -1, COUNT),
        missing(1, "requests[1].t"),
        wrong(1, "requests[1].t", float("nan"), NUMBER),
        wrong(1, "requests[1].in", "21", COUNT),
        Damage(1, "requests[1].hash_ids", [1, 2], "has 2 blocks, too few for 21 tokens"),
        Damage(1, "requests[1].hash_ids[4]", "5", NO_NUMBER, (1, "requests[1].hash_ids")),
        wrong(1, "requests[1].stop", 3, TEXT),
        wrong(1, "requests[1].api_time", -2.0, NEGATIVE),
        wrong(1, "requests[1].api_time", 1e17, NO_CLOCK),
        wrong(1, "requests[1].think_time", [], NUMBER),
        wrong(1, "requests[1].input_types", "text", LIST),
        wrong(1, "requests[2].duration_ms", "13", NUMBER),
    ),
    "mooncake.jsonl": (
        wrong(2, "timestamp", "6", NUMBER),
        wrong(6, "timestamp", 9e16, NO_CLOCK),
        missing(2, "timestamp"),
        wrong(2, "input_length", -4, COUNT),
        wrong(2, "output_length", "x", COUNT),
        wrong(2, "hash_ids", "12", LIST),
        Damage(2, "hash_ids", [1], "has 1 blocks, too few for 1024 tokens"),
        Damage(2, "hash_ids", [1, None], NO_NUMBER),
    ),
    "dynamo.jsonl": (
        wrong(1, "version", 3, "and this agentcache reads version 2"),
        wrong(1, "block_size", 0, "not at least 1 token"),
        wrong(1, "hash_id_scope", "global", "not local"),
        missing(2, "play_id"),
        wrong(2, "request_id", 7, TEXT),
        Damage(3, "request_id", "a0", "is 'a0', which another request has"),
        Damage(2, "input_length", 256, "has 3 blocks, too few for 256 tokens", (2, "hash_ids")),
        Damage(2, "hash_ids", [1, 2.5, 3], NO_NUMBER),
        wrong(2, "not_before_ms", "now", NUMBER),
        wrong(3, "dependencies", {}, LIST),
        Damage(
            3,
            "dependencies[0].request_id",
            "a1",
            "names 'a1', and no line before it is that request",
            (3, "dependencies"),
        ),
        wrong(3, "dependencies[0].trigger", "start", "neither completion nor dispatch"),
        wrong(3, "dependencies[0].delay_ms", -5, NEGATIVE),
        wrong(3, "dependencies[0].delay_ms", "5", NUMBER),
    ),
    "dynamo-waits.jsonl": (
        Damage(3, "wait_for[0]", 1, "is not a text"),
        Damage(3, "wait_for[0]", "r9", "names 'r9', and no line before it is that request", (3, "wait_for")),
        wrong(3, "tool_wait_ms", -1, NEGATIVE),
        wrong(3, "tool_events[0].duration_ms", -1, NEGATIVE),
        wrong(3, "branches", "k1", LIST),
        Damage(2, "hash_ids", [9, 9, 9], "has 3 blocks, which fit 128 tokens at no size of the lines"),
    ),
    "tracelab.jsonl": (
        missing(2, "input_tokens_total"),
        wrong(2, "input_tokens_total", 1.5, COUNT),
        wrong(2, "timing_events", {}, LIST),
        missing(2, "timing_events[0].timestamp"),
        wrong(2, "timing_events[0].timestamp", "5 pm", TIME),
        Damage(1, "tools[0]", "Bash", NO_OBJECT),
        wrong(1, "tools[0].tool_wall_latency_ms", -1, NEGATIVE),
        Damage(2, "session_id", "b", "is 'a' again: sort the lines by session", (3, "session_id")),
    ),
    "azure.csv": (
        wrong(3, "TIMESTAMP", "noon", TIME),
        wrong(3, "ContextTokens", "-1", COUNT),
        wrong(3, "GeneratedTokens", "", COUNT),
        wrong(3, "GeneratedTokens", "2.5", COUNT),
    ),
}
"""Formats without text."""

TEXTS: Mapping[str, Sequence[Damage]] = {
    "claude/s1.jsonl": (
        wrong(2, "timestamp", "noon", TIME),
        wrong(2, "uuid", 5, TEXT),
        wrong(2, "message", "Fix", OBJECT),
        wrong(2, "message.content", 5, LIST),
        missing(3, "message.id"),
        Damage(3, "message.content[0]", "x", NO_OBJECT),
        wrong(6, "message.usage.input_tokens", "9", COUNT),
        wrong(5, "message.content[0].input", "x", OBJECT),
        wrong(7, "message.content[0].content", 1, LIST),
        wrong(3, "message.model", 1, TEXT),
        Damage(2, "parentUuid", "a2", "goes round in a circle", (3, "parentUuid")),
    ),
    "codex.jsonl": (
        missing(3, "timestamp"),
        wrong(3, "timestamp", "noon", TIME),
        wrong(3, "timestamp", "9999-01-01T00:00:00Z", NO_CLOCK),
        wrong(3, "payload", [], OBJECT),
        missing(3, "payload.role"),
        wrong(3, "payload.content", 5, LIST),
        Damage(3, "payload.content[0]", 5, NO_OBJECT),
        missing(9, "payload.call_id"),
        wrong(9, "payload.arguments", {}, TEXT),
        wrong(11, "payload.info", [], OBJECT),
        wrong(11, "payload.info.last_token_usage.input_tokens", -1, COUNT),
        Damage(18, "payload.replacement_history[1]", 1, NO_OBJECT),
    ),
    "openhands-0.jsonl": (
        Damage(1, "history[3]", "x", NO_OBJECT),
        wrong(1, "history[3].timestamp", "soon", TIME),
        wrong(1, "history[3].args", [], OBJECT),
        wrong(1, "history[3].tool_call_metadata.model_response.usage.prompt_tokens", -1, COUNT),
        wrong(1, "history[4].content", 7, TEXT),
        missing(1, "history[4].observation"),
        wrong(1, "history[8].args.forgotten_events_start_id", -1, COUNT),
        wrong(2, "history[2].args.inputs", [], OBJECT),
        wrong(2, "history[2].args.inputs.task", 5, TEXT),
        wrong(2, "history[3].args.tools", {}, LIST),
    ),
    "openhands-sdk.jsonl": (
        missing(1, "history[1].llm_message"),
        missing(1, "history[3].tool_call_id"),
        Damage(1, "history[3].thought[0]", 1, NO_OBJECT),
        wrong(1, "history[7].forgotten_event_ids", "a1", LIST),
    ),
    "openhands-export.jsonl": (
        missing(1, "messages[2].role"),
        wrong(1, "messages[3].content", None, PART),
        Damage(1, "messages[2].tool_calls[0]", 1, NO_OBJECT),
        Damage(1, "messages[0].role", "assistant", FIRST),
    ),
    "miniswe-1.jsonl": (
        wrong(1, "instance_id", 5, TEXT),
        Damage(1, "messages[1]", "text", NO_OBJECT),
        missing(1, "messages[1].role"),
        wrong(1, "messages[1].role", 5, TEXT),
        wrong(1, "messages[1].content", 5, PART),
        wrong(1, "messages[2].content", None, PART),
        Damage(1, "messages[0].role", "assistant", FIRST),
        wrong(1, "messages[2].extra.response.created", True, NUMBER),
        wrong(1, "messages[2].extra.response.usage", [], OBJECT),
        wrong(1, "messages[2].extra.response.usage.prompt_tokens", -1, COUNT),
        wrong(1, "messages[2].extra.response.usage.completion_tokens", 0.5, COUNT),
        Damage(1, "messages[2].extra.response.choices[0]", "stop", NO_OBJECT),
    ),
    "miniswe-2.traj.json": (
        wrong(0, "messages[2].extra.timestamp", float("inf"), NUMBER),
        wrong(0, "messages[3].extra.timestamp", "now", NUMBER),
    ),
    "sweagent.traj": (
        wrong(0, "history", "x", LIST),
        wrong(0, "history[1].content", 5, PART),
        missing(0, "history[1].role"),
        Damage(0, "history[0].role", "assistant", FIRST),
        wrong(0, "history[1].tool_call_ids", "c1", LIST),
        wrong(0, "trajectory[0].execution_time", "1 s", NUMBER),
        wrong(0, "trajectory[0].execution_time", -1, NEGATIVE),
        wrong(0, "trajectory[0].response", [], TEXT),
        wrong(0, "trajectory", 7, LIST),
    ),
    "sweagent-query.traj": (
        Damage(0, "trajectory[0].query", [], "is empty"),
        wrong(0, "trajectory[0].query", "S", LIST),
    ),
    "tau.json": (
        missing(0, "[0].task_id"),
        wrong(0, "[0].task_id", [], TEXT),
        wrong(0, "[1].traj", {}, LIST),
        Damage(0, "[1]", 5, NO_OBJECT),
        Damage(0, "[0].traj[1]", "x", NO_OBJECT),
        missing(0, "[0].traj[1].role"),
        wrong(0, "[0].traj[1].role", 3, TEXT),
        wrong(0, "[0].traj[1].content", None, PART),
        Damage(0, "[0].traj[0].role", "assistant", FIRST),
        wrong(0, "[0].traj[2].tool_calls", {}, LIST),
    ),
    "lmcache.jsonl": (
        wrong(2, "timestamp", "1", NUMBER),
        missing(2, "timestamp"),
        missing(2, "session_id"),
        missing(2, "output"),
        wrong(2, "session_id", ["s"], TEXT),
        wrong(2, "input", ["T"], TEXT),
        wrong(2, "output", 3, TEXT),
    ),
    "aiperf.jsonl": (
        Damage(2, "session_id", "helper", "is 'helper', which another conversation has"),
        missing(2, "session_id"),
        wrong(2, "turns", {}, LIST),
        missing(2, "turns[1].messages"),
        Damage(2, "turns[0].messages", [], "is empty"),
        Damage(2, "turns[1].messages[0]", {}, "is missing", (2, "turns[1].messages[0].role")),
        wrong(2, "turns[1].messages[0].content", None, PART),
        wrong(2, "turns[1].delay", -1, NEGATIVE),
        wrong(2, "turns[1].delay", "1", NUMBER),
        wrong(2, "turns[0].max_tokens", True, COUNT),
        wrong(2, "turns[2].forks", "left", LIST),
        Damage(
            2,
            "turns[2].forks[0]",
            "other",
            "names 'other', which is no conversation of this file",
            (2, "turns[2].forks"),
        ),
        Damage(
            2,
            "turns[2].forks[0]",
            "right",
            "names 'right', which has begun elsewhere",
            (2, "turns[2].forks"),
        ),
        Damage(
            2,
            "turns[0].spawns[0].children",
            ["helper", "helper"],
            "names 'helper', which has begun elsewhere",
            (2, "turns[0].spawns"),
        ),
        Damage(
            3,
            "turns[0].spawns",
            ["plan"],
            "is 'helper', which begins only after itself",
            (1, "session_id"),
        ),
        Damage(
            6,
            "orchestrator",
            True,
            "is there: an orchestrator sends nothing and is not read",
        ),
    ),
    "agentcache.jsonl": (
        *(
            Damage(1, "agentcache_trace", version, f"is {version!r}, and this agentcache reads version 1")
            for version in (2, 0, "1", True, None, 1.0)
        ),
        Damage(2, "name", "a", "is 'a', which another session has"),
        Damage(1, "name", "c", "is 'a', which no session before it has as its name", (2, "among.parent")),
        missing(1, "name"),
        wrong(1, "name", 5, TEXT),
        missing(1, "calls"),
        wrong(1, "calls", {}, LIST),
        Damage(1, "call", [], "is no field of version 1"),
        Damage(1, "place", "x", "is no field of version 1"),
        Damage(1, "origin", {}, "is no field of version 1"),
        missing(1, "calls[0].keep"),
        Damage(1, "calls[0].keep", 1, "is 1, more than the 0 of the call before"),
        Damage(2, "calls[1].keep", 4, "is 4, more than the 3 of the call before"),
        Damage(1, "calls[0].kept", 0, "is no field of version 1"),
        Damage(1, "calls[0].added[0]", "T", NO_OBJECT),
        Damage(1, "calls[0].added[0]", {}, "is missing", (1, "calls[0].added[0].role")),
        wrong(1, "calls[0].recorded", [], OBJECT),
        Damage(1, "calls[0].blocks", [1], "is there, but this session is told in added"),
        Damage(2, "calls[0].added", [{"role": "user"}], "is there, but this session is told in blocks"),
        Damage(2, "calls[0].blocks", [1, True], NO_NUMBER),
        *(
            Damage(2, "calls[1].facts", {"prompt_tokens": tokens}, said, (2, "calls[1].facts.prompt_tokens"))
            for tokens, said in (
                (256, "is 256, and its blocks hold 192"),
                (128, "is 128, and its blocks hold 192"),
                (1e300, "is 1e+300, too large"),
            )
        ),
        wrong(2, "block_tokens", -64, COUNT),
        wrong(2, "among.link", "child", "none of none, spawn, fork"),
        Damage(2, "among.link", "none", "is 'none' of the parent 'a'"),
        Damage(1, "among.link", "fork", "is 'fork' of the parent ''"),
        Damage(2, "hidden.token", 1, "is no field of version 1"),
        wrong(1, "calls[0].facts.gap.measured", 1, "neither true nor false"),
        wrong(1, "calls[0].facts.gap.kind", "tools", "none of tool, human, unknown"),
        wrong(1, "calls[0].facts.gap.seconds", -1, NEGATIVE),
        wrong(1, "calls[0].facts.gap.seconds", -1e300, NEGATIVE),
        wrong(1, "calls[0].facts.gap.seconds", 1e300, NO_CLOCK),
        wrong(1, "among.start_s", 1e300, "too large"),
        Damage(1, "calls[0].facts.tools[0]", ["bash"], "is not a name and its seconds"),
        wrong(1, "calls[0].facts.tools[1][1]", "1", NUMBER),
        wrong(1, "calls[0].facts.api_s", float("inf"), NUMBER),
    ),
}
"""Formats that tell messages, and our own."""

DAMAGES: Mapping[str, Sequence[Damage]] = {**BLOCKS, **TEXTS}

OUT_OF_ORDER: Mapping[str, Damage] = {
    "weka.jsonl": wrong(1, "requests[1].t", -1.5, EARLY),
    "mooncake.jsonl": wrong(3, "timestamp", 2999.5, EARLY),
    "tracelab.jsonl": Damage(
        1,
        "timing_events[0].timestamp",
        "2026-06-01T05:40:06.000Z",
        "begin earlier than those of the round before",
        (2, "timing_events"),
    ),
    "azure.csv": wrong(3, "TIMESTAMP", "2023-11-16 18:15:46.6", EARLY),
    "codex.jsonl": wrong(3, "timestamp", "2026-05-01T05:40:00Z", EARLY),
    "openhands-0.jsonl": wrong(1, "history[3].timestamp", "2026-06-01T05:39:00", EARLY),
    "openhands-sdk.jsonl": wrong(1, "history[3].timestamp", "2026-06-01T05:39:00", EARLY),
    "miniswe-1.jsonl": wrong(1, "messages[4].extra.response.created", 6, EARLY),
    "miniswe-2.traj.json": wrong(0, "messages[4].extra.timestamp", 1.5, EARLY),
}

NO_ORDER: Mapping[str, str] = {
    "claude/s1.jsonl": "a resumed session repeats its lines, and times of a call are those of its own lines",
    "dynamo.jsonl": "requests say what they wait for",
    "dynamo-waits.jsonl": "requests say what they wait for",
    "openhands-export.jsonl": "no times",
    "sweagent.traj": "no times but how long tools took",
    "sweagent-query.traj": "no times but how long tools took",
    "tau.json": "no times",
    "lmcache.jsonl": "lines come in any order and are sorted",
    "aiperf.jsonl": "no times but waits",
    "agentcache.jsonl": "no times but waits, and sessions in any order",
}
"""Files in which no time can be out of order, and why."""

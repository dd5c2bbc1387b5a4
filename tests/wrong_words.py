"""What clients can say wrongly of sessions and their waits: each with the one answer that it gets."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from agentcache import wire

CHAT, SESSIONS = "/v1/chat/completions", "/v1/sessions"
PAUSE, RESUME = f"{SESSIONS}/idle/pause", f"{SESSIONS}/idle/resume"
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
TYPES = {400: "invalid_request_error", 404: "not_found_error", 409: "conflict_error"}
Headers = Mapping[str, str]


class Wrong(NamedTuple):
    """What is sent, and the one answer that it gets. `words` of its message say what to do."""

    method: str
    path: str
    body: object
    headers: Headers
    status: int
    code: str
    param: str | None
    words: str


def wrong_time(said: str, param: str | None = "expected_s", words: str = "expected_s must be ") -> Wrong:
    body = f'{{"expected_s": {said}}}'.encode()
    return Wrong("POST", PAUSE, body, {}, 400, "bad_request", param, words)


def wrong_header(said: str) -> Wrong:
    told = {wire.SESSION: "idle", wire.EXPECTED: said}
    return Wrong(
        "POST", CHAT, HI, told, 400, "bad_request", wire.EXPECTED, "must be seconds from 0 to 1000000000"
    )


def wrong_word(param: str, words: str, **body: object) -> Wrong:
    """Of retention."""
    told = {wire.SESSION: "idle"}
    return Wrong("POST", CHAT, {**HI, **body}, told, 400, "bad_request", param, words)


def wrong_open(status: int, code: str, param: str, words: str, **body: object) -> Wrong:
    return Wrong("POST", SESSIONS, {"session_id": "new", **body}, {}, status, code, param, words)


def of_state(call: str, session: str, status: int, code: str, words: str, **body: object) -> Wrong:
    return Wrong("POST", f"{SESSIONS}/{session}/{call}", body, {}, status, code, None, words)


def marked(**mark: object) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": mark}]}]


MARK = "messages[0].content[0].cache_control"
NO_JSON = "the body is not valid JSON"
WRONG = [
    wrong_time("-1"),
    wrong_time("-0.001"),
    wrong_time("1e10"),
    wrong_time("1" + "0" * 400),
    wrong_time("NaN", None, NO_JSON),
    wrong_time("Infinity", None, NO_JSON),
    wrong_time("-Infinity", None, NO_JSON),
    wrong_time("1e400"),
    wrong_time('"20"'),
    wrong_time("true"),
    wrong_time("[20]"),
    wrong_time("{}"),
    *map(wrong_header, ("-1", "NaN", "nan", "inf", "-inf", "Infinity", "1e400", "1e10", "soon", "20s", "20, 30")),
    Wrong("POST", PAUSE, {"tool": ""}, {}, 400, "bad_request", "tool", "1 to 256 bytes"),
    Wrong("POST", PAUSE, {"tool": "x" * 257}, {}, 400, "bad_request", "tool", "1 to 256 bytes"),
    Wrong("POST", PAUSE, {"tool": "a\x1b[2J"}, {}, 400, "bad_request", "tool", "printable"),
    Wrong("POST", PAUSE, {"tool": 7}, {}, 400, "bad_request", "tool", "a string"),
    Wrong("POST", PAUSE, {"generation": -1}, {}, 400, "bad_request", "generation", "at least 0"),
    Wrong("POST", PAUSE, {"generation": 7}, {}, 409, "session_stale", None, "generation"),
    Wrong("POST", RESUME, {}, {wire.GENERATION: "7"}, 409, "session_stale", None, "generation"),
    Wrong("POST", RESUME, {}, {wire.GENERATION: "new"}, 400, "bad_request", wire.GENERATION, "whole number"),
    *(of_state(call, "closed", 409, "session_closed", "open it again") for call in ("pause", "resume", "touch")),
    *(of_state(call, "nobody", 404, "session_unknown", "open it") for call in ("pause", "resume")),
    wrong_open(400, "bad_request", "fork", "name the parent", fork=True),
    wrong_open(400, "bad_request", "fork", "true or false", fork="yes", parent="idle"),
    wrong_open(404, "session_unknown", "parent", "open it first", fork=True, parent="nobody"),
    wrong_open(409, "session_closed", "parent", "open it again", fork=True, parent="closed"),
    wrong_open(400, "bad_request", "parent", "itself", fork=True, parent="new"),
    wrong_open(400, "bad_request", "parent", "itself", session_id="parent", parent="child", fork=True),
    wrong_open(400, "bad_request", "ttl_s", "between", ttl_s=-1),
    wrong_open(400, "bad_request", "on_close", "must be one of", on_close="keep"),
    wrong_word("prompt_cache_retention", "in_memory or a time", prompt_cache_retention="forever"),
    wrong_word("prompt_cache_retention", "in_memory or a time", prompt_cache_retention="-5m"),
    wrong_word("prompt_cache_retention", "a string", prompt_cache_retention=24),
    wrong_word("prompt_cache_options.ttl", "a time", prompt_cache_options={"ttl": "0s"}),
    wrong_word("prompt_cache_options.mode", "implicit or explicit", prompt_cache_options={"mode": "eager"}),
    wrong_word(f"{MARK}.type", "ephemeral", messages=marked(type="eternal")),
    wrong_word(f"{MARK}.ttl", "a time", messages=marked(type="ephemeral", ttl="a while")),
    wrong_word("kv_hints", "an object", kv_hints="keep"),
    wrong_word("kv_hints.actions", "an array", kv_hints={"actions": "Pin"}),
    wrong_word("kv_hints.actions", "at most 16", kv_hints={"actions": [{"action_type": "Pin"}] * 17}),
]  # fmt: skip

"""How long a prompt is to be kept, in every API's words: read alike, refused by name, and answered."""

from typing import Any

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.web.fields import Fields
from agentcache.web.kv_hints import KV_HINTS
from agentcache.web.retention import (
    BREAKPOINT,
    CACHE_CONTROL,
    NO_SESSION,
    OPTIONS,
    RETENTION,
    USUAL,
    WORDS,
    Leases,
    Outcome,
    Retention,
    has_mark,
    header_text,
    read_retention,
)

LEASES = Leases(usual_s=1800, longest_s=3600)
EPHEMERAL = {"type": "ephemeral"}
EXPLICIT = {"mode": "explicit"}


def read(allowed: bool = True, **body: Any) -> Retention:
    return read_retention(Fields(body), allowed)


def said(retention: Retention, why_not: str = "") -> dict[str, str]:
    """Outcomes by name, for a session that gets what it can."""
    granted_s = LEASES.grant(retention.leases)
    verdicts = retention.verdicts(granted_s, retention.expected_s, why_not)
    return {one.name: str(one.outcome) for one in verdicts}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("in_memory", USUAL), ("in-memory", USUAL), ("24h", 86400), ("90s", 90), ("5m", 300), ("2d", 172800)],
)
def test_openais_retention_is_a_lease(text: str, seconds: float) -> None:
    assert read(prompt_cache_retention=text).leases == {"prompt_cache_retention": seconds}


def test_a_request_that_says_nothing_asks_for_nothing() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    nothing = read(messages=messages, prompt_cache_retention=None, cache_control=None)
    assert nothing == Retention({})
    assert LEASES.grant(nothing.leases) == 0
    assert header_text(tuple(nothing.verdicts(0, 0))) == ""


def test_the_longest_of_all_that_is_asked_for_counts_and_never_more_than_the_longest_there_is() -> None:
    marks = [{**EPHEMERAL, "ttl": "5m"}, {**EPHEMERAL, "ttl": "10m"}]
    asked = read(system=[{"type": "text", "text": "s", "cache_control": mark} for mark in marks])
    assert asked.leases == {"cache_control.ttl": 600}
    assert LEASES.grant(asked.leases) == 600
    both = read(prompt_cache_retention="24h", prompt_cache_options={"ttl": "30m"})
    assert LEASES.grant(both.leases) == 3600
    assert said(both) == {"prompt_cache_retention": "clipped", "prompt_cache_options.ttl": "accepted"}


def test_the_usual_lease_can_be_asked_for_again() -> None:
    usual = read(prompt_cache_retention="in_memory")
    assert LEASES.grant(usual.leases) == 1800
    assert said(usual) == {"prompt_cache_retention": "accepted"}


def test_without_a_session_there_is_nothing_that_could_have_a_lease() -> None:
    asked = read(prompt_cache_retention="5m", kv_hints=hints({"expected_s": 3}, "Prefetch"))
    assert set(said(asked, NO_SESSION).values()) == {"ignored"}
    text = header_text(tuple(asked.verdicts(300, 0, NO_SESSION)))
    assert text.startswith("prompt_cache_retention=ignored (no session); kv_hints.actions[0]=ignored (no")


def test_a_router_that_granted_nothing_has_not_read_it() -> None:
    (one,) = read(prompt_cache_retention="5m").verdicts(0, 0)
    assert (one.outcome, one.said) == (Outcome.IGNORED, "not passed on")


def test_options_say_what_is_made_of_each() -> None:
    explicit = read(prompt_cache_options={"mode": "explicit", "prewarm": True})
    assert said(explicit) == {
        "prompt_cache_options.mode": "ignored",
        "prompt_cache_options.prewarm": "ignored",
    }
    assert said(read(prompt_cache_options={"mode": "implicit", "prewarm": False})) == {
        "prompt_cache_options.mode": "accepted"
    }


@pytest.mark.parametrize(
    ("body", "marked"),
    [
        ({"cache_control": EPHEMERAL}, ("cache_control",)),
        ({"system": [{"type": "text", "text": "s", "cache_control": EPHEMERAL}]}, ("cache_control",)),
        ({"tools": [{"name": "t", "cache_control": EPHEMERAL}]}, ("cache_control",)),
        ({"tools": [{"function": {"name": "t", "cache_control": EPHEMERAL}}]}, ("cache_control",)),
        ({"messages": [{"role": "user", "content": "hi", "cache_control": EPHEMERAL}]}, ("cache_control",)),
        (
            {"messages": [{"content": [{"type": "tool_result", "content": [{"cache_control": EPHEMERAL}]}]}]},
            ("cache_control",),
        ),
        (
            {"messages": [{"content": [{"text": "t", "prompt_cache_breakpoint": EXPLICIT}]}]},
            ("prompt_cache_breakpoint",),
        ),
        ({"input": [{"content": [{"prompt_cache_breakpoint": EXPLICIT}]}]}, ("prompt_cache_breakpoint",)),
        ({"tools": [{"input_schema": {"properties": {"cache_control": {"type": "string"}}}}]}, ()),
        ({"messages": [{"content": [{"type": "tool_use", "input": {"cache_control": 3}}]}]}, ()),
    ],
)
def test_marks_are_found_wherever_an_api_has_them_and_nowhere_else(
    body: dict[str, Any], marked: tuple[str, ...]
) -> None:
    assert read(**body).marked == marked


def test_a_body_that_asks_for_something_has_one_of_the_words() -> None:
    for name in (RETENTION, OPTIONS, CACHE_CONTROL, BREAKPOINT, KV_HINTS):
        assert any(word in name.encode() for word in WORDS), name


def test_a_mark_of_what_a_message_holds_is_the_messages() -> None:
    assert (
        has_mark({"role": "user", "content": [{"text": "a"}, {"cache_control": EPHEMERAL}]})
        == "cache_control"
    )
    assert has_mark({"role": "user", "content": "cache_control"}) == ""


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt_cache_retention": "forever"}, "prompt_cache_retention"),
        ({"prompt_cache_retention": "-5m"}, "prompt_cache_retention"),
        ({"prompt_cache_retention": "0m"}, "prompt_cache_retention"),
        ({"prompt_cache_retention": "1e3h"}, "prompt_cache_retention"),
        ({"prompt_cache_retention": "NaNs"}, "prompt_cache_retention"),
        ({"prompt_cache_retention": "9999999999d"}, "prompt_cache_retention"),
        ({"prompt_cache_retention": "\u0665m"}, "prompt_cache_retention"),
        ({"prompt_cache_retention": 24}, "prompt_cache_retention"),
        ({"prompt_cache_options": "24h"}, "prompt_cache_options"),
        ({"prompt_cache_options": {"mode": "magic"}}, "prompt_cache_options.mode"),
        ({"prompt_cache_options": {"ttl": "soon"}}, "prompt_cache_options.ttl"),
        ({"prompt_cache_options": {"prewarm": "yes"}}, "prompt_cache_options.prewarm"),
        ({"cache_control": True}, "cache_control"),
        ({"cache_control": {"type": "persistent"}}, "cache_control.type"),
        ({"cache_control": {**EPHEMERAL, "ttl": 300}}, "cache_control.ttl"),
        (
            {"messages": [{}, {"content": [{}, {"cache_control": {"type": "x"}}]}]},
            "messages[1].content[1].cache_control.type",
        ),
        (
            {"tools": [{"function": {"cache_control": {**EPHEMERAL, "ttl": "1w"}}}]},
            "tools[0].function.cache_control.ttl",
        ),
        (
            {"input": [{"content": [{"prompt_cache_breakpoint": {"mode": "implicit"}}]}]},
            "input[0].content[0].prompt_cache_breakpoint.mode",
        ),
    ],
)
def test_what_is_no_time_and_no_mark_is_refused_by_its_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(CacheError) as refused:
        read(**body)
    assert (refused.value.kind, refused.value.facts["param"]) == (Kind.BAD_REQUEST, param)


# hints


def hints(payload: object, action_type: str, count: int = 1) -> dict[str, Any]:
    action = {"action_id": "a", "action_type": action_type, "action_version": "1.0", "payload": payload}
    return {"protocol_version": "0.1", "message_id": "m", "actions": [action] * count}


@pytest.mark.parametrize("action_type", ["Retain", "retain", "kv.Retain@1.0"])
def test_retain_is_a_lease(action_type: str) -> None:
    asked = read(kv_hints=hints({"ttl_s": 7200}, action_type))
    assert asked.leases == {"kv_hints.actions[0]": 7200}
    assert said(asked) == {"kv_hints.actions[0]": "clipped"}


def test_prefetch_says_when_the_session_is_back() -> None:
    asked = read(kv_hints=hints({"expected_s": 12.5}, "Prefetch"))
    assert asked.expected_s == 12.5
    assert said(asked) == {"kv_hints.actions[0]": "accepted"}


@pytest.mark.parametrize(
    "action_type", ["Pin", "Demote", "Share", "kv.fetch@1.0", "Retain", "Prefetch", "💥"]
)
def test_what_the_cache_has_no_call_for_is_ignored_and_why_is_said(action_type: str) -> None:
    (one,) = read(kv_hints=hints({}, action_type)).settled
    assert (one.name, one.outcome) == ("kv_hints.actions[0]", Outcome.IGNORED)
    assert one.said
    if action_type == "Pin":
        assert one.said == "pin: nothing is ever pinned"


def test_hints_of_whoever_may_not_send_them_are_not_even_read() -> None:
    for envelope in (hints({"ttl_s": 9}, "Retain"), "nonsense", {"actions": 3}):
        asked = read(allowed=False, kv_hints=envelope)
        assert (dict(asked.leases), asked.expected_s) == ({}, 0)
        assert header_text(tuple(asked.verdicts(0, 0))) == "kv_hints=ignored (not allowed)"


@pytest.mark.parametrize(
    ("envelope", "param"),
    [
        ("nonsense", "kv_hints"),
        ({"protocol_version": 1}, "kv_hints.protocol_version"),
        ({"actions": {}}, "kv_hints.actions"),
        ({"actions": [3]}, "kv_hints.actions[0]"),
        ({"actions": [{}]}, "kv_hints.actions[0].action_type"),
        (hints({}, "Pin", count=17), "kv_hints.actions"),
        (hints([], "Retain"), "kv_hints.actions[0].payload"),
        (hints({"ttl_s": -1}, "Retain"), "kv_hints.actions[0].payload.ttl_s"),
        (hints({"ttl_s": 1e12}, "Retain"), "kv_hints.actions[0].payload.ttl_s"),
        (hints({"expected_s": "soon"}, "Prefetch"), "kv_hints.actions[0].payload.expected_s"),
    ],
)
def test_an_envelope_that_is_none_is_refused_by_name(envelope: Any, param: str) -> None:
    with pytest.raises(CacheError) as refused:
        read(kv_hints=envelope)
    assert refused.value.facts["param"] == param

"""The fields of `/v1/sessions`: what one may say, with the same limits at routers and workers."""

import math
from collections.abc import Callable

import pytest
from starlette.requests import Request

from agentcache.errors import CacheError, Kind
from agentcache.types import ReleaseMode
from agentcache.web.fields import Fields
from agentcache.web.session_fields import (
    MAX_S,
    MAX_TOOL_BYTES,
    MIN_TTL_S,
    Pause,
    fence_in,
    fence_of,
    mode_of,
    on_close_of,
    parent_of,
    pause_of,
    ttl_of,
)


def request(generation: str = "") -> Request:
    headers = [(b"x-agentcache-generation", generation.encode())] if generation else []
    return Request({"type": "http", "headers": headers})


def test_what_is_not_sent() -> None:
    nothing = Fields({})
    assert (parent_of(nothing), ttl_of(nothing), on_close_of(nothing)) == ("", 0.0, ReleaseMode.RELEASE)
    assert (pause_of(nothing), mode_of({}), mode_of({"mode": ""})) == (Pause("tool", 0.0), None, None)
    assert fence_of(request(), "") is fence_in(request(), nothing) is None


def test_what_is_sent() -> None:
    both = Fields(
        {"parent": "a", "parent_session_id": "a", "ttl_s": MIN_TTL_S, "on_close": "drop", "timeout": 60}
    )
    assert (parent_of(both), ttl_of(both), ttl_of(both, "timeout"), on_close_of(both)) == (
        "a",
        MIN_TTL_S,
        60,
        "drop",
    )
    tool = "x" * MAX_TOOL_BYTES
    assert pause_of(Fields({"tool": tool, "expected_s": MAX_S})) == Pause(tool, MAX_S)
    assert mode_of({"mode": "preview"}) is ReleaseMode.PREVIEW
    assert fence_of(request("7"), "") == fence_of(request(), "7") == fence_of(request("7"), "7") == 7
    assert fence_in(request("7"), Fields({"generation": 7})) == 7


@pytest.mark.parametrize(
    ("read", "param"),
    [
        (lambda: parent_of(Fields({"parent": "a", "parent_session_id": "b"})), "parent_session_id"),
        (lambda: ttl_of(Fields({"ttl_s": MIN_TTL_S / 2})), "ttl_s"),
        (lambda: ttl_of(Fields({"timeout": 2 * MAX_S}), "timeout"), "timeout"),
        (lambda: on_close_of(Fields({"on_close": "preview"})), "on_close"),
        (lambda: pause_of(Fields({"tool": ""})), "tool"),
        (lambda: pause_of(Fields({"tool": "é" * (MAX_TOOL_BYTES // 2 + 1)})), "tool"),
        (lambda: pause_of(Fields({"tool": "a\n"})), "tool"),
        (lambda: pause_of(Fields({"expected_s": -1})), "expected_s"),
        (lambda: pause_of(Fields({"expected_s": math.nan})), "expected_s"),
        (lambda: pause_of(Fields({"expected_s": math.inf})), "expected_s"),
        (lambda: pause_of(Fields({"expected_s": 10**400})), "expected_s"),
        (lambda: mode_of({"mode": "gone"}), "mode"),
        (lambda: fence_of(request("7"), "8"), "generation"),
        (lambda: fence_of(request(), "-1"), "generation"),
        (lambda: fence_in(request("8"), Fields({"generation": 7})), "generation"),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_of_its_field(read: Callable[[], object], param: str) -> None:
    with pytest.raises(CacheError) as caught:
        read()
    assert (caught.value.kind, caught.value.facts["param"]) == (Kind.BAD_REQUEST, param)

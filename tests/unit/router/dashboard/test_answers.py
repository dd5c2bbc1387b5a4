"""What workers say of a session: nothing is negative, and nothing larger than can be drawn."""

import json

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.router.dashboard.answers import Part, Session, read
from agentcache.router.upstream import Reply

PART = {"component": "FULL", "tier": "device", "tokens": 64, "slots": 1, "bytes": 4096}


def test_what_a_worker_holds_of_a_session_is_read() -> None:
    session = read(Reply(200, json.dumps({"held": [PART], "new": 1}).encode()), Session)
    assert session.held == (Part("FULL", "device", 4096),)


@pytest.mark.parametrize("broken", [{"bytes": -1}, {"bytes": 10**400}, {"bytes": "1"}, {"tier": "x" * 1001}])
def test_what_cannot_be_drawn_is_no_answer(broken: dict[str, object]) -> None:
    with pytest.raises(CacheError) as refused:
        read(Reply(200, json.dumps({"held": [{**PART, **broken}]}).encode()), Session)
    assert (refused.value.kind, refused.value.message) == (Kind.UPSTREAM_FAILED, "its answer makes no sense")

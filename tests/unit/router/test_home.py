"""Where a router's sessions are, as the settings say it; and the look after the server."""

import asyncio
from pathlib import Path

import pytest
import structlog

from agentcache.clock import ManualClock
from agentcache.errors import CacheError, Kind
from agentcache.router.home import ENSURE_S, Place, kept, opened
from agentcache.router.lasting import FAULT_PAUSE_S
from agentcache.router.settings import RouterSettings

SECRET = "a secret of thirty-two characters"


def test_a_secret_may_be_named_from_ones_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "secret").write_text(SECRET)
    settings = RouterSettings(redis_url="redis://user:word@h:1/0", secret_file="~/secret")
    with opened(settings, ManualClock()) as place:
        assert place.secret == SECRET.encode()
        assert "word" not in place.shown


@pytest.mark.asyncio
async def test_the_look_after_a_server_outlives_whatever_fails() -> None:
    answers: list[Exception | None] = [
        CacheError(Kind.BAD_CONFIG, "does not answer"),
        CacheError(Kind.BAD_CONFIG, "does not answer"),
        None,
        OSError("no more processes"),
        None,
    ]
    paused: list[float] = []

    def ensure() -> None:
        if answer := answers.pop(0):
            raise answer

    async def pause(seconds: float) -> None:
        paused.append(seconds)
        if not answers:
            raise asyncio.CancelledError

    with structlog.testing.capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        await kept(Place("redis://h", b"", "at h", ensure), pause)
    assert paused == [ENSURE_S, ENSURE_S, ENSURE_S, FAULT_PAUSE_S, ENSURE_S]
    assert [line["event"] for line in lines] == ["store_down", "step_failed"]

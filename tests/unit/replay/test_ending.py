"""SIGTERM as Ctrl-C."""

import asyncio
import signal

import pytest

from agentcache.replay.ending import terminated_as_interrupted


def test_sigterm_interrupts_and_is_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminated_as_interrupted():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_background_job_hears_it_too() -> None:
    """Its shell has it ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), terminated_as_interrupted():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_loop_cancels_what_it_does_first() -> None:
    ended: list[str] = []

    async def work() -> None:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("sessions closed")

    with pytest.raises(KeyboardInterrupt), terminated_as_interrupted():
        asyncio.run(work())
    assert ended == ["sessions closed"]

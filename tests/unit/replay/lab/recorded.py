"""Recorded sessions, small enough for caches that look at every page."""

import os
from itertools import islice
from pathlib import Path

from agentcache.replay.paged import PAGE_TOKENS, Workload, page
from agentcache.replay.readers import Trace, open_trace
from agentcache.replay.trace import Call, Session
from tests.traces import block_prompts

THINNED = 16
"""Of so many blocks one is left."""


def recorded_blocks(sessions: int) -> Workload:
    """Sessions that hide their text: one page where they have sixteen, and their first calls only."""
    told = [_thinned(session) for session in islice(_trace("weka-claude-code/traces_a").sessions(), sessions)]
    return page(told, encode=lambda _: [], page_tokens=PAGE_TOKENS * THINNED)


def recorded_messages(sessions: int) -> Workload:
    """Sessions of text, four bytes a token."""
    told = islice(_trace("miniswe-gemini3-swebench-verified/trajs_a").sessions(), sessions)
    return page(told, encode=lambda text: text.encode()[::4], page_tokens=256)


def _trace(name: str) -> Trace:
    return open_trace(Path(os.environ["AGENTCACHE_DATA"]) / f"{name}.jsonl.xz")


def _thinned(session: Session) -> Session:
    calls = tuple(
        Call(keep=0, blocks=tuple(prompt[THINNED - 1 :: THINNED]), facts=call.facts)
        for call, prompt in zip(session.calls[:30], block_prompts(session), strict=False)
    )
    return Session(
        name=session.name,
        calls=calls,
        place=session.place,
        block_tokens=session.block_tokens * THINNED,
        scope=session.scope,
        origin=session.origin,
        hidden=session.hidden,
    )

"""One cache for three kinds of state, with sessions. No model, no server: slots without bytes."""

import numpy as np

from agentcache.build import build_cache
from agentcache.cache import Prompt
from agentcache.clock import ManualClock
from agentcache.keys import Namespace
from agentcache.tree.api import CoreConfig
from agentcache.types import (
    FULL,
    MAMBA,
    SWA,
    Piece,
    SessionId,
    SessionTag,
    Tokens,
    full_spec,
    mamba_spec,
    swa_spec,
)

PAGE, CHUNK, WINDOW = 16, 64, 48
MODEL = Namespace(model="an-example")
components = (full_spec(), swa_spec(WINDOW), mamba_spec(CHUNK))
cache = build_cache(CoreConfig(PAGE, components, CHUNK), {FULL: 48, SWA: 24, MAMBA: 8}, ManualClock())


def turn(session: str, tokens: Tokens, closed_meanwhile: bool = False) -> int:
    """What an engine does for one request; answers how many tokens it need not compute."""
    ticket = cache.enter(SessionTag(SessionId(session)))
    active = cache.begin(ticket, Prompt(tokens, MODEL, limit=len(tokens) - 1))
    start, end = active.boundary_tokens, len(tokens) - len(tokens) % CHUNK
    leased = cache.reserve(active, {FULL: (end - start) // PAGE, SWA: WINDOW // PAGE, MAMBA: 1})
    assert leased, "None means: too full just now, wait"
    # ... here the engine computes tokens[start:] and copies pages, window and state into the slots ...
    if closed_meanwhile:
        cache.close_session(session)
    window, state = Piece(SWA, end - WINDOW, end, leased[SWA]), Piece(MAMBA, end, end, leased[MAMBA])
    cache.publish(active, tokens[:end], leased[FULL], (window, state))
    cache.finish(active, user_end_tokens=len(tokens))
    cache.check()  # every slot is free, cached or leased: one owner each
    return active.cached_tokens


def reusable(tokens: Tokens) -> int:
    """How much a request would reuse: begin, look, and end without publishing."""
    active = cache.begin(cache.enter(None), Prompt(tokens, MODEL, limit=len(tokens)))
    cache.finish(active, user_end_tokens=0)
    return active.cached_tokens


prompts = np.random.default_rng(0).integers(0, 50_000, (3, 400), dtype=np.int32)
agent, guest, crowd = prompts
cache.open_session("agent")  # or let its first request open it, as for the others
print("agent, first turn:  reuses", first := turn("agent", agent[:200]), "of 200 tokens")
print("agent, second turn: reuses", second := turn("agent", agent[:300]), "of 300: the last whole chunk")
print("guest, closed while it runs: its data stays,", turn("guest", guest, True) or reusable(guest), "tokens")
assert (first, second, reusable(guest)) == (0, 192, 384)

turn("crowd", crowd[:300])  # pressure: too much for the 8 pages that are free
print("after the crowd: guest has", reusable(guest), "tokens, agent, still open,", reusable(agent))
assert (reusable(guest), reusable(agent)) == (0, 256)

closed = cache.close_session("agent")
print(
    "closing agent releases", ", ".join(f"{held.slots} slots of {held.component}" for held in closed.released)
)
assert not cache.close_session("agent").released, "closing again is no error, and releases nothing"
assert cache.stats().open_references == 1, "the crowd's"

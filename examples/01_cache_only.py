"""One cache for three kinds of state, with sessions. No model, no server: slots without bytes."""

import numpy as np

from agentcache.build import build_cache
from agentcache.cache import Prompt
from agentcache.clock import ManualClock
from agentcache.ids import checked_id
from agentcache.keys import Namespace
from agentcache.tree.api import CoreConfig
from agentcache.types import FULL, MAMBA, SWA, Piece, SessionTag, Tokens, full_spec, mamba_spec, swa_spec

PAGE, CHUNK, WINDOW = 16, 64, 48
MODEL = Namespace(model="an-example")
components = (full_spec(), swa_spec(WINDOW), mamba_spec(CHUNK))
cache = build_cache(CoreConfig(PAGE, components, CHUNK), {FULL: 48, SWA: 24, MAMBA: 8}, ManualClock())


def turn(session: str, tokens: Tokens, closed_meanwhile: bool = False) -> int:
    """What an engine does for one request; answers how many tokens it need not compute."""
    ticket = cache.enter(SessionTag(checked_id(session)))
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


agent, guest, crowd = np.random.default_rng(0).integers(0, 50_000, (3, 400), dtype=np.int32)
cache.open_session("agent")  # or let the first request open it, as for the others
print("agent, first turn:  reuses", first := turn("agent", agent[:200]), "of 200 tokens")
print("agent, second turn: reuses", second := turn("agent", agent[:300]), "of 300: whole chunks")
turn("guest", guest, closed_meanwhile=True)
print("guest, closed while it ran: its data stays,", stayed := reusable(guest), "tokens")
assert (first, second, stayed) == (0, 192, 384)

turn("crowd", crowd[:300])  # pressure: needs 16 pages, 8 are free
print("after the crowd: agent, open, has", reusable(agent), "tokens; guest has", reusable(guest))
assert (reusable(agent), reusable(guest)) == (256, 0)

released = cache.close_session("agent").released
print("closing agent releases slots:", ", ".join(f"{held.component} {held.slots}" for held in released))
assert not cache.close_session("agent").released, "closing again is no error and releases nothing"
assert cache.stats().open_references == 1, "the crowd's"

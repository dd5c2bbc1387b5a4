"""The two passes of the demo: every turn with the cache on and off, and then all sessions at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from agentcache.engine.capability import ReuseClass
from agentcache.errors import CacheError, Kind
from agentcache.replay.client import Ask, WorkerClient
from agentcache.replay.outcome import Outcome, Refused
from agentcache.replay.references import References, Site, read_references
from agentcache.replay.run import Limits, Mode, OnTurn, Played, play
from agentcache.replay.trace import Session


@dataclass(frozen=True, slots=True)
class Identity:
    """The same turns with the cache off and on, and what was left anywhere after the closes (0: nothing)."""

    cold: list[Played]
    warm: list[Played]
    left: int


@dataclass(frozen=True, slots=True)
class Together:
    """All sessions at once: the turns, what they held before the closes, and what was left after them."""

    played: list[Played]
    while_open: References
    left: int


def require_reuse(client: WorkerClient) -> None:
    """The demo compares bit for bit: a model that cannot be reused, or only up to rounding, has nothing to show.

    Errors  CacheError(UNSUPPORTED_MODEL) with the worker's reason
    """
    said = client.about.get("agentcache", {})
    if said.get("reuse") != ReuseClass.REUSABLE:
        message = f"{client.model} does not keep every bit: {said.get('reason')}. Take another --model"
        raise CacheError(Kind.UNSUPPORTED_MODEL, message)


async def identity_pass(
    site: Site, sessions: Sequence[Session], limits: Limits, mode: Mode, on_turn: OnTurn
) -> Identity:
    """One request at a time. Each turn runs with the cache off and then on, so both see the same machine.

    A turn with the cache off reads and leaves nothing, so it cannot help the one after it.
    """
    cold: list[Played] = []
    warm: list[Played] = []
    left = 0
    for ordinal, session in enumerate(sessions):
        session_id = mode.session_id(ordinal, session.name)
        off: list[Outcome] = []
        on: list[Outcome] = []
        for messages in islice(session.prompts(), limits.turns):
            off.append(await site.front.ask(Ask(messages, limits.max_tokens, reuse=False, digest=True)))
            on.append(await site.front.ask(Ask(messages, limits.max_tokens, session_id, digest=True)))
            on_turn(on[-1])
            if isinstance(on[-1], Refused) and not on[-1].skipped:
                break
        cold.append(Played(session.name, "", tuple(off), len(session.calls)))
        warm.append(Played(session.name, session_id, tuple(on), len(session.calls)))
        await site.front.close_session(session_id)
        left += (await read_references(site)).left
    return Identity(cold, warm, left)


async def concurrent_pass(
    site: Site, sessions: Sequence[Session], limits: Limits, mode: Mode, on_turn: OnTurn
) -> Together:
    """All sessions at once from an empty cache, then closed one by one; each close is checked at the workers."""
    await site.flush()
    played = await play(site.front, sessions, limits, mode, on_turn)
    while_open = await read_references(site)
    still_open = 0
    for one in played:
        await site.front.close_session(one.session)
        still_open += one.session in (await read_references(site)).sessions
    return Together(played, while_open, still_open + (await read_references(site)).left)

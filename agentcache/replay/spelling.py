"""Prompts for a worker, also where a trace hides its text: what its block ids stand for is made up.

session of messages ─► the messages
session of blocks ─► token ids: block ─► the same `scale` tokens wherever it is meant ┐
                                rest of the prompt, less than a block ─► like no other ┘ a prompt
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import shake_128
from typing import Any

import numpy as np

from agentcache.errors import CacheError, Kind
from agentcache.replay.client import Prompt
from agentcache.replay.trace import Session

NEVER_EQUAL_TOKENS = 16
"""So many tokens drawn from a vocabulary of hundreds are never the same twice by chance."""


class Spelling:
    """What prompts are sent as.

    `vocabulary` are the token ids to spell blocks in. `scale` is how many tokens each block is sent as; 0: as many as
    it stands for. Equal traces are spelled equally, whatever was spelled in between, but for blocks of a few tokens:
    of two that would be equal by chance, the later one is spelled otherwise.
    """

    def __init__(self, vocabulary: Sequence[int] = (), scale: int = 0) -> None:
        self._vocabulary = list(vocabulary)
        self._scale = scale
        self._taken: set[tuple[int, ...]] = set()
        self._known: dict[tuple[str, int], tuple[int, ...]] = {}

    def prompts(self, session: Session) -> Iterator[Prompt]:
        """The prompt of each call, in order. Blocks are spelled at once, prompts are put together one by one.

        Errors  CacheError(BAD_REQUEST): a scale at which there are not as many blocks as the trace has
        Cost    O(tokens) a prompt, and a digest for each block that a call adds
        """
        return self._spelled(session) if session.block_tokens else iter(session.prompts())

    def _spelled(self, session: Session) -> Iterator[Prompt]:
        size = self._scale or session.block_tokens
        changes: list[tuple[int, list[int], list[int]]] = []
        blocks = 0
        for turn, call in enumerate(session.calls):
            said = (_said(session, block, at) for at, block in enumerate(call.blocks, call.keep))
            added = [token for one in said for token in self._block(one, size)]
            blocks = call.keep + len(call.blocks)
            over = max(0, call.facts.prompt_tokens - blocks * session.block_tokens)
            rest = max(-(-over * size // session.block_tokens), not blocks)
            changes.append((call.keep * size, added, self._drawn(repr((session.name, turn)), rest)))
        return _grown(changes)

    def _block(self, said: str, size: int) -> Sequence[int]:
        if size >= NEVER_EQUAL_TOKENS:
            return self._drawn(said, size)
        key = (said, size)
        attempt = 0
        while key not in self._known:
            tokens = tuple(self._drawn(f"{said} {attempt}", size))
            attempt += 1
            if tokens not in self._taken:
                self._taken.add(tokens)
                self._known[key] = tokens
            elif len(self._taken) >= len(self._vocabulary) ** size:
                few = f"the trace has more blocks than this worker's vocabulary can spell in {size} tokens"
                raise CacheError(Kind.BAD_REQUEST, f"{few}: raise --scale")
        return self._known[key]

    def _drawn(self, said: str, size: int) -> list[int]:
        drawn = np.frombuffer(shake_128(said.encode()).digest(4 * size), dtype="<u4")
        known = self._vocabulary
        return [known[at] for at in (drawn % len(known)).tolist()]


TEXT_ONLY = Spelling()
"""For traces that are told in messages."""


def sendable(sessions: Iterable[Session]) -> Iterator[Session]:
    """The sessions, of a trace that a worker can be sent. Errors: BAD_TRACE for one of which only lengths are known."""
    for session in sessions:
        if not (session.block_tokens or session.has_text):
            said = f"{session.place} tells neither text nor blocks, so nothing can be sent to a worker"
            raise CacheError(Kind.BAD_TRACE, f"{said}; `agentcache trace inspect` says what is in it")
        yield session


def vocabulary(about: Mapping[str, Any]) -> list[int]:
    """The token ids that are text, by what a worker's /v1/models says of its model.

    Errors  CacheError(BAD_REQUEST): it does not say
    """
    said: Any = about.get("agentcache")
    try:
        special = set(said["special_tokens"])
        return [token for token in range(said["vocab_size"]) if token not in special]
    except (KeyError, TypeError):
        message = (
            "the trace is told in block ids, and this server does not say which token ids it knows "
            "(`agentcache.vocab_size` and `special_tokens` in /v1/models); replay it against agentcache's worker"
        )
        raise CacheError(Kind.BAD_REQUEST, message) from None


def _said(session: Session, block: int, at: int) -> str:
    """What the block at this place stands for: the same in its scope, or in all that share the prefix."""
    hidden = session.hidden
    if hidden.name and at < hidden.tokens // session.block_tokens:
        return repr((hidden.name, at, "hidden"))
    return repr((session.scope, block))


def _grown(changes: Iterable[tuple[int, list[int], list[int]]]) -> Iterator[Prompt]:
    history: list[int] = []
    for keep, added, rest in changes:
        history = [*history[:keep], *added]
        yield (*history, *rest)

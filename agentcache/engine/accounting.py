"""A runner that computes nothing: it keeps account of what a model would have computed, and of what slots would hold.

A slot has no bytes but a stamp: the position that its page or state ends at, and a hash of all tokens up to there.
What is restored must be stamped with what the boundary needs, and what is saved must have been computed, so a cache
that would mix up slots of a real engine fails here, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from agentcache.clock import Clock
from agentcache.errors import CacheError, Kind
from agentcache.tiers.api import SlotBytes
from agentcache.types import (
    FULL,
    ComponentName,
    ComponentSpec,
    Locked,
    Piece,
    PoolName,
    Slots,
    TierName,
    Window,
)

NANOSECONDS = 1e9


class Stamps:
    """The stamps of one pool: `tiers.api.SlotBytes` for slots that hold nothing else.

    Shapes  values: int64[slots, 2], (end position, hash of the tokens up to it); zeros where nothing was written
    """

    layout = "stamps"
    slot_bytes = 0
    parts = 1

    def __init__(self, slots: int) -> None:
        self.values: NDArray[np.int64] = np.zeros((slots, 2), dtype=np.int64)

    def copy_part(self, part: int, slots: Slots, target: SlotBytes, target_slots: Slots) -> None:
        assert isinstance(target, Stamps)
        target.values[target_slots] = self.values[slots]

    def read(self, slot: int) -> bytes:
        return bytes(self.values[slot].tobytes())

    def write(self, slot: int, payload: bytes | memoryview) -> None:
        self.values[slot] = np.frombuffer(payload, dtype=np.int64)


class ModelledTime:
    """How long a model would take, by a clock: `tokens_per_s` of prompts and of each answer. 0: no time.

    The time of one forward begins when that of the one before is over.
    """

    def __init__(self, clock: Clock, prefill_tokens_per_s: float, decode_tokens_per_s: float) -> None:
        self._clock = clock
        self._prompt_token_ns = NANOSECONDS / prefill_tokens_per_s if prefill_tokens_per_s else 0.0
        self._step_ns = NANOSECONDS / decode_tokens_per_s if decode_tokens_per_s else 0.0
        self._over_ns = clock.now_ns()

    def prefilled(self, tokens: int) -> None:
        self._spend(tokens * self._prompt_token_ns)

    def decoded(self) -> None:
        """One step: it gives every request of the batch a token."""
        self._spend(self._step_ns)

    def busy_ns(self) -> int:
        return max(0, self._over_ns - self._clock.now_ns())

    def _spend(self, nanoseconds: float) -> None:
        self._over_ns = max(self._over_ns, self._clock.now_ns()) + round(nanoseconds)


@dataclass(slots=True, eq=False)
class CountedState:
    """What one request would have computed.

    `chain` has the hash of the tokens up to every page's end, `rest` the tokens behind the last one; `held_from` is
    where the pages of each window that were restored begin.
    """

    page_tokens: int
    length: int = 0
    chain: list[int] = field(default_factory=list)
    rest: list[int] = field(default_factory=list)
    held_from: dict[ComponentName, int] = field(default_factory=dict)

    def extend(self, tokens: Sequence[int]) -> None:
        self.length += len(tokens)
        self.rest.extend(map(int, tokens))
        whole = len(self.rest) - len(self.rest) % self.page_tokens
        for start in range(0, whole, self.page_tokens):
            page = self.rest[start : start + self.page_tokens]
            self.chain.append(hash((self.chain[-1] if self.chain else 0, *page)))
        del self.rest[:whole]

    def stamps(self, start: int, end: int) -> NDArray[np.int64]:
        """The stamps of the pages of `[start, end)`. Shapes: int64[pages, 2]."""
        first, last = start // self.page_tokens, end // self.page_tokens
        stamps = np.empty((last - first, 2), dtype=np.int64)
        stamps[:, 0] = np.arange(first + 1, last + 1) * self.page_tokens
        stamps[:, 1] = self.chain[first:last]
        return stamps


class AccountingRunner:
    """Keeps account of one model's requests over `pools`. The calls of `computing.Computing`; a forward answers how
    many rows of logits there would be.

    Caller  as of a `Runner`
    """

    def __init__(
        self,
        specs: tuple[ComponentSpec, ...],
        page_tokens: int,
        grid_tokens: int,
        pools: Mapping[PoolName, Stamps],
        time: ModelledTime,
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._page_tokens = page_tokens
        self._grid_tokens = grid_tokens
        self._pools = {name: pools[PoolName(name, TierName.DEVICE)] for name in self._specs}
        self._time = time

    def chunk_end(self, start: int, total: int) -> int:
        """The next absolute multiple of the grid, or the prompt's end."""
        return min(total, (start // self._grid_tokens + 1) * self._grid_tokens)

    def new_state(self) -> CountedState:
        return CountedState(self._page_tokens)

    def restore(self, state: CountedState, locked: Locked) -> None:
        """Make an empty state continue at the boundary of `locked`.

        Errors  CacheError(NOT_RESIDENT) when a piece is not the whole region of its component, or its slots hold
                something else than this path
        """
        boundary = locked.boundary.length
        if not boundary:
            return
        pieces = {piece.component: piece for piece in locked.pieces}
        for spec in self._specs.values():
            region = spec.rule.region(boundary, self._page_tokens)
            piece = pieces.get(spec.name, Piece(spec.name, 0, 0))
            if (piece.start, piece.end) != (region.start, region.end):
                raise CacheError(
                    Kind.NOT_RESIDENT, "not the region of this boundary", piece=piece, boundary=boundary
                )
            if spec.name == FULL:
                state.chain = self._pools[FULL].values[piece.slots, 1].tolist()
            self._check_stamps(state, piece)
            state.held_from[spec.name] = piece.start
        state.length = boundary

    def prefill(self, state: CountedState, tokens: Sequence[int]) -> int:
        state.extend(tokens)
        self._time.prefilled(len(tokens))
        return 1

    def save(self, state: CountedState, pieces: Sequence[Piece]) -> None:
        """Stamp the slots of `pieces`.

        Errors  CacheError(BAD_INSERT) for tokens that are not computed, or that a window no longer holds, or for a
                state that is not at `state.length`
        """
        for piece in pieces:
            held = self._held_from(state, piece.component)
            is_state = piece.start == piece.end
            if not (held <= piece.start <= piece.end <= state.length) or (
                is_state and piece.end < state.length
            ):
                raise CacheError(
                    Kind.BAD_INSERT,
                    "these tokens are not held by the request any more, or not computed yet",
                    component=piece.component,
                    asked=(piece.start, piece.end),
                    held=(held, state.length),
                )
            self._pools[piece.component].values[piece.slots] = self._stamps(state, piece)

    def decode(self, states: Sequence[CountedState], tokens: Sequence[int]) -> int:
        for state, token in zip(states, tokens, strict=True):
            state.extend((token,))
        self._time.decoded()
        return len(states)

    def rows(self, logits: int) -> Sequence[None]:
        """There is nothing to read in logits that nobody computed."""
        return (None,) * logits

    def drop(self, state: CountedState) -> None:
        state.chain.clear()
        state.rest.clear()

    def _stamps(self, state: CountedState, piece: Piece) -> NDArray[np.int64]:
        """What the slots of a piece hold; a state is stamped as the page that ends at it."""
        start = piece.end - self._page_tokens if piece.start == piece.end else piece.start
        return state.stamps(start, piece.end)

    def _check_stamps(self, state: CountedState, piece: Piece) -> None:
        found = self._pools[piece.component].values[piece.slots]
        if not np.array_equal(found, self._stamps(state, piece)):
            raise CacheError(
                Kind.NOT_RESIDENT,
                "slots of this piece were never written, or hold another path",
                component=piece.component,
                piece=(piece.start, piece.end),
            )

    def _held_from(self, state: CountedState, component: ComponentName) -> int:
        """The first token that the request's working memory surely holds; a window drops what is far behind it."""
        restored, rule = state.held_from.get(component, 0), self._specs[component].rule
        if not isinstance(rule, Window):
            return 0 if component == FULL else restored
        behind = state.length - rule.tokens - self._grid_tokens - self._page_tokens
        return max(restored, behind)

"""Reserving slots for a turn and publishing what it has computed: bytes first, then the tree."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from agentcache.cache import UnifiedRadixCache
from agentcache.engine.computing import Runs, State
from agentcache.engine.publish import Need, PublishPolicy
from agentcache.engine.work import Work
from agentcache.types import FULL, NO_SLOTS, ComponentName, Piece


class Publisher:
    """Moves computed pages and states of running requests into the cache."""

    def __init__(self, cache: UnifiedRadixCache, runner: Runs, policy: PublishPolicy) -> None:
        self._cache = cache
        self._runner = runner
        self._policy = policy

    def plan(self, work: Work, sizes: Mapping[ComponentName, int]) -> None:
        """Choose where a turn that is ready will publish, and what that takes."""
        work.planned = True
        if work.turn.prompt.reuse:
            work.boundaries, work.need = self._policy.reservation(
                work.turn.boundary_tokens,
                work.prompt_tokens,
                work.request.user_end_tokens,
                sizes,
                work.turn.full_tokens,
                *work.request.marks,
            )
            work.marked = tuple(self._marked(work))

    def start(self, work: Work) -> bool:
        """Reserve what the plan needs and restore the prefix; False when slots are short now (nothing is taken)."""
        if not self._lease(work, work.need):
            return False
        self._runner.restore(work.state, work.turn.locked)
        work.started = True
        return True

    def passed(self, work: Work) -> None:
        """Publish at the state's end if the plan names it, or names one before it that was stepped over."""
        end = work.state.length
        due = [boundary for boundary in work.boundaries if boundary <= end]
        if due and end % self._policy.grid_tokens == 0:
            work.boundaries = work.boundaries[len(due) :]
            self.publish(work)

    def publish(self, work: Work) -> None:
        """Publish everything up to the state's end, a multiple of the grid. Without slots for it just now: nothing."""
        if pieces := self._pieces(work, work.state.length):
            self._offer(work, work.state, pieces)

    def publish_decoded(self, work: Work) -> None:
        """Publish a chunk that decoding has completed, computed again as a prompt's chunk; later if slots are short.

        The tokens of this chunk went through the model in a prompt's last short chunk and one by one; that rounds
        otherwise than a forward over the whole chunk. Computed again, what is published is bit for bit what a cold
        run over the same tokens computes. Cost: one forward a chunk, beside as many decode steps as it has tokens.
        """
        start = work.turn.boundary_tokens
        end = start + self._policy.grid_tokens
        if end > work.state.length:
            return
        if pieces := self._pieces(work, end):
            again = self._runner.new_state()
            self._runner.restore(again, work.turn.locked)
            self._runner.prefill(again, work.tokens[start:end])
            self._offer(work, again, pieces)
            self._runner.drop(again)

    def _marked(self, work: Work) -> Iterator[int]:
        """Boundaries before the client's marks that are in what was cached: not all of it can be gone on from."""
        grid, prompt = self._policy.grid_tokens, work.turn.prompt
        for at in sorted({mark - mark % grid for mark in work.request.marks} - {0}):
            if at <= work.turn.boundary_tokens and self._cache.peek(replace(prompt, limit=at)) == at:
                yield at

    def _pieces(self, work: Work, boundary: int) -> tuple[Piece, ...]:
        """What `boundary` needs, with slots; empty when it is published already or slots are short now."""
        if boundary <= work.turn.boundary_tokens:
            return ()
        bare = self._policy.pieces(work.turn.boundary_tokens, boundary)
        if not self._lease(work, {piece.component: self._policy.count(piece) for piece in bare}):
            return ()
        return tuple(self._filled(work, piece) for piece in bare)

    def _offer(self, work: Work, state: State, pieces: tuple[Piece, ...]) -> None:
        """Copy the bytes from `state`, then give the slots to the tree."""
        self._runner.save(state, pieces)
        full = next(piece.slots for piece in pieces if piece.component == FULL)
        aux = tuple(piece for piece in pieces if piece.component != FULL)
        inserted = self._cache.publish(work.turn, work.path(state.length), full, aux)
        for piece in inserted.kept:
            work.leased[piece.component] = np.concatenate([work.leased[piece.component], piece.slots])

    def return_spare(self, work: Work) -> None:
        """Give back what was reserved and is not needed any more."""
        for component, slots in work.leased.items():
            if slots.size:
                self._cache.return_slots(work.turn, component, slots)
        work.leased.clear()

    def _lease(self, work: Work, need: Need) -> bool:
        """Top up the turn's leased slots to `need`; all or nothing."""
        short = {name: count - work.leased.get(name, NO_SLOTS).size for name, count in need.items()}
        short = {name: count for name, count in short.items() if count > 0}
        if not short:
            return True
        reserved = self._cache.reserve(work.turn, short)
        if reserved is None:
            return False
        for component, slots in reserved.items():
            work.leased[component] = np.concatenate([work.leased.get(component, NO_SLOTS), slots])
        return True

    def _filled(self, work: Work, piece: Piece) -> Piece:
        """Take the piece's slots from the turn's leased ones."""
        leased, count = work.leased[piece.component], self._policy.count(piece)
        work.leased[piece.component] = leased[count:].copy()
        return Piece(piece.component, piece.start, piece.end, leased[:count].copy())

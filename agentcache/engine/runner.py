"""One loaded model on one device: private request states, our pools, prefill on the grid and batched decode.

Everything is bit-exact for a request that runs alone: a restored run equals an uncached run on the same grid.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from agentcache.engine.adapter import FORWARD_FAILURES, Model
from agentcache.engine.batch import DecodeBatch, RequestState
from agentcache.engine.capability import Capability, ReuseClass, RunnerConfig
from agentcache.engine.forward import ModelAdapter
from agentcache.engine.layout import read_layout
from agentcache.engine.probe import examine
from agentcache.engine.rows import Rows
from agentcache.errors import CacheError, Kind
from agentcache.pools.buffers import PageBuffers, StateBuffers
from agentcache.types import MAMBA, ComponentName, ComponentSpec, Locked, Piece, Tokens

__all__ = [
    "Capability",
    "RequestState",
    "ReuseClass",
    "Runner",
    "RunnerConfig",
    "describe_model",
    "load_runner",
]


class Runner:
    """Runs one model. `pages` and `states` are the device tier's bytes, by component.

    Caller  single threaded; splits prefill where `chunk_end` says, for cold and restored requests alike
    """

    def __init__(
        self, model: ModelAdapter, config: RunnerConfig, capability: Capability, sample: Rows
    ) -> None:
        layout = read_layout(sample)
        self.capability = capability
        self.config = config
        self.pages = {
            name: PageBuffers(
                _slots(config, name), config.page_tokens, layout.kv_of(name), torch.device(config.device)
            )
            for name in layout.layers
        }
        self.states = StateBuffers(
            _slots(config, MAMBA) if layout.states else 0, layout.states, torch.device(config.device)
        )
        self._model = model
        self._layout = layout
        self._sample = sample
        self._batch = DecodeBatch()

    def chunk_end(self, start: int, total: int) -> int:
        """Where the prefill forward that begins at `start` ends, for a prompt of `total` tokens.

        The next absolute multiple of the grid. A token-by-token model takes a cold prompt in one forward up to the last
        multiple of the grid (its forwards are right only from the start), then continues as after a restore.
        """
        grid = self.config.grid_tokens
        if self.capability.reuse is ReuseClass.TOKEN_BY_TOKEN and start == 0:
            return (total - 1) // grid * grid or total
        return min(total, (start // grid + 1) * grid)

    def new_state(self) -> RequestState:
        """An empty private state."""
        return RequestState(self._new_rows())

    @torch.inference_mode()
    def restore(self, state: RequestState, locked: Locked) -> None:
        """Make an empty state continue at the boundary of `locked`, from copies of its slots.

        Caller  holds the lease; `state` is new
        Errors  CacheError(NOT_RESIDENT) when a piece is not the whole region of its component
        Cost    one gather of the region's bytes
        """
        boundary = locked.boundary.length
        if not boundary:
            return
        pieces = {piece.component: piece for piece in locked.pieces}
        for spec in self.capability.specs:
            region = spec.rule.region(boundary, self.config.page_tokens)
            piece = pieces.get(spec.name, Piece(spec.name, 0, 0))
            if (piece.start, piece.end) != (region.start, region.end):
                raise CacheError(
                    Kind.NOT_RESIDENT, "not the region of this boundary", piece=piece, boundary=boundary
                )
            self._restore_piece(state, piece)
        state.rows.end = boundary

    @torch.inference_mode()
    def prefill(self, state: RequestState, tokens: Tokens | Sequence[int]) -> Tensor:
        """Run one chunk `[state.length, + len(tokens))`. Shapes: logits [vocab] of the last token, model's type."""
        self._batch.separate(state)
        row = self._tensor([list(map(int, tokens))])
        single = self.capability.reuse is ReuseClass.TOKEN_BY_TOKEN and state.length > 0
        parts = torch.split(row, 1 if single else row.shape[1], dim=1)
        logits = [self._model.forward(part, state.rows) for part in parts]
        return logits[-1][0, -1]

    @torch.inference_mode()
    def save(self, state: RequestState, pieces: Sequence[Piece]) -> None:
        """Copy whole pages, window pages or the state at `state.length` into the slots of `pieces`.

        Errors  CacheError(BAD_INSERT) for tokens that are not computed, or that a window no longer holds (it holds
                its region at the last grid multiple and later), or for a state that is not at `state.length`
        """
        for piece in pieces:
            if piece.start == piece.end:
                self._save_state(state, piece)
            else:
                self._save_pages(state, piece)

    @torch.inference_mode()
    def decode(self, states: Sequence[RequestState], tokens: Sequence[int]) -> Tensor:
        """Run one more token of every state. Shapes: logits [len(states), vocab], model's type.

        One state runs alone on the exact path. Several run as one right-aligned batch, whose bits differ from
        running alone by rounding only.
        """
        if len(states) == 1 or not self.capability.batched_decode:
            pairs = zip(states, tokens, strict=True)
            return torch.stack([self.prefill(state, [token]) for state, token in pairs])
        self._batch.assemble(states)
        given = dict(zip([state.row for state in states], tokens, strict=True))
        by_row = self._tensor([[int(given[row])] for row in range(len(states))])
        logits = self._model.forward(by_row, states[0].rows)
        return logits[[state.row for state in states], -1]

    def rows(self, logits: Tensor) -> Sequence[Tensor]:
        """Each row as a sampler reads it. Shapes: [vocab] or [n, vocab] -> n of float32[vocab], on the CPU."""
        return tuple(logits.reshape(-1, logits.shape[-1]).float().cpu())

    @torch.inference_mode()
    def drop(self, state: RequestState) -> None:
        """Forget a request; the state must not be used again."""
        self._batch.leave(state)
        state.rows = self._new_rows()
        state.row = 0

    def _new_rows(self) -> Rows:
        return Rows(self._sample.plans, self._sample.spare_tokens)

    def _tensor(self, tokens: list[list[int]]) -> Tensor:
        return torch.tensor(tokens, dtype=torch.int64, device=self._model.device)

    def _restore_piece(self, state: RequestState, piece: Piece) -> None:
        if piece.component == MAMBA:
            states = [tensor[None] for tensor in self.states.read(int(piece.slots[0]))]
            state.rows.load_states(self._sample, states)
            return
        for number, layer in enumerate(self._layout.layers[piece.component]):
            state.rows.begin(layer, piece.start, *self.pages[piece.component].read(number, piece.slots))

    def _save_state(self, state: RequestState, piece: Piece) -> None:
        if piece.end != state.length:
            raise CacheError(
                Kind.BAD_INSERT,
                "a recurrent state exists only at the end of what was computed",
                asked=piece.end,
                computed=state.length,
            )
        self.states.write(int(piece.slots[0]), [tensor[state.row] for tensor in state.rows.state_tensors()])

    def _save_pages(self, state: RequestState, piece: Piece) -> None:
        for number, layer in enumerate(self._layout.layers[piece.component]):
            held = state.rows.held_from(layer, state.row)
            if not held <= piece.start <= piece.end <= state.length:
                raise CacheError(
                    Kind.BAD_INSERT,
                    "these tokens are not held by the request any more, or not computed yet",
                    component=piece.component,
                    asked=(piece.start, piece.end),
                    held=(held, state.length),
                )
            keys, values = state.rows.tokens(layer, state.row, piece.start, piece.end)
            self.pages[piece.component].write(number, piece.slots, keys, values)


class RecomputingRunner(Runner):
    """Runs a model that cannot continue from a cache: every step is one forward over all tokens, nothing is kept."""

    def chunk_end(self, start: int, total: int) -> int:
        """The whole prompt at once."""
        return total

    def restore(self, state: RequestState, locked: Locked) -> None:
        if locked.boundary.length:
            raise CacheError(Kind.UNSUPPORTED_MODEL, self.capability.reason, boundary=locked.boundary.length)

    @torch.inference_mode()
    def prefill(self, state: RequestState, tokens: Tokens | Sequence[int]) -> Tensor:
        state.tokens.extend(map(int, tokens))
        return self._model.forward_without_cache(self._tensor([state.tokens]))[0, -1]

    def save(self, state: RequestState, pieces: Sequence[Piece]) -> None:
        """Nothing to save: pages of this model carry no bytes."""

    def drop(self, state: RequestState) -> None:
        state.tokens.clear()


def load_runner(model: Model, config: RunnerConfig) -> Runner:
    """Examine a loaded model, allocate its pools and make it runnable.

    Errors  CacheError(UNSUPPORTED_MODEL) when it does not even run; BAD_CONFIG for pages, grid or pool sizes
    Cost    about 40 short forwards and the pools' allocation
    """
    adapter = ModelAdapter(model)
    _check(config, adapter)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    finding = examine(adapter, config.grid_tokens + config.page_tokens)
    capability = Capability(
        specs=read_layout(finding.sample).specs(config.page_tokens, config.grid_tokens),
        reuse=finding.reuse,
        reason=finding.reason,
        prompt_only=finding.prompt_only,
        context_tokens=adapter.context_tokens,
        dtype=adapter.dtype,
        vocab_size=adapter.vocab_size,
        batched_decode=finding.batched_decode,
        chunk_bound=adapter.chunk_bound,
    )
    kind = RecomputingRunner if finding.reuse is ReuseClass.NOT_REUSABLE else Runner
    return kind(adapter, config, capability, finding.sample)


@torch.inference_mode()
def describe_model(model: Model, page_tokens: int, grid_tokens: int) -> tuple[ComponentSpec, ...]:
    """The components of a model with their slot bytes, to choose pool sizes before `load_runner`.

    A model that does not run on our cache layers has FULL only, without bytes.
    Cost    one short forward
    """
    adapter = ModelAdapter(model)
    try:
        sample = Rows(adapter.layers(), 0)
        adapter.forward(torch.zeros(1, 8, dtype=torch.int64, device=adapter.device), sample)
    except (CacheError, *FORWARD_FAILURES):
        sample = Rows((), 0)
    return read_layout(sample).specs(page_tokens, grid_tokens)


def _check(config: RunnerConfig, model: ModelAdapter) -> None:
    if config.page_tokens < 1 or config.grid_tokens < 1 or config.grid_tokens % config.page_tokens:
        raise CacheError(
            Kind.BAD_CONFIG,
            "the grid must be a multiple of the page",
            page_tokens=config.page_tokens,
            grid_tokens=config.grid_tokens,
        )
    if torch.device(config.device).type != model.device.type:
        raise CacheError(
            Kind.BAD_CONFIG,
            "the pools must be on the model's device",
            pools=config.device,
            model=str(model.device),
        )


def _slots(config: RunnerConfig, name: ComponentName) -> int:
    if name not in config.pool_slots:
        raise CacheError(
            Kind.BAD_CONFIG, f"no pool size for component {name}", given=sorted(config.pool_slots)
        )
    return config.pool_slots[name]

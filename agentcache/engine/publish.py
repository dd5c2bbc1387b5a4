"""Which boundaries a turn publishes, and the slots that each needs: arithmetic, no cache, no model.

    0        h (restored)     b1          b2        n   prompt end
    |=========|---- chunk ----|---- chunk ----|--tail--|  decode … next multiple of the grid
                              ^ FULL [h,b1)   ^ FULL [b1,b2), the window before b2, the state at b2

A turn publishes only at multiples of the grid, for only there a boundary can be voted on; the tail waits in the
request's private state until decoding completes the chunk. Of a window component only the pages that a published
boundary needs are stored (the region of its rule), of a recurrent one the state at it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentcache.types import Checkpoint, ComponentName, ComponentSpec, Path, Piece, Rule, Window

Need = dict[ComponentName, int]
POOL_SETTINGS: Mapping[type[Rule], str] = {
    Path: "full_slots",
    Window: "swa_slots",
    Checkpoint: "mamba_slots",
}
"""The setting that sizes the pools of a rule; two windows have two pools of one size."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """A pool of `slots` that can never hold what is asked of it; `setting` must be `least` or more."""

    component: ComponentName
    setting: str
    slots: int
    least: int


@dataclass(frozen=True, slots=True)
class PublishPolicy:
    """Where turns publish. `every_chunks` spaces the boundaries that let another session fork off midway;

    more of them mean deeper hits for prompts that share only their beginning, and more states and window pages. Where
    a prompt is found to leave a known path between two of them, a boundary is added: others will fork there too.
    """

    page_tokens: int
    grid_tokens: int
    specs: tuple[ComponentSpec, ...]
    every_chunks: int = 4

    def full(self, start: int, prompt_tokens: int, user_end_tokens: int, *ends: int) -> tuple[int, ...]:
        """Boundaries of a whole prompt beyond `start`, ascending: the essential ones, every k-th chunk end, and those
        before the end of the last user message and other `ends`: of the part that was known before, of marked ones."""
        stride = self.every_chunks * self.grid_tokens
        regular = range(stride, prompt_tokens + 1, stride)
        inner = [self._floor(min(end, prompt_tokens)) for end in (user_end_tokens, *ends)]
        return _beyond(start, (*regular, *inner, *self._last(prompt_tokens)))

    def essential(self, start: int, prompt_tokens: int) -> tuple[int, ...]:
        """The fewest boundaries that serve a later turn and an identical resend."""
        return _beyond(start, self._last(prompt_tokens))

    def _last(self, prompt_tokens: int) -> tuple[int, int]:
        """The prompt's last chunk end, and the last one that an identical prompt may match (it computes a token)."""
        return self._floor(prompt_tokens - 1), self._floor(prompt_tokens)

    def _floor(self, tokens: int) -> int:
        return tokens - tokens % self.grid_tokens

    def pieces(self, start: int, boundary: int) -> tuple[Piece, ...]:
        """What `boundary` needs beyond what `start` (the turn's locked boundary) already has; without slots."""
        found = []
        for spec in self.specs:
            region = spec.rule.region(boundary, self.page_tokens)
            piece = Piece(spec.name, max(start, region.start), region.end)
            if isinstance(spec.rule, Checkpoint) or piece.start < piece.end:
                found.append(piece)
        return tuple(found)

    def count(self, piece: Piece) -> int:
        """Slots of a piece: its pages, or one state."""
        return max(1, (piece.end - piece.start) // self.page_tokens)

    def need(self, start: int, boundaries: Iterable[int]) -> Need:
        """Slots per component to publish at `boundaries`, in order, from `start` on."""
        need: Need = dict.fromkeys((spec.name for spec in self.specs), 0)
        for boundary in boundaries:
            for piece in self.pieces(start, boundary):
                need[piece.component] += self.count(piece)
            start = boundary
        return need

    def held(self, boundary: int) -> Need:
        """Slots that a lease at `boundary` protects."""
        return self.need(0, (boundary,)) if boundary else self.need(0, ())

    def reservation(
        self,
        start: int,
        prompt_tokens: int,
        user_end_tokens: int,
        sizes: Mapping[ComponentName, int],
        *ends: int,
    ) -> tuple[tuple[int, ...], Need]:
        """The boundaries to publish and their need: the full policy where the pools can ever hold it beside the
        turn's own lease, else the essential boundaries, else the last one alone."""
        essential = self.essential(start, prompt_tokens)
        whole = self.full(start, prompt_tokens, user_end_tokens, *ends)
        choices = (whole, essential, essential[-1:])
        held = self.held(start)
        for boundaries in choices:
            need = self.need(start, boundaries)
            if all(need[name] + held[name] <= sizes[name] for name in need):
                break
        return boundaries, need

    def over_pool(self, prompt_tokens: int, sizes: Mapping[ComponentName, int]) -> Shortage | None:
        """The pool that can never hold this prompt, if any: its FULL pages to the last boundary, and two regions (the
        one restored from and the one published) of every other component."""
        last = self.essential(0, prompt_tokens)[-1:]
        need = self.need(0, last)
        for spec in self.specs:
            least = need[spec.name] if isinstance(spec.rule, Path) else 2 * need[spec.name]
            if least > sizes[spec.name]:
                return Shortage(spec.name, POOL_SETTINGS[type(spec.rule)], sizes[spec.name], least)
        return None


def _beyond(start: int, boundaries: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted({boundary for boundary in boundaries if boundary > start}))

"""Working memory of running requests: keys and values in one preallocated tensor, appended in place.

Requests that decode together share the tensors, right-aligned: the newest token of every row is at the same place.
Places are counted from the start of the longest row (*virtual positions*); for a single request they are the real
positions.
"""

import torch
from torch import Tensor

EVERYTHING = 1 << 62
_SPARE_TOKENS = 64


class KvSlab:
    """Keys and values of one attention layer.

    Shapes  keys, values: [row capacity, heads, token capacity, dim]
    Units   `start`, `end`: virtual positions of the first held token and behind the last one
            `reach`: tokens before a query that it may see; `keep`: tokens that are held at least (>= reach)
    """

    def __init__(self, reach: int = EVERYTHING, keep: int = EVERYTHING) -> None:
        self.reach = reach
        self.keep = keep
        self.start = 0
        self.end = 0
        self.keys = torch.empty(0)
        self.values = torch.empty(0)

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add `n` tokens to the first `rows` rows; returns views of what the new tokens may attend to.

        Shapes  keys, values: [rows, heads, n, dim] -> [rows, heads, min(reach, held) + n, dim]
        Cost    amortised O(n): space doubles, windows move to the front when the space is used up
        """
        rows, _, count, _ = keys.shape
        self._make_room(keys, values, count)
        held = self.end - self.start
        self.keys[:rows, :, held : held + count] = keys
        self.values[:rows, :, held : held + count] = values
        self.end += count
        seen = slice(held - min(self.reach, held), held + count)
        return self.keys[:rows, :, seen], self.values[:rows, :, seen]

    def read(self, row: int, start: int, end: int) -> tuple[Tensor, Tensor]:
        """Views of tokens `[start, end)` (virtual) of one row. Shapes: two of [heads, end - start, dim]."""
        seen = slice(start - self.start, end - self.start)
        return self.keys[row, :, seen], self.values[row, :, seen]

    def place(self, row: int, keys: Tensor, values: Tensor) -> None:
        """Set the newest tokens of a row, zeros before them. Shapes: keys, values [heads, n, dim], n <= end - start."""
        held = self.end - self.start
        for tensor, tokens in ((self.keys, keys), (self.values, values)):
            tensor[row].zero_()  # padding must stay finite: 0 * NaN would reach the other tokens
            tensor[row, :, held - tokens.shape[1] : held] = tokens

    def open(self, rows: int, end: int, like: tuple[Tensor, Tensor]) -> None:
        """Make room for `rows` empty rows that end at virtual position `end`; `like` gives heads, dim and type.

        Shapes  like: two of [heads, n, dim]
        """
        self.end = end
        self.start = max(0, end - self.keep)
        keys, values = like
        capacity = self.end - self.start + _SPARE_TOKENS
        self.keys = keys.new_zeros(rows, keys.shape[0], capacity, keys.shape[2])
        self.values = values.new_zeros(rows, values.shape[0], capacity, values.shape[2])

    def move_row(self, source: int, target: int) -> None:
        self.keys[target].copy_(self.keys[source])
        self.values[target].copy_(self.values[source])

    def _make_room(self, keys: Tensor, values: Tensor, count: int) -> None:
        held = self.end - self.start
        if self.keys.ndim == 4 and held + count <= self.keys.shape[2]:
            return
        drop = max(0, held - self.keep)
        capacity = 2 * (held - drop) + count + _SPARE_TOKENS
        self.keys = _moved(self.keys, keys, slice(drop, held), capacity)
        self.values = _moved(self.values, values, slice(drop, held), capacity)
        self.start += drop


def _moved(old: Tensor, like: Tensor, part: slice, capacity: int) -> Tensor:
    """A larger tensor with `part` of the old one at its front; zeros elsewhere, so that padding stays finite."""
    rows = old.shape[0] if old.ndim == 4 else like.shape[0]
    new = like.new_zeros(rows, like.shape[1], capacity, like.shape[3])
    if part.stop > part.start:
        new[:, :, : part.stop - part.start] = old[:, :, part]
    return new

"""The bytes of one tier: pages of keys and values, and recurrent states, by slot.

Shapes and types come from a probe of the model, never from formulas. Every tensor is filled with NaN when it is
allocated, so a slot that nobody wrote is visible in the first logits that use it. Writing copies in and reading
copies out: a reader may update what it got in place (copy-on-write).

`SlotTensors` are the same tensors as plain bytes, for tiers. What it copies within host memory it copies with numpy,
on the calling thread alone: torch would keep a pool of workers for each thread that copies.
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agentcache.errors import CacheError, Kind
from agentcache.pools.memory import free_host_bytes
from agentcache.types import Slots


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Shape and type of one unit of data: keys or values of one token, or one state tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def allocate(self, *leading: int, device: torch.device) -> Tensor:
        """A tensor of NaN. Errors: CacheError(BAD_CONFIG) when the device has no room for it."""
        try:
            return _nan((*leading, *self.shape), self.dtype, device)
        except RuntimeError as bad:
            gib = prod(leading) * self.size_bytes / 2**30
            raise CacheError(
                Kind.BAD_CONFIG,
                f"a pool of {leading[0]:,} slots needs {gib:,.0f} GiB in one tensor, more than {device} has; lower "
                "full_slots, swa_slots or mamba_slots",
            ) from bad


@dataclass(frozen=True, slots=True)
class KvLayout:
    """One attention layer: `[heads, dim]` of a token's keys and of its values; widths and types may differ."""

    keys: TensorLayout
    values: TensorLayout

    @property
    def token_bytes(self) -> int:
        return self.keys.size_bytes + self.values.size_bytes


class PageBuffers:
    """Pages of keys and values of the layers of one component.

    Shapes  keys[layer], values[layer]: [slots, page_tokens, heads, dim]
    """

    def __init__(
        self, slots: int, page_tokens: int, layers: Sequence[KvLayout], device: torch.device
    ) -> None:
        self.page_tokens = page_tokens
        self.slot_bytes = page_tokens * sum(layer.token_bytes for layer in layers)
        self.keys = [layer.keys.allocate(slots, page_tokens, device=device) for layer in layers]
        self.values = [layer.values.allocate(slots, page_tokens, device=device) for layer in layers]

    def write(self, layer: int, slots: Slots, keys: Tensor, values: Tensor) -> None:
        """Copy whole pages into `slots`. Shapes: keys, values [heads, len(slots) * page_tokens, dim]."""
        for pages, tokens in ((self.keys[layer], keys), (self.values[layer], values)):
            pages[_index(slots, pages)] = tokens.transpose(0, 1).reshape(len(slots), *pages.shape[1:])

    def slot_tensors(self) -> "SlotTensors":
        """The same memory as bytes by slot: keys, then values of each layer."""
        parts = [part for layer in zip(self.keys, self.values, strict=True) for part in layer]
        return SlotTensors(
            parts, [f"{kind}.{layer}" for layer in range(len(self.keys)) for kind in ("keys", "values")]
        )

    def read(self, layer: int, slots: Slots) -> tuple[Tensor, Tensor]:
        """Copy whole pages out, in the order of `slots`. Shapes: two of [heads, len(slots) * page_tokens, dim]."""
        keys, values = self.keys[layer], self.values[layer]
        return (
            keys[_index(slots, keys)].flatten(0, 1).transpose(0, 1),
            values[_index(slots, values)].flatten(0, 1).transpose(0, 1),
        )


class StateBuffers:
    """Recurrent states: one slot holds every state tensor of every layer at one position.

    Shapes  tensors[i]: [slots, *layouts[i].shape]
    """

    def __init__(self, slots: int, layouts: Sequence[TensorLayout], device: torch.device) -> None:
        self.slot_bytes = sum(layout.size_bytes for layout in layouts)
        self.tensors = [layout.allocate(slots, device=device) for layout in layouts]

    def write(self, slot: int, states: Sequence[Tensor]) -> None:
        """Copy one state in. Shapes: states[i] as layouts[i]."""
        for stored, state in zip(self.tensors, states, strict=True):
            stored[slot].copy_(state)

    def read(self, slot: int) -> list[Tensor]:
        """Copy one state out."""
        return [stored[slot].clone() for stored in self.tensors]

    def slot_tensors(self) -> "SlotTensors":
        """The same memory as bytes by slot: the state tensors in order."""
        return SlotTensors(self.tensors, [f"state.{number}" for number in range(len(self.tensors))])


class SlotTensors:
    """The tensors of one pool as bytes by slot: `tiers.api.SlotBytes`. Shares their memory, copies nothing.

    Shapes  parts[i]: [slots, ...], contiguous, all on one device; one name a part
    Caller  keeps a slot that is copied, read or written from being used by others; otherwise any thread may call
    """

    def __init__(self, parts: Sequence[Tensor], names: Sequence[str]) -> None:
        self._tensors = dict(zip(names, parts, strict=True))
        self._rows = [_rows(part) for part in parts]
        self._arrays = [rows.numpy() for rows in self._rows if rows.is_cpu]
        widths = [rows.shape[1] for rows in self._rows]
        self._edges: list[int] = [0, *np.cumsum(widths, dtype=np.int64).tolist()]
        self._layout = " ".join(_described(name, part) for name, part in self._tensors.items())

    @property
    def layout(self) -> str:
        """Name, type and shape of every part in order; how many slots there are does not matter."""
        return self._layout

    @property
    def slot_bytes(self) -> int:
        return self._edges[-1]

    @property
    def parts(self) -> int:
        return len(self._rows)

    @property
    def slots(self) -> int:
        """How many there are; 0 without parts."""
        return self._rows[0].shape[0] if self._rows else 0

    @property
    def device(self) -> torch.device:
        return self._rows[0].device if self._rows else torch.device("cpu")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tensors)

    def tensor(self, name: str) -> Tensor:
        """The part of this name itself, no copy: an engine fills its sidecars here. Shapes: [slots, ...]."""
        return self._tensors[name]

    def extended(self, parts: Sequence[Tensor], names: Sequence[str]) -> "SlotTensors":
        """These parts and more of as many slots after them. Errors: CacheError(BAD_CONFIG) for a name twice."""
        twice = set(names) & set(self.names)
        if twice or len(set(names)) < len(names):
            raise CacheError(
                Kind.BAD_CONFIG, "tensors of one pool need names of their own", given=sorted(names)
            )
        return SlotTensors([*self._tensors.values(), *parts], [*self.names, *names])

    def copy_part(self, part: int, slots: Slots, target: object, target_slots: Slots) -> None:
        """Copy one part of these slots into the same part of another pool of this layout.

        Between pinned host memory and a CUDA device it is only queued, on the current stream; else it is done.
        Errors  CacheError(BAD_CONFIG) for another layout
        Cost    one copy for each run of slots that are consecutive on both sides
        """
        if not isinstance(target, SlotTensors) or target.layout != self.layout:
            raise CacheError(
                Kind.BAD_CONFIG, "only pools of one layout can exchange slots", layout=self.layout
            )
        runs = _runs(slots, target_slots)
        if self._arrays and target._arrays:
            for first, to, count in runs:
                target._arrays[part][to : to + count] = self._arrays[part][first : first + count]
            return
        for first, to, count in runs:
            rows = self._rows[part][first : first + count]
            target._rows[part][to : to + count].copy_(rows, non_blocking=True)

    def read(self, slot: int) -> bytes:
        """A copy of all parts of one slot. On a CUDA device it waits for the current stream."""
        if self._rows and not self._arrays:
            return torch.cat([rows[slot] for rows in self._rows]).cpu().numpy().tobytes()
        return b"".join(array[slot].data for array in self._arrays)

    def write(self, slot: int, payload: bytes | memoryview) -> None:
        """Fill one slot. Caller: `payload` has `slot_bytes` bytes."""
        whole = np.frombuffer(payload, dtype=np.uint8)
        pieces = [whole[start:end] for start, end in pairwise(self._edges)]
        for array, piece in zip(self._arrays, pieces, strict=False):
            array[slot] = piece
        if self._rows and not self._arrays:
            on_device = torch.split(torch.from_numpy(whole.copy()).to(self.device), [p.size for p in pieces])
            for rows, part in zip(self._rows, on_device, strict=True):
                rows[slot].copy_(part)

    def twin(self, slots: int, pinned: bool) -> "SlotTensors":
        """The same parts in host memory with `slots` slots of NaN. `pinned`: copies to CUDA devices need not wait.

        Errors  CacheError(BAD_CONFIG) when the host has no room for them
        """
        gib, free = slots * self.slot_bytes / 2**30, free_host_bytes() / 2**30
        short = f"{slots:,} host slots of {self.slot_bytes:,} bytes need {gib:,.1f} GiB"
        if gib > free:
            raise CacheError(Kind.BAD_CONFIG, f"{short}, and {free:,.1f} GiB are free; lower host_mib")
        sizes = [slots * rows.shape[1] for rows in self._rows]
        try:
            arena = _arena([size + -size % _HOST_PAGE for size in sizes])
            if pinned:
                _pin(arena)
        except (RuntimeError, AssertionError) as bad:  # torch without CUDA asserts
            raise CacheError(Kind.BAD_CONFIG, f"{short}, which cannot be had: {bad}; lower host_mib") from bad
        parts = [
            room[:size].view(part.dtype).view(slots, *part.shape[1:])
            for room, size, part in zip(arena, sizes, self._tensors.values(), strict=True)
        ]
        made = SlotTensors(parts, self.names)
        if pinned:
            weakref.finalize(made, _unpin, arena)
        return made


_HOST_PAGE = 4096
_PORTABLE = 1
"""cudaHostRegisterPortable: pinned for every device."""


def _arena(sizes: Sequence[int]) -> list[Tensor]:
    """Host memory of all bits one, as pieces of whole pages of the system, of one allocation."""
    whole = torch.full((sum(sizes) + _HOST_PAGE,), 0xFF, dtype=torch.uint8)
    start = -whole.data_ptr() % _HOST_PAGE
    return list(torch.split(whole[start : start + sum(sizes)], list(sizes)))


def _pin(arena: Sequence[Tensor]) -> None:
    """Register memory with CUDA. Not torch's own pinned memory: that rounds up to powers of two."""
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    for room in arena:
        if room.numel():
            torch.cuda.check_error(int(runtime.cudaHostRegister(room.data_ptr(), room.numel(), _PORTABLE)))


def _unpin(arena: Sequence[Tensor]) -> None:
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    for room in arena:
        if room.numel():
            runtime.cudaHostUnregister(room.data_ptr())


def _nan(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """All bits one: NaN in every floating type, and a value that stands out in the others."""
    made = torch.empty(tuple(shape), dtype=dtype, device=device)
    _rows(made).fill_(0xFF)
    return made


def _rows(part: Tensor) -> Tensor:
    """The bytes of a tensor by slot, the same memory. Shapes: [slots, bytes]."""
    return part.view(part.shape[0], prod(part.shape[1:])).view(torch.uint8)


def _described(name: str, part: Tensor) -> str:
    shape = ",".join(map(str, part.shape[1:]))
    return f"{name}:{str(part.dtype).removeprefix('torch.')}[{shape}]"


def _runs(slots: Slots, target_slots: Slots) -> list[tuple[int, int, int]]:
    """Runs of slots that are consecutive on both sides: the first here, the first there, and how many."""
    if not slots.size:
        return []
    cuts = np.flatnonzero((np.diff(slots) != 1) | (np.diff(target_slots) != 1)) + 1
    edges = np.concatenate([[0], cuts, [slots.size]])
    starts = edges[:-1]
    return list(
        zip(slots[starts].tolist(), target_slots[starts].tolist(), np.diff(edges).tolist(), strict=True)
    )


def _index(slots: Slots, pages: Tensor) -> Tensor:
    return torch.as_tensor(slots, dtype=torch.int64, device=pages.device)

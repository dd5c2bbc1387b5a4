"""The model that a replay serves: what its cache keeps of a path beside the pages of full attention, and how much.

    FULL    a slot for every page                                     room: as many as the cell says
    SWA     the pages of the window before every published boundary   `window_share` of FULL's slots
    MAMBA   a state at every published boundary                       a slot for `state_tokens` of FULL's

Boundaries lie at multiples of a chunk, and where an engine publishes them (`engine/publish.py`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentcache.errors import CacheError, Kind
from agentcache.types import FULL, MAMBA, SWA, ComponentName, ComponentSpec, full_spec, mamba_spec, swa_spec


@dataclass(frozen=True, slots=True)
class Parts:
    """The components of a model. Units: tokens.

    `window` is what a boundary needs of a sliding window (an attention window of W needs W - 1), 0: there is none;
    `states`: it has recurrent layers. `chunk` and `every_chunks` are an engine's grid and how many of its chunks lie
    between two boundaries of a prompt; full attention alone is cut at every page, and the rest does not count.
    """

    window: int = 0
    states: bool = False
    chunk: int = 128
    every_chunks: int = 4
    window_share: float = 0.5
    state_tokens: int = 256

    @property
    def hybrid(self) -> bool:
        """Whether anything but full attention votes."""
        return bool(self.window) or self.states

    @property
    def name(self) -> str:
        return "full" + "+swa" * bool(self.window) + "+mamba" * self.states

    def as_json(self) -> dict[str, Any]:
        """What a row says of its model; null: what it does not have."""
        return {
            "parts": self.name,
            "window": self.window + 1 if self.window else None,
            "window_share": self.window_share if self.window else None,
            "state_tokens": self.state_tokens if self.states else None,
            "chunk": self.chunk if self.hybrid else None,
        }

    def grid(self, page_tokens: int) -> int:
        """Tokens between two places where a prompt may be cut: whole pages."""
        return page_tokens * math.ceil(self.chunk / page_tokens) if self.hybrid else page_tokens

    def specs(self, page_tokens: int, unit: int = 1) -> tuple[ComponentSpec, ...]:
        """The components, their rules in units of so many tokens: an engine's, or with a page those of the tree."""
        specs = [full_spec()]
        if self.window:
            specs.append(swa_spec(math.ceil(self.window / unit)))
        if self.states:
            specs.append(mamba_spec(self.grid(page_tokens) // unit))
        return tuple(specs)

    def slots(self, full_pages: int, page_tokens: int) -> dict[ComponentName, int]:
        """The slots of each component beside so many pages of FULL: one at least, and none that FULL cannot use."""
        sizes: Mapping[ComponentName, float] = {
            FULL: full_pages,
            SWA: full_pages * self.window_share,
            MAMBA: full_pages * page_tokens / self.state_tokens,
        }
        counts = {spec.name: round(min(full_pages, sizes[spec.name])) for spec in self.specs(page_tokens)}
        return {name: max(1, count) for name, count in counts.items()}


FULL_ONLY = Parts()
ATTENTION_WINDOW = 1024
"""Of a sliding window whose length nobody said: Gemma 3's."""

NAMES = ("full", "full+swa", "full+mamba", "full+swa+mamba")


@dataclass(frozen=True, slots=True)
class Model:
    """A model's parts as they are asked for, by the names of flags; 0: the usual, as in `Parts`.

    Units  tokens; `window` of the attention, whose boundaries need one token less
    """

    parts: str = NAMES[0]
    window: int = 0
    window_share: float = 0.0
    state_tokens: int = 0
    chunk: int = 0

    def components(self) -> Parts:
        """The same as they are replayed. Errors: BAD_REQUEST for other names, and for what would have no effect."""
        if self.parts not in NAMES:
            said = f"no model has the parts {self.parts!r}; there are {', '.join(NAMES)}"
            raise CacheError(Kind.BAD_REQUEST, said)
        windows, states = "swa" in self.parts, "mamba" in self.parts
        self._need(windows, "full+swa", window=self.window, window_share=self.window_share)
        self._need(states, "full+mamba", state_tokens=self.state_tokens)
        self._need(windows or states, "full+swa", chunk=self.chunk)
        if self.window == 1:
            raise CacheError(Kind.BAD_REQUEST, "--window of an attention has two tokens or more")
        return Parts(
            (self.window or ATTENTION_WINDOW) - 1 if windows else 0,
            states,
            self.chunk or FULL_ONLY.chunk,
            FULL_ONLY.every_chunks,
            self.window_share or FULL_ONLY.window_share,
            self.state_tokens or FULL_ONLY.state_tokens,
        )

    def _need(self, there: bool, parts: str, **said: float) -> None:
        flags = [f"--{name.replace('_', '-')}" for name, value in said.items() if value]
        if flags and not there:
            raise CacheError(Kind.BAD_REQUEST, f"{flags[0]} is of a model that has more: add --parts {parts}")


def parts_of(name: str, window: int = 0) -> Parts:
    """The components of a model named like `full+swa+mamba`, the rest as usual. Errors: as `Model.components`."""
    return Model(name, window).components()

"""What an engine computes with, seen from its scheduler: the calls of a runner, and who chooses tokens.

A runner computes with a model (`runner.py`) or only keeps account of what would be computed (`accounting.py`). The
scheduler, the publisher and the cache are the same over both, and none of them looks into a state or into logits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from agentcache.engine.api import GenerateRequest
from agentcache.types import Locked, Piece

SEEDS = 2**63
END = -1
"""No token: the answer ends here."""

S = TypeVar("S")
L = TypeVar("L")
R = TypeVar("R", covariant=True)
Read = TypeVar("Read", contravariant=True)


@dataclass(frozen=True, slots=True)
class Choice:
    """A token (or END), and the gap between the two largest logits."""

    token: int
    top_margin: float


class Chooser(Protocol[Read]):
    """One request's choices, from one row of logits each."""

    def choose(self, row: Read) -> Choice: ...

    def digest(self, row: Read) -> str:
        """sha256 of the row as float32 bytes; "" where there are none."""


class State(Protocol):
    """What one request has computed; opaque but for its length."""

    @property
    def length(self) -> int:
        """Tokens so far."""


class Computing(Protocol[S, L, R]):
    """A runner: private states of requests, prefill on the grid, batched decode, and the device tier's slots.

    `S` is its state, `L` what a forward answers, `R` a row of it for a chooser.
    Caller  single threaded; a state is used after `new_state` and not after `drop`
    """

    def chunk_end(self, start: int, total: int) -> int:
        """Where the prefill forward that begins at `start` ends, for a prompt of `total` tokens."""

    def new_state(self) -> S:
        """An empty state."""

    def restore(self, state: S, locked: Locked) -> None:
        """Make an empty state continue at the boundary of `locked`. Errors: NOT_RESIDENT for other pieces."""

    def prefill(self, state: S, tokens: Sequence[int]) -> L:
        """Compute one chunk; the logits of its last token."""

    def save(self, state: S, pieces: Sequence[Piece]) -> None:
        """Fill the slots of `pieces`. Errors: BAD_INSERT for tokens that the state has not, or no longer."""

    def decode(self, states: Sequence[S], tokens: Sequence[int]) -> L:
        """Compute one more token of every state; logits, one row a state."""

    def rows(self, logits: L) -> Sequence[R]:
        """Logits as choosers read them, row by row."""

    def drop(self, state: S) -> None:
        """Forget a request."""


Runs = Computing[Any, Any, Any]
"""A runner as the scheduler sees it: what it gets from one call it only hands to the next."""
Chooses = Callable[[GenerateRequest, int], Chooser[Any]]
"""Makes a request's chooser; the number is its seed where the request names none."""


class Pace(Protocol):
    """How much longer what was computed last would still take; for runners that are faster than what they model."""

    def busy_ns(self) -> int: ...


class AtOnce:
    """Computing takes the time that it takes: nothing is waited for."""

    def busy_ns(self) -> int:
        return 0

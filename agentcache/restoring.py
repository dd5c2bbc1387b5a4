"""What of a path could be restored from outside: the boundary vote over what an external tier says it has. Arithmetic.

    0          voted                  reach      limit
    |===========|- - - - - - - - - - - -|          |     FULL: held outside from the voted boundary to `reach`
                    ^        ^      ^                    candidates: multiples of the grid in (voted, reach]

A candidate is restorable when every other component's region there is held outside, whole. What of all this may be
resident beyond the boundary that votes is not looked at: nothing keeps it from leaving.
"""

from collections.abc import Callable, Iterator, Sequence

from agentcache.tree.api import CoreConfig
from agentcache.types import FULL, Checkpoint, ComponentName, ComponentSpec, Piece, Window

Held = Callable[[ComponentName, int], bool]
"""Whether the page that ends here, or the state here, is held outside."""


def questions(config: CoreConfig, voted: int, limit: int) -> Iterator[tuple[ComponentName, int]]:
    """What to ask for, shallow before deep: (component, end of the page or position of the state)."""
    page, grid = config.page_tokens, config.grid
    last = limit - limit % grid
    yield from ((FULL, end) for end in range(voted + page, last + 1, page))
    first = voted - voted % grid + grid
    for spec in config.specs[1:]:
        if isinstance(spec.rule, Checkpoint):
            yield from ((spec.name, end) for end in range(first, last + 1, grid) if _possible(spec, end))
        elif first <= last:
            start = spec.rule.region(first, page).start
            yield from ((spec.name, end) for end in range(start + page, last + 1, page))


def names_per_chunk(config: CoreConfig) -> int:
    """How many questions one more chunk of the grid is."""
    pages = config.grid // config.page_tokens
    return sum(1 if isinstance(spec.rule, Checkpoint) else pages for spec in config.specs)


def restorable(config: CoreConfig, voted: int, limit: int, held: Held) -> tuple[int, ...]:
    """The boundaries beyond `voted`, not beyond `limit`, that would vote with what is held outside; ascending."""
    page, grid = config.page_tokens, config.grid
    reach = voted
    while reach + page <= limit and held(FULL, reach + page):
        reach += page
    candidates = range(voted - voted % grid + grid, min(reach, limit) + 1, grid)
    return tuple(
        end for end in candidates if all(_held_whole(spec, end, page, held) for spec in config.specs[1:])
    )


def stretches(boundaries: Sequence[int], stretch_tokens: int) -> list[int]:
    """Some of these ascending boundaries, the deepest among them, at least `stretch_tokens` apart; ascending."""
    chosen: list[int] = []
    for end in reversed(boundaries):
        if not chosen or chosen[-1] - end >= stretch_tokens:
            chosen.append(end)
    return chosen[::-1]


def missing(config: CoreConfig, voted: int, end: int) -> tuple[Piece, ...]:
    """What boundary `end` needs from outside beyond `voted`; without slots."""
    page = config.page_tokens
    pieces = [Piece(FULL, voted, end)]
    for spec in config.specs[1:]:
        region = spec.rule.region(end, page)
        pieces.append(Piece(spec.name, region.start, region.end))
    return tuple(pieces)


def slots_of(piece: Piece, page_tokens: int) -> int:
    """How many slots a piece takes: its pages, or one state."""
    return max(1, (piece.end - piece.start) // page_tokens)


def _held_whole(spec: ComponentSpec, boundary: int, page: int, held: Held) -> bool:
    if isinstance(spec.rule, Checkpoint):
        return _possible(spec, boundary) and held(spec.name, boundary)
    region = spec.rule.region(boundary, page)
    return all(held(spec.name, end) for end in range(region.start + page, region.end + 1, page))


def _possible(spec: ComponentSpec, position: int) -> bool:
    return isinstance(spec.rule, Checkpoint | Window) and (
        isinstance(spec.rule, Window) or position % spec.rule.grid_tokens == 0
    )

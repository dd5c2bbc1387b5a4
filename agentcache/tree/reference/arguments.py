"""What callers hand in, read once and checked before anything changes."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from operator import index

from agentcache.errors import CacheError, Kind
from agentcache.keys import Key, Namespace
from agentcache.types import ComponentName, Piece, Slots, Wait

MOST = 2**63 - 1  # the largest number that a core works with


@dataclass(frozen=True, slots=True)
class RawKey:
    """A key as bytes: int32 tokens, little-endian."""

    raw: bytes
    namespace: Namespace

    def __len__(self) -> int:
        return len(self.raw) // 4

    def page(self, end: int, page_tokens: int) -> bytes:
        """The tokens of the page that ends at `end`."""
        return self.raw[4 * (end - page_tokens) : 4 * end]


def raw_key(key: Key, page_tokens: int) -> RawKey:
    """Errors: BAD_REQUEST, UNALIGNED."""
    tokens = _flat_int32(key.tokens)
    if tokens is None:
        raise CacheError(Kind.BAD_REQUEST, "tokens are one flat int32 array; make keys with keys.page_key")
    if len(tokens) % page_tokens:
        raise CacheError(
            Kind.UNALIGNED, "a key is whole pages; make keys with keys.page_key", tokens=len(tokens)
        )
    return RawKey(tokens.tobytes(), key.namespace)


def _flat_int32(array: Slots) -> memoryview | None:
    """The array's memory; None when it is not contiguous int32, in one dimension."""
    try:
        view = memoryview(array)  # type: ignore[arg-type]  # stubs for Python 3.11 know no buffers
    except (TypeError, ValueError, BufferError):
        return None
    return view if view.format == "i" and view.ndim == 1 and view.c_contiguous else None


def slot_numbers(slots: Slots, component: ComponentName) -> list[int]:
    """Errors: BAD_INSERT."""
    view = _flat_int32(slots)
    if view is None:
        raise CacheError(Kind.BAD_INSERT, "slots are one flat int32 array", component=component)
    numbers = view.tolist()
    if min(numbers, default=0) < 0:
        raise CacheError(Kind.BAD_INSERT, "slots count from 0", component=component, slot=min(numbers))
    return numbers


def slots_by_end(piece: Piece, is_state: bool, page_tokens: int) -> list[tuple[int, int]]:
    """The slots of a piece with the page end of each. Errors: BAD_INSERT."""
    numbers = slot_numbers(piece.slots, piece.component)
    pages = 1 if is_state else (piece.end - piece.start) // page_tokens
    if pages != len(numbers) or (is_state and piece.start != piece.end):
        raise CacheError(
            Kind.BAD_INSERT,
            "one slot a page, or one state with start == end",
            component=piece.component,
            start=piece.start,
            end=piece.end,
            slots=len(numbers),
        )
    first = piece.end if is_state else piece.start + page_tokens
    return [(first + at * page_tokens, slot) for at, slot in enumerate(numbers)]


def demand_once(places: Iterable[tuple[ComponentName, int]], what: str) -> None:
    """Errors: BAD_INSERT when a component has the same number twice."""
    seen: set[tuple[ComponentName, int]] = set()
    for name, number in places:
        if (name, number) in seen:
            raise CacheError(Kind.BAD_INSERT, f"each {what} is given once", component=name, twice=number)
        seen.add((name, number))


def saturated(count: int) -> int:
    """A count that is only compared: beyond 64 bits it is as good as the largest."""
    return max(-MOST - 1, min(index(count), MOST))


def room_of(room: Mapping[ComponentName, int]) -> dict[ComponentName, int]:
    """Free slots per component; fewer than none is none."""
    return {name: max(0, saturated(count)) for name, count in room.items()}


def demand_numbers(**numbers: int) -> None:
    """Times, generations, sequence numbers and priorities are kept as they are. Errors: BAD_REQUEST."""
    for name, number in numbers.items():
        if saturated(number) != number:
            raise CacheError(Kind.BAD_REQUEST, f"{name} must fit into 64 bits", number=number)


def demand_wait(wait: Wait) -> None:
    """`demand_numbers` of those that a wait has."""
    demand_numbers(**{name: value for name, value in asdict(wait).items() if isinstance(value, int)})

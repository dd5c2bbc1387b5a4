"""All that a worker has, in messages none of which holds a reader up for long."""

from collections.abc import Iterable
from typing import Final

import msgspec

from agentcache.kv_events import AllBlocksCleared, BlockEvent

PART_PAGES: Final = 1_000
"""Pages that one message tells of, but for the last event in it; a router takes some milliseconds for them."""


def in_parts(ts: float, events: Iterable[BlockEvent], most: int) -> tuple[bytes, ...]:
    """The payloads of `most` messages at most, the last one with all that is left, encoded event by event: others get
    their turn, and the tokens of one event at a time are spread out."""
    parts: list[list[msgspec.Raw]] = [[]]
    pages = 0
    for event in events:
        if pages >= PART_PAGES and len(parts) < most:
            parts.append([])
            pages = 0
        parts[-1].append(msgspec.Raw(msgspec.msgpack.encode(event)))
        pages += 0 if isinstance(event, AllBlocksCleared) else len(event.block_hashes)
    return tuple(msgspec.msgpack.encode([ts, part, 0]) for part in parts)

"""Places in lists, as clients say them."""

from typing import Final

from agentcache.errors import CacheError, Kind

WALK: Final = 20_000
"""Sessions of a shard that are looked through for a tenant's."""


def place_after(after: str) -> int:
    """The place after which a page begins; 0 for the first.

    Errors  CacheError(BAD_REQUEST)
    """
    if after and not (after.isascii() and after.isdecimal() and len(after) < 17):
        raise CacheError(Kind.BAD_REQUEST, "`after` is what the page before ended with", param="after")
    return int(after or 0)

"""Places in lists, as clients say them."""

from agentcache.errors import CacheError, Kind


def place_after(after: str) -> int:
    """The place after which a page begins; 0 for the first.

    Errors  CacheError(BAD_REQUEST)
    """
    if after and not (after.isascii() and after.isdecimal() and len(after) < 17):
        raise CacheError(Kind.BAD_REQUEST, "`after` is what the page before ended with", param="after")
    return int(after or 0)

"""`TreeCore` of the extension module; where that does not load, a class that says so when a core is made.

So that everything can be imported without the native core, and nothing runs another core in its place.
"""

from typing import NoReturn

from agentcache.errors import CacheError, Kind

try:
    from agentcache._native import TreeCore

    MISSING = ""
    """Why there is no native core, and what to do; empty where there is one."""
except ImportError as error:
    MISSING = (
        f"the native core does not load ({error}); in a checkout `make environment` builds it. Without it: "
        'build_cache(…, core="reference"); for the command, --core reference or AGENTCACHE_CORE=reference'
    )

    class TreeCore:  # type: ignore[no-redef]
        """Stands where the extension module is missing or does not fit this machine."""

        def __new__(cls, *_: object) -> NoReturn:
            raise CacheError(Kind.BAD_CONFIG, MISSING)


__all__ = ["MISSING", "TreeCore"]

"""`TreeCore` of the extension module; where that does not load, a class that says so when a core is made.

So that everything can be imported without the native core, and nothing runs another core in its place.
"""

from typing import NoReturn

from agentcache.errors import CacheError, Kind

try:
    from agentcache._native import TreeCore
except ImportError as error:
    REASON = str(error)

    class TreeCore:  # type: ignore[no-redef]
        """Stands where the extension module is missing or does not fit this machine."""

        def __new__(cls, *_: object) -> NoReturn:
            raise CacheError(
                Kind.BAD_CONFIG,
                f"the native core does not load ({REASON}); in a checkout `make environment` builds it; "
                'core = "reference" (AGENTCACHE_CORE=reference) does without',
            )


__all__ = ["TreeCore"]

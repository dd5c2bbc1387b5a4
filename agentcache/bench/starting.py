"""How `python -m agentcache.bench.NAME` ends: as `agentcache bench NAME` does."""

import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from agentcache.errors import CacheError


def start(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Run a benchmark with the words of the command line; a fault that we name is one line on stderr and code 2."""
    try:
        code = main(sys.argv[1:])
    except CacheError as error:
        print(f"agentcache: {error}", file=sys.stderr)
        code = 2
    raise SystemExit(code)

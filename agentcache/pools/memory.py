"""How much memory the host has left, so that a pool that is too large is an error and not the end of the process."""

import os
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def free_host_bytes(meminfo: Path = MEMINFO, limit: Path = CONTAINER_LIMIT) -> int:
    """What can be allocated without swapping, as far as the system says: all that is installed where it says nothing.

    A container's own limit counts, too; what it uses of it does not (much of that is cache that would give way).
    """
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    stated = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    words = limit.read_text().split() if limit.exists() else []
    stated += [int(word) for word in words if word.isdigit()]
    return min(stated, default=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))

"""The folder in which several router processes count: there as long as the first of them runs, however it ends."""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PREFIX: Final = "agentcache-router-"
OWNED: Final = "owned"
"""A file in each folder, locked by the process that made it: the kernel unlocks it when that one ends."""


@contextmanager
def counting_folder(below: Path | None = None) -> Iterator[Path]:
    """A new folder `below` the machine's temporary one, removed with the block, and before it what others left there
    that were killed."""
    below = below or Path(tempfile.gettempdir())
    _remove_left(below)
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=below) as made:
        folder = Path(made)
        with (folder / "made").open("w") as owned:
            fcntl.flock(owned, fcntl.LOCK_EX)
            (folder / "made").rename(folder / OWNED)  # locked before anybody can find it
            yield folder


def _remove_left(below: Path) -> None:
    """Remove folders that nobody owns any more. One without that file is being made, or somebody else's."""
    for lock in below.glob(f"{PREFIX}*/{OWNED}"):
        try:
            with lock.open("r+") as owned:
                fcntl.flock(owned, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:  # owned, another user's, or gone
            continue

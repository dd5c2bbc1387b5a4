"""Commands of ours as processes: started until they listen, ended in any way, and looked after."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE_S, until

LISTENING = "listening on "
LOG_BYTES = 1 << 26
"""What a process may have written that nobody has read: one whose log is full would stand still."""


@dataclass
class Running:
    """A started command, where it listens, and all that it said until then."""

    process: Process
    url: str
    banner: str

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.wait(), PATIENCE_S)


@asynccontextmanager
async def running(*words: str, listens: int = 1, stderr: int = PIPE) -> AsyncIterator[Running]:
    """`agentcache WORDS` once it has said `listens` times where it listens; killed if it is still there at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agentcache", *words, stdout=PIPE, stderr=stderr, limit=LOG_BYTES
    )
    try:
        banner = await _until_listening(process, listens)
        yield Running(process, banner.rsplit(LISTENING)[-1].strip(), banner)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _until_listening(process: Process, listens: int) -> str:
    said = ""
    assert process.stdout
    while said.count(LISTENING) < listens:
        line = (await process.stdout.readline()).decode()
        assert line, ((await process.communicate())[1] or b"").decode()
        said += line
    return said


def children(number: int) -> set[int]:
    """The processes below one, theirs too."""
    direct = {
        int(found)
        for task in Path(f"/proc/{number}/task").iterdir()
        for found in (task / "children").read_text().split()
    }
    return direct | {deeper for child in direct for deeper in children(child)}


def is_gone(number: int) -> bool:
    """No such process, or one that has ended and is not yet buried."""
    try:
        os.kill(number, 0)
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


async def all_gone(numbers: set[int]) -> None:
    await until(lambda: all(map(is_gone, numbers)))

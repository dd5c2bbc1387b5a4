"""Workers asked themselves: those whom the store cannot speak for, and servers that it does not know."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

UNANSWERED: Final = 3
"""Questions in a row without an answer, after which a worker that the store cannot speak for is not alive."""
AWAITED_LOOKS: Final = 20
"""Looks after the store was away at which workers that it does not hear yet are asked."""


@dataclass(frozen=True, slots=True)
class Health:
    """The answer of a probe. `models`: what the server says that it serves; () where it does not say."""

    alive: bool
    models: tuple[str, ...] = ()


Probe = Callable[[str], Awaitable[Health]]
"""Asks the server at a URL how it is. Bounded; answers `alive` False rather than raise."""


async def no_probe(_url: str) -> Health:
    """For routers without plain upstreams."""
    return Health(alive=False)


class Unheard:
    """When workers are asked, and how often they may miss it."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._looks_left = 0
        self._missed: dict[str, int] = {}

    @property
    def awaited(self) -> bool:
        """Whether the store was away a little while ago, so that who is not heard may yet be there."""
        return self._looks_left > 0

    def looked(self, away: bool) -> None:
        """Count a look at the store."""
        self._looks_left = AWAITED_LOOKS if away else max(0, self._looks_left - 1)

    async def health(self, urls: Mapping[str, str]) -> dict[str, Health]:
        """What workers answer, by name. `urls`: where they are."""
        answers = await asyncio.gather(*(self._probe(url) for url in urls.values()))
        return dict(zip(urls, answers, strict=True))

    async def ask(self, urls: Mapping[str, str]) -> dict[str, bool]:
        """Whether workers are alive: who answers, and not who has missed several questions; the others are left out."""
        if not urls:
            self._missed.clear()
        found = {}
        for worker, answer in (await self.health(urls)).items():
            self._missed[worker] = 0 if answer.alive else self._missed.get(worker, 0) + 1
            if answer.alive or self._missed[worker] >= UNANSWERED:
                found[worker] = answer.alive
        return found

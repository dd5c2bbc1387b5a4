"""Tags as a router of the tests signs them, and a clock for their age."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agentcache.wire import TAG, Hints, Tag, TagSigner

SECRET = bytes(range(32))


@dataclass
class Tagging:
    """Signs for one worker. Time stands still unless told, in Unix milliseconds."""

    worker: str = "w1"
    signer: TagSigner = field(default_factory=lambda: TagSigner(SECRET))
    now: int = 1_800_000_000_000
    epoch: str = "e1"
    url: str = "http://w1:8100"

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)

    @property
    def now_ms(self) -> Callable[[], int]:
        return lambda: self.now

    def tag(self, session: str = "", generation: int = 0, **changes: Any) -> Tag:
        tenant = changes.pop("tenant", "acme")
        hints = Hints(**{name: changes.pop(name) for name in ("strict", "superseded") if name in changes})
        values: dict[str, Any] = {
            "tenant": tenant,
            "salt": self.signer.derive("salt", tenant),
            "session": session,
            "generation": generation,
            "placement": 0,
            "parent": "",
            "hints": hints,
            "request_id": f"r{next(self._numbers)}.1",
            "worker": self.worker,
            "issued_ms": self.now,
            "epoch": self.epoch,
        }
        return Tag(**{**values, **changes})

    def headers(self, session: str = "", generation: int = 0, **changes: Any) -> dict[str, str]:
        return {TAG: self.signer.sign(self.tag(session, generation, **changes))}

    def operator(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.signer.bearer(self.worker, self.url)}"}

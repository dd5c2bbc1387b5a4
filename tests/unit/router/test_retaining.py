"""What a request asks to be kept, as the router reads it: who asks for nothing has nothing of the history looked at."""

import json
from collections.abc import Iterator, Mapping

from agentcache.router.identity import Identity
from agentcache.router.retaining import Wishes
from agentcache.router.tenants import Tenant
from agentcache.web.fields import Fields
from agentcache.web.retention import NOTHING_ASKED, Leases

TENANT = Tenant("t")
WISHES = Wishes(Leases(usual_s=600.0, longest_s=3600.0))


class Watched(Mapping[str, object]):
    """A body's fields, and how often they were looked up."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values
        self.looks = 0

    def __getitem__(self, name: str) -> object:
        self.looks += 1
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        self.looks += 1
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def body(**said: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": "words"}] * 1_000, **said}


def test_the_history_of_a_body_that_has_none_of_the_words_is_not_looked_at() -> None:
    watched, identity = Watched(body()), Identity()
    assert WISHES.read(identity, Fields(watched), json.dumps(body()).encode(), TENANT) == (
        identity,
        NOTHING_ASKED,
    )
    assert watched.looks == 0


def test_a_body_that_has_one_is_read() -> None:
    asking = body(prompt_cache_options={"ttl": "1h"})
    watched = Watched(asking)
    identity, asked = WISHES.read(Identity(), Fields(watched), json.dumps(asking).encode(), TENANT)
    assert (identity.ttl_s, asked.leases) == (3600.0, {"prompt_cache_options.ttl": 3600.0})
    assert watched.looks > 0

"""Small questions that contract tests ask of a driver, all by position."""

from collections import Counter
from collections.abc import Callable

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.keys import Key
from agentcache.types import ComponentName, Piece, TierName
from agentcache.views import MarkerView
from tests.driver import Driver
from tests.oracle import line_of, residency


def refused(call: Callable[[], object]) -> Kind:
    """The kind with which a call is refused; it must come with a message."""
    with pytest.raises(CacheError) as error:
        call()
    assert error.value.message
    return error.value.kind


def counts(pieces: tuple[Piece, ...]) -> dict[ComponentName, int]:
    """Slots per component."""
    found: Counter[ComponentName] = Counter()
    for part in pieces:
        found[part.component] += len(part.slots)
    return {name: count for name, count in found.items() if count}


def ends(driver: Driver, key: Key, component: ComponentName, tier: TierName = TierName.DEVICE) -> list[int]:
    """Page ends on `key` where the component lies on `tier`."""
    line = line_of(residency(driver.core.snapshot()), key, driver.config)
    return [end for end, held in line.items() if (component, tier) in held]


def references(driver: Driver, key: Key, component: ComponentName) -> list[int]:
    """Sessions per page along `key`."""
    space, tokens = key.namespace.digest().hex(), tuple(key.tokens.tolist())
    pages = {(page.namespace, page.path): dict(page.references) for page in driver.core.snapshot().pages}
    steps = range(driver.config.page_tokens, len(tokens) + 1, driver.config.page_tokens)
    return [pages.get((space, tokens[:end]), {}).get(component, 0) for end in steps]


def markers(driver: Driver, session: str) -> list[MarkerView]:
    return [view for view in driver.core.snapshot().markers if view.session == session]


def frontiers(driver: Driver, session: str) -> list[int]:
    return sorted(view.frontier for view in markers(driver, session))

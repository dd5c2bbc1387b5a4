"""Brute force: every residency pattern on small paths, put to the core and to the vote of `tests/oracle.py`.

Patterns are reached through operations only: a graft to the host, an insert to the device, then FULL leaves the
device page by page. An *ender* (a few pages that hold everything) keeps the core from cutting the pattern short.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pytest

from agentcache.keys import Key
from agentcache.tree.api import UnifiedTreeCore
from agentcache.types import FULL, Checkpoint, ComponentName, MatchResult, Miss, TierName
from tests.builders import CORES, MakeCore, all_kinds, config_of, pages_of
from tests.driver import Driver
from tests.oracle import Poll, Vote, residency

Place = tuple[ComponentName, int]
ENDER = 3  # pages: the longest window


@dataclass(frozen=True)
class Case:
    """One family of patterns: `free` pages vary, the ender follows."""

    kinds: str
    page: int
    grid: int
    free: int
    states: int = 0

    def __str__(self) -> str:
        return f"FULL{self.kinds}-page{self.page}-grid{self.grid}-free{self.free}-states{self.states or self.grid}"


def cases() -> list[Case]:
    """Every combination, pages 1, 4 and 64, grid one page and two; fewer free pages where there are more components."""
    found = []
    for kinds, page, grid in product(all_kinds(), (1, 4, 64), (1, 2)):
        most = {0: 4, 1: 4, 2: 3, 3: 2}[len(kinds)]
        found.append(Case(kinds, page, grid, most if page == 4 else min(most, 4 - len(kinds))))
    return found + [Case(kinds, 4, 1, 3, states=2) for kinds in ("M", "SM", "LM")]


def limits(case: Case, length: int) -> list[int]:
    """k*C - 1, k*C and k*C + 1 for every k on the path and one beyond."""
    chunk = case.grid * case.page
    around = {k * chunk + off for k in range(length // chunk + 2) for off in (-1, 0, 1)}
    return sorted(limit for limit in around if limit >= 0)


def as_vote(found: MatchResult) -> Vote:
    miss: Miss | None = found.miss
    reason = (miss.component, miss.position, miss.reason) if miss else None
    return Vote(found.device.length, found.any_tier.length, found.full_tokens, reason)


def compare(driver: Driver, key: Key, case: Case) -> int:
    """Every limit, with and without a trace; how many votes were compared."""
    poll = Poll(residency(driver.core.snapshot()), key, driver.config)
    tried = limits(case, len(key))
    for limit in tried:
        assert as_vote(driver.peek(key, limit)) == poll.vote(limit), f"limit {limit}"
    assert as_vote(driver.match(key)) == poll.vote(len(key))
    return len(tried) + 1


def spots(case: Case, driver: Driver) -> list[Place]:
    """The (component, page end) places that vary."""
    ends = [case.page * (k + 1) for k in range(case.free)]
    found = []
    for spec in driver.config.specs[1:]:
        grid = spec.rule.grid_tokens if isinstance(spec.rule, Checkpoint) else case.page
        found += [(spec.name, end) for end in ends if end % grid == 0]
    return found


def path_of(case: Case) -> Key:
    letters = "abcdefgh"[: case.free + ENDER + (case.free + ENDER) % case.grid]
    return pages_of(letters, case.page)


def build(make_core: MakeCore, case: Case, host: bool) -> Driver:
    return Driver(
        make_core(config_of(case.kinds, case.page, case.grid, states=case.states, host_tier=host)), 16, 16
    )


def patterns(places: list[Place], states: str) -> Iterator[dict[str, list[Place]]]:
    """Every assignment of a state letter to a place, as state → places."""
    for chosen in product(states, repeat=len(places)):
        yield {state: [p for p, c in zip(places, chosen, strict=True) if c == state] for state in states}


def with_ender(driver: Driver, case: Case, places: list[Place], key: Key) -> list[Place]:
    ender = [(name, end) for name, end in driver.everything(len(key)) if end > case.free * case.page]
    return places + ender


@pytest.fixture(params=sorted(CORES))
def make_core(request: pytest.FixtureRequest) -> MakeCore:
    return CORES[str(request.param)]


@pytest.mark.parametrize("case", cases(), ids=str)
def test_vote_over_every_pattern_on_two_tiers(make_core: MakeCore, case: Case) -> None:
    """absent / device / host per aux page, and FULL on the device for each possible prefix of the path."""
    key, compared, seen = path_of(case), 0, 0
    for chosen in patterns(spots(case, build(make_core, case, True)), "-dh"):
        driver = build(make_core, case, True)
        driver.insert(key, with_ender(driver, case, chosen["h"], key), tier=TierName.HOST)
        driver.insert(key, with_ender(driver, case, chosen["d"], key))
        seen += 1
        while driver.ledger(FULL).cached():
            compared += compare(driver, key, case)
            driver.evict(FULL, 1)
        compared += compare(driver, key, case)
        driver.core.check()
    assert seen == 3 ** len(spots(case, driver))
    assert compared >= seen * 2 * len(limits(case, len(key)))


@pytest.mark.parametrize("case", cases(), ids=str)
def test_frontier_over_every_pattern_without_an_ender(make_core: MakeCore, case: Case) -> None:
    """The frontier is the deepest vote; what lies before it is taken, what lies beyond stays with the caller."""
    key, seen = pages_of("abcdefgh"[: case.free], case.page), 0
    for chosen in patterns(spots(case, build(make_core, case, False)), "-d"):
        driver = build(make_core, case, False)
        answer = driver.insert(key, chosen["d"])
        reach = offered_frontier(driver, case, key, chosen["d"])
        assert answer.frontier.length == reach
        taken = {(p.component, end) for p in answer.taken for end in ends_of(p, case.page)}
        full = [(FULL, case.page * (k + 1)) for k in range(case.free)]
        offered = {*chosen["d"], *full}
        assert taken == {(name, end) for name, end in offered if end <= reach}
        compare(driver, key, case)
        driver.core.check()
        seen += 1
    assert seen == 2 ** len(spots(case, driver))


def ends_of(piece: object, page: int) -> list[int]:
    start, end = int(getattr(piece, "start")), int(getattr(piece, "end"))  # noqa: B009
    return [end] if start == end else list(range(start + page, end + 1, page))


def offered_frontier(driver: Driver, case: Case, key: Key, chosen: list[Place]) -> int:
    """The vote over the offer alone, as if all of it were resident."""
    space, tokens = key.namespace.digest().hex(), tuple(key.tokens.tolist())
    places: dict[tuple[str, tuple[int, ...]], dict[tuple[ComponentName, TierName], int]] = {}
    for end in range(case.page, len(key) + 1, case.page):
        names = [FULL, *(name for name, at in chosen if at == end)]
        places[space, tokens[:end]] = {(name, TierName.DEVICE): 0 for name in names}
    return Poll(places, key, driver.config).deepest(len(key))


def apply_word(
    core: UnifiedTreeCore, driver: Driver, word: tuple[tuple[ComponentName, TierName], ...]
) -> None:
    assert core is driver.core
    for component, tier in word:
        driver.evict(component, 1, tier)


@pytest.mark.parametrize("kinds", all_kinds())
def test_vote_after_every_sequence_of_evictions(make_core: MakeCore, kinds: str) -> None:
    """All words of three evictions over component and tier, on a path that is whole on both tiers."""
    case, compared = Case(kinds, 4, 1, 1), 0
    key = path_of(case)
    names = [spec.name for spec in config_of(kinds, 4, 1).specs]
    letters = [(name, tier) for name in names for tier in (TierName.DEVICE, TierName.HOST)]
    for word in product(letters, repeat=3):
        driver = build(make_core, case, True)
        driver.insert(key, tier=TierName.HOST)
        driver.insert(key)
        apply_word(driver.core, driver, word)
        compared += compare(driver, key, case)
        driver.core.check()
    assert compared >= len(letters) ** 3

"""A tree's events, sent as they are sent, make an index that expects of every prompt what the tree itself would."""

import random

import pytest

from agentcache.keys import Key
from agentcache.kv_events import Batch, Groups, component_card, decode_batch, encode_batch
from agentcache.router.index import Message, PrefixIndex, Taken
from agentcache.types import TierName
from agentcache.wire import WorkerCard
from tests.builders import AWAY, CORES, HOME, MakeCore, all_kinds, config_of, pages_of
from tests.driver import Driver
from tests.fleets import card_of

PAGE, GRID = 4, 2
STEPS = 150


class Told:
    """A driven core and the index that hears of it, in batches of whatever happened since the last one."""

    def __init__(self, make_core: MakeCore, kinds: str) -> None:
        config = config_of(kinds, PAGE, GRID, host_tier=True, emit_events=True)
        self.driver = Driver(make_core(config), slots=40, host_slots=20)
        self.card: WorkerCard = card_of(
            "a", components=tuple(map(component_card, config.specs)), grid_tokens=GRID * PAGE
        )
        self.index = PrefixIndex()
        self.index.follow(self.card)
        self._groups = Groups(self.card.components, PAGE)
        self._batches = 0

    def send(self) -> None:
        payload = encode_batch(Batch(0.0, [self._groups.told(event) for event in self.driver.events]))
        self.driver.events.clear()
        message = Message(self._batches, "first", decode_batch(payload).batch.events)
        assert self.index.take("a", message) is Taken.APPLIED
        self._batches += 1

    def agrees(self, key: Key) -> int:
        """What both say of a prompt of these tokens."""
        tokens = key.tokens.tolist()
        forecast = self.index.forecast([self.card], key.namespace.tenant_salt, tokens)
        expected = forecast.tokens.get("a", 0)
        assert expected == self.driver.peek(key, len(tokens) - 1).any_tier.length
        return expected


def step(driver: Driver, source: random.Random) -> None:
    """One thing that may happen to a cache."""
    key = some_key(source)
    names = [spec.name for spec in driver.config.specs]
    match source.randrange(10):
        case 0 | 1:
            tier = source.choice((TierName.DEVICE, TierName.HOST))
            driver.evict(source.choice(names), source.randint(1, 4), tier)
        case 2 | 3 if driver.depth(key):
            driver.back_up_what_fits(key)
        case 4 if driver.peek(key).any_tier.length > driver.depth(key):
            driver.load(key)
        case 5 if driver.flights:
            number = source.choice(list(driver.flights))
            driver.commit(driver.flights[number].job, lambda _piece, _end: source.random() < 0.8)
        case _:
            wanted = [place for place in driver.everything(len(key)) if source.random() < 0.7]
            if driver.fits(key, wanted, None, TierName.DEVICE):
                driver.insert(key, wanted)


def some_key(source: random.Random) -> Key:
    letters = "".join(source.choice("ab") for _ in range(source.randint(1, 6)))
    return pages_of(letters, PAGE, source.choice((HOME, HOME, AWAY)))


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("kinds", all_kinds())
def test_an_index_from_events_votes_as_the_tree(core: str, kinds: str) -> None:
    told, source = Told(CORES[core], kinds), random.Random(f"{kinds}/{core}")
    deepest = 0
    for _ in range(STEPS):
        step(told.driver, source)
        told.send()
        deepest = max([deepest, *(told.agrees(some_key(source)) for _ in range(4))])
    assert deepest >= 2 * GRID * PAGE


def test_the_same_prompt_again_is_expected_whole() -> None:
    """Three times one prompt: all of it but the last chunk is expected from the second time on."""
    told = Told(CORES["reference"], "")
    key = pages_of("abcdefgh", PAGE)
    for turn in range(3):
        expected = told.agrees(key)
        assert expected == (len(key) - GRID * PAGE if turn else 0)
        told.driver.insert(key)
        told.send()
    assert told.index.pages == 8

"""What a request's pages are called outside: hashed once, and never those of another path."""

import pytest

from agentcache import keys
from agentcache.cache import Prompt
from agentcache.keys import Key, chain, object_name, page_hashes
from agentcache.types import FULL
from tests.unit.cache.tiered import TieredWorld
from tests.unit.cache.world import HOME, PAGE, text

A, B = text(1, 64), text(2, 64)


def test_a_page_is_hashed_once_for_a_request_that_looks_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    world, hashed = TieredWorld(), list[bytes]()

    def counted(previous: bytes, page: bytes) -> bytes:
        hashed.append(page)
        return chain(previous, page)

    monkeypatch.setattr(keys, "chain", counted)
    ticket, prompt = world.expect(A)
    world.look()
    turn = world.go(ticket, prompt)
    world.compute(turn, A)
    world.end(turn)
    world.settle()
    assert len(hashed) == len(A) // PAGE


def test_a_request_that_begins_with_another_prompt_is_not_called_by_the_first() -> None:
    world = TieredWorld()
    ticket, _ = world.expect(A)
    world.look()
    turn = world.go(ticket, Prompt(B, HOME, len(B) - 1))
    world.compute(turn, B)
    world.end(turn)
    world.settle()
    names = {object_name(page, FULL) for page in page_hashes(Key(B, HOME), PAGE)}
    assert {name for name in world.far.objects if name.endswith(FULL)} == names
    assert world.hit_of(A).total == 0
    world.at_rest()

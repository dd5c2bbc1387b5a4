"""Numbers of paths, and what is remembered of pages."""

import tracemalloc

import numpy as np

from agentcache.keys import Key, Namespace
from agentcache.remembered import FLUSHED, NO_ROOM, Owner, PathNumbers, Remembered, shared_tokens
from agentcache.types import Tokens

PAGE = 4
HOME = Namespace(model="m")


def tokens(*values: int) -> Tokens:
    return np.array(values, dtype=np.int32)


def numbers(path: Tokens, home: Namespace = HOME) -> list[int]:
    return PathNumbers(PAGE).of(Key(path, home))


def test_equal_beginnings_have_equal_numbers_and_nothing_else_has() -> None:
    source = np.random.default_rng(1)
    paths = [source.integers(0, 3, 40).astype(np.int32) for _ in range(300)]
    by_number: dict[int, bytes] = {}
    for path in paths:
        for place, number in enumerate(numbers(path), 1):
            assert (
                by_number.setdefault(number, path[: place * PAGE].tobytes()) == path[: place * PAGE].tobytes()
            )
    assert len(by_number) == len(set(by_number.values()))


def test_pages_in_another_order_or_another_namespace_are_others() -> None:
    one, other = tokens(0, 0, 0, 0, 1, 1, 1, 1), tokens(1, 1, 1, 1, 0, 0, 0, 0)
    assert not {*numbers(one)} & {*numbers(other)}
    assert not {*numbers(one)} & {*numbers(one, Namespace(tenant_salt="s", model="m"))}
    assert len({*numbers(tokens(*[0] * 400))}) == 100, "zeros count"


def test_a_path_that_grows_is_numbered_where_it_is_new() -> None:
    path = np.arange(80, dtype=np.int32)
    of = PathNumbers(PAGE).of
    whole = of(Key(path, HOME))
    assert of(Key(path, HOME), of(Key(path[:24], HOME))) == whole
    assert of(Key(path[:24], HOME), whole) == whole[:6]
    assert of(Key(path[:0], HOME)) == []
    assert of(Key(tokens(2**31 - 1, 0, 0, 0), HOME)) != of(Key(tokens(0, 0, 0, 0), HOME))


def test_shared_tokens_are_counted_from_the_first() -> None:
    assert shared_tokens(tokens(1, 2, 3), tokens(1, 2, 4, 5)) == 2
    assert shared_tokens(tokens(1, 2), tokens(1, 2, 3)) == 2
    assert shared_tokens(tokens(), tokens(1)) == 0
    assert shared_tokens(tokens(9), tokens(1)) == 0


def test_pages_used_last_are_remembered_and_the_others_forgotten() -> None:
    remembered, one, other = Remembered(4), Owner(), Owner()
    remembered.keep([1, 2, 3], one, [3])
    remembered.keep([4, 5], other)
    assert not remembered.forgot
    assert [remembered.owner(page) for page in (1, 5, 6)] == [one, other, None]
    remembered.keep([1, 6, 7, 8, 9], other)
    assert remembered.forgot
    assert [remembered.owner(page) for page in (1, 2, 9)] == [other, None, other]
    assert not remembered.was_end(3)
    assert len(remembered) <= 2 * 5


def test_pages_that_are_kept_again_take_no_memory_on_the_way() -> None:
    """A long history of short pages is kept at every turn: no table of it is made beside the one that there is."""
    remembered, again, history = Remembered(), Owner(), list(range(1_000, 101_000))
    remembered.keep(history, Owner())
    tracemalloc.start()
    try:
        remembered.keep(history, again)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert remembered.owner(history[-1]) is again
    assert most_bytes < 10 * len(history), "a table of them takes 80 bytes a page"


def test_all_that_was_there_is_emptied_at_once() -> None:
    remembered = Remembered(2)
    remembered.keep([1, 2, 3], Owner())
    remembered.keep([4], Owner())
    remembered.emptied(FLUSHED)
    assert [remembered.owner(page) for page in (1, 4, 5)] == [FLUSHED, FLUSHED, None]


def test_what_was_never_there_for_lack_of_room_has_not_gone_with_the_others() -> None:
    remembered = Remembered(8)
    remembered.keep([1, 2], Owner())
    remembered.keep([3], NO_ROOM)
    remembered.emptied(FLUSHED)
    assert [remembered.owner(number) for number in (1, 2, 3)] == [FLUSHED, FLUSHED, NO_ROOM]

"""Keys and namespaces: what is equal, what is not, and that a hash is a function of what it names alone."""

from dataclasses import fields, replace
from itertools import combinations, product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agentcache.keys import Namespace, page_hashes, page_key

FIELDS = [field.name for field in fields(Namespace)]


def hashes(tokens: list[int], namespace: Namespace = Namespace(), page: int = 4) -> list[bytes]:  # noqa: B008
    return list(page_hashes(page_key(tokens, namespace, page), page))


@given(st.text(min_size=1, max_size=8))
def test_no_text_runs_from_one_field_into_the_next(text: str) -> None:
    """R025, R093, R094: every way to spread a text over two fields is another namespace."""
    spread = {
        Namespace(**{one: text[:cut], other: text[cut:]})
        for one, other in combinations(FIELDS, 2)
        for cut in range(len(text) + 1)
    }
    assert len({space.digest() for space in spread}) == len(spread)


def test_every_field_counts() -> None:
    """R045, R046: salt, model, adapter, dtype and layout each tell two namespaces apart."""
    home = Namespace("salt", "model", "adapter", "dtype", "layout")
    others = [replace(home, **{name: value}) for name, value in product(FIELDS, ("", "another"))]
    assert len({space.digest() for space in (home, *others)}) == 1 + len(others)


def test_hashes_are_the_same_in_every_process() -> None:
    """R146: no seed and no address goes into a page's name."""
    assert Namespace("s", "m").digest().hex()[:16] == "faea7ef0503a96ce"
    assert hashes([1, 2, 3, 4], Namespace("s", "m"))[0].hex()[:16] == "9e7a7fcd277c4777"


@given(st.lists(st.integers(0, 9), min_size=8, max_size=20), st.data())
def test_a_page_is_named_by_every_token_before_its_end(tokens: list[int], data: st.DataObject) -> None:
    """R038, R165: a changed token renames its page and all after it, and none before it."""
    at = data.draw(st.integers(0, len(tokens) - 1))
    changed = [*tokens[:at], tokens[at] + 1, *tokens[at + 1 :]]
    same = [one == other for one, other in zip(hashes(tokens), hashes(changed), strict=True)]
    assert same == [4 * (page + 1) <= at for page in range(len(same))]


def test_a_key_is_a_copy() -> None:
    """R214: what the caller does to its tokens later changes no key, and no larger array is kept alive."""
    tokens = np.arange(100, dtype=np.int32)
    key = page_key(tokens[:10], Namespace(), 4)
    tokens[:] = 0
    assert key.tokens.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert key.tokens.base is None or key.tokens.base.size <= 12

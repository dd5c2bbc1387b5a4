"""Text in pieces is tokenized as in one; what is too long is refused early; the memory of parts is bounded."""

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tokenizers import Tokenizer, pre_tokenizers

from agentcache.engine import parts as subject
from agentcache.engine.parts import ALOUD_CHARS, MEMORY_BYTES, PIECE_CHARS, Parts, Readable, readable
from agentcache.engine.tokenizer import ASSETS, load_tokenizer
from agentcache.errors import CacheError, Kind
from tests.encoding import Watched

OURS = json.loads((ASSETS / "tokenizer.json").read_text())
BY_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SPLIT = OURS["pre_tokenizer"]["pretokenizers"][0]
QWEN = {**SPLIT, "pattern": {"Regex": SPLIT["pattern"]["Regex"].replace("{1,3}", "")}}
NO_WORDS = {**BY_BYTES, "use_regex": False}
WORDS = (
    "It's 12345 o'clock;\r\n\n  the worker's 漢字 grün\tnaïve (x+y) e\u0301 a \u0301b! 'LL 🙂 <|im_end|> _x9 "
)


def tokenizer(**changes: Any) -> Tokenizer:
    """Ours, changed."""
    return Tokenizer.from_str(json.dumps({**OURS, **changes}))


def sequence(*steps: Any) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


USUAL = {
    "ours": tokenizer(),
    "Qwen": tokenizer(pre_tokenizer=sequence(QWEN, NO_WORDS), normalizer={"type": "NFC"}),
    "GPT-2": tokenizer(pre_tokenizer=BY_BYTES),
    "SmolLM": tokenizer(pre_tokenizer=sequence({"type": "Digits", "individual_digits": True}, BY_BYTES)),
}
ADDED = OURS["added_tokens"]
OTHERS = {
    "a space before": tokenizer(pre_tokenizer={**BY_BYTES, "add_prefix_space": True}),
    "no words": tokenizer(pre_tokenizer=NO_WORDS),
    "digits only": tokenizer(pre_tokenizer=sequence({"type": "Digits", "individual_digits": True}, NO_WORDS)),
    "another pattern": tokenizer(pre_tokenizer=sequence({**SPLIT, "pattern": {"Regex": r"\w+\s"}}, NO_WORDS)),
    "drops": tokenizer(pre_tokenizer=sequence({**SPLIT, "behavior": "Removed"}, NO_WORDS)),
    "lower case": tokenizer(normalizer={"type": "Lowercase"}),
    "no splitting": tokenizer(pre_tokenizer=None),
    "eats space": tokenizer(added_tokens=[{**ADDED[0], "rstrip": True}, *ADDED[1:]]),
    "a space inside": tokenizer(added_tokens=[{**ADDED[0], "content": "<an end>"}, *ADDED[1:]]),
}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "PIECE_CHARS", 1)
    monkeypatch.setattr(subject, "ALOUD_CHARS", 4)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("name", USUAL)
@given(text=some.text(some.sampled_from(sorted(set(WORDS) | set("aZ09 \n"))), max_size=60))
def test_text_in_the_smallest_pieces_has_the_same_tokens(name: str, text: str) -> None:
    library = USUAL[name]
    watched = Watched(library)
    assert readable(library).cuttable
    tokens = Parts(watched, readable(library)).encode([text])
    assert list(tokens) == library.encode(text, add_special_tokens=False).ids


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("name", USUAL)
def test_words_in_pieces_have_the_same_tokens(name: str) -> None:
    library = USUAL[name]
    watched = Watched(library)
    for one, other in product(WORDS.split(" "), repeat=2):
        text = f"{one} {other}  \n{one}\t{other}"
        tokens = Parts(watched, readable(library)).encode([text])
        assert list(tokens) == library.encode(text, add_special_tokens=False).ids
    assert len(watched.aloud + watched.quiet) > 2 * len(WORDS.split(" ")) ** 2


@pytest.mark.parametrize("name", OTHERS)
def test_nothing_is_believed_of_other_tokenizers(name: str) -> None:
    assert readable(OTHERS[name]) == Readable()


def test_the_bound_of_bytes_is_the_longest_entry_and_not_given_where_text_can_shrink() -> None:
    assert readable(USUAL["ours"]).bytes_per_token == 64
    assert readable(USUAL["Qwen"]) == Readable(True, 0)
    stripping = tokenizer(added_tokens=[{**ADDED[0], "lstrip": True}, *ADDED[1:]])
    assert readable(stripping) == Readable(True, 0)
    vocabulary = {text: number for text, number in OURS["model"]["vocab"].items() if text != "Ā"}
    merges = [merge for merge in OURS["model"]["merges"] if "Ā" not in "".join(merge)]
    model = {**OURS["model"], "vocab": vocabulary, "merges": merges}
    assert readable(tokenizer(model=model)) == Readable(True, 0)


def test_text_of_the_longest_entries_is_just_inside_the_bound() -> None:
    chat = load_tokenizer()
    text = "#" * 64 * 10
    assert len(chat.encode(text, at_most=10)) == 10
    with pytest.raises(CacheError) as refused:
        chat.encode(text + "#", at_most=10)
    assert refused.value.kind is Kind.PROMPT_TOO_LONG


@pytest.mark.parametrize(
    ("letters", "tokens"), [("ab" * 5_000, 500), ("1" * 10_000, 3_000), ("漢字" * 5_000, 900)]
)
def test_a_long_word_is_known_to_be_long(letters: str, tokens: int) -> None:
    """The longest entries are of punctuation: a text of other characters has more tokens for its bytes."""
    at_least = readable(USUAL["ours"]).tokens_at_least(letters.encode())
    assert tokens < at_least <= len(USUAL["ours"].encode(letters).ids)


@given(text=some.text(some.sampled_from(sorted(set(WORDS) | set("aZ09 \n#-"))), max_size=60))
def test_no_text_has_fewer_tokens_than_the_bound(text: str) -> None:
    library = USUAL["ours"]
    assert readable(library).tokens_at_least(text.encode()) <= len(library.encode(text).ids)


def test_what_cannot_fit_is_refused_before_anything_is_encoded() -> None:
    watched = Watched(USUAL["ours"])
    with pytest.raises(CacheError, match="over 10 tokens"):
        Parts(watched, readable(USUAL["ours"])).encode(["#" * 320, "#" * 321], at_most=10)
    assert not watched.aloud
    assert not watched.quiet


def test_a_long_text_is_encoded_quietly_in_pieces_and_no_further_than_the_limit() -> None:
    watched = Watched(USUAL["Qwen"])
    text = "some words " * 700_000
    with pytest.raises(CacheError) as refused:
        Parts(watched, readable(USUAL["Qwen"])).encode([text], at_most=50_000)
    assert refused.value.kind is Kind.PROMPT_TOO_LONG
    assert max(map(len, watched.quiet)) < PIECE_CHARS + 20
    assert sum(map(len, watched.quiet)) < 50_000 * 8 + PIECE_CHARS
    assert all(len(piece) <= ALOUD_CHARS for piece in watched.aloud)


def test_text_that_cannot_be_cut_is_encoded_quietly_in_one_piece() -> None:
    library = OTHERS["lower case"]
    watched = Watched(library)
    text = "Word " * 40_000
    tokens = Parts(watched, readable(library)).encode([text])
    assert list(tokens) == library.encode(text, add_special_tokens=False).ids
    assert (watched.quiet, watched.aloud) == ([text], [])
    with pytest.raises(CacheError, match="over 100 tokens"):
        Parts(watched, readable(library)).encode([text], at_most=100)


def test_the_limit_counts_all_parts_those_in_the_memory_too() -> None:
    parts = Parts(USUAL["ours"], readable(USUAL["ours"]))
    one = len(parts.encode(["hello there"]))
    assert len(parts.encode(["hello there"] * 3, at_most=3 * one)) == 3 * one
    with pytest.raises(CacheError):
        parts.encode(["hello there"] * 3, at_most=3 * one - 1)
    with pytest.raises(CacheError):
        parts.encode(["hello there"] * 3, at_most=3 * one, before=(1,))
    assert parts.encode(["hello there"], before=(1,))[0] == 1


def test_parts_are_remembered_and_the_memory_is_bounded() -> None:
    watched = Watched(USUAL["ours"])
    parts = Parts(watched, readable(USUAL["ours"]), memory_bytes=20_000)
    assert parts.encode(["again"]) == parts.encode(["again"])
    assert watched.aloud == ["again"]
    for number in range(100):
        parts.encode(["again", f"{number} is a number of many that come only once"])
        assert parts.held_bytes <= 20_000
    assert watched.aloud.count("again") == 1  # what is used stays
    parts.encode(["0 is a number of many that come only once"])
    assert len(watched.aloud) == 102
    parts.encode(["x" * 20_001])
    parts.encode(["again"])
    assert watched.aloud.count("again") == 1  # what is larger than the memory drives nothing out
    assert MEMORY_BYTES < 2**26


def test_what_is_refused_is_not_remembered() -> None:
    parts = Parts(USUAL["ours"], readable(USUAL["ours"]))
    for text in ("some words " * 40_000, "ab" * 300):
        with pytest.raises(CacheError):
            parts.encode([text], at_most=100)
    assert parts.held_bytes == 0


def test_no_pre_tokenizer_of_the_library_breaks_the_look_at_it() -> None:
    for step in (pre_tokenizers.Whitespace(), pre_tokenizers.Metaspace(), pre_tokenizers.Sequence([])):
        library = tokenizer()
        library.pre_tokenizer = step
        assert readable(library) == Readable()

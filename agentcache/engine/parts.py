"""Parts of text as tokens: long ones in pieces and without holding up other threads, known ones from a memory.

A part is encoded as if in one piece. It may be cut where the tokenizer's own pre-tokenizer always cuts, which is known
of the usual byte-level ones (`readable`): behind a letter or digit, before white space. Their patterns have no match
across that place and look at nothing before it; no added token lies across it, and normalisation joins nothing there.
"""

import json
import re
import string
import sys
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tokenizers import Tokenizer, models, normalizers

from agentcache.engine.detokenizer import ALPHABET
from agentcache.errors import CacheError, Kind

PIECE_CHARS: Final = 65_536
"""About 20 ms of work; after each piece it is seen whether the prompt is too long."""
ALOUD_CHARS: Final = 4_096
"""Longer text is encoded without the interpreter's lock; for shorter one to get it back would take longer."""
MEMORY_BYTES: Final = 32 * 2**20
ENTRY_BYTES: Final = 300
UTF8_BYTES: Final = 4
NO_LIMIT: Final = sys.maxsize

_CLASSES: Final = (
    string.ascii_letters.encode(),
    string.digits.encode(),
    string.whitespace.encode(),
    string.punctuation.encode(),
    bytes(range(0x80, 0x100)),
)
_CUT: Final = re.compile(r"(?<=[A-Za-z0-9\u4e00-\u9fff])(?=[ \t\r\n])")
_LETTERS_AND_DIGITS_APART: Final = "|".join(
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    )
)
_STAND_INS: Final = {ord(char): byte for char, byte in ALPHABET.items()}
_PATTERNS: Final = frozenset({_LETTERS_AND_DIGITS_APART % "{1,3}", _LETTERS_AND_DIGITS_APART % ""})
"""What Llama 3, Qwen and our own tokenizer split with; ByteLevel has GPT-2's of its own."""


class Encoding(Protocol):
    """The part of the library's encoding that is read."""

    @property
    def ids(self) -> list[int]: ...

    def __len__(self) -> int: ...


class Encoder(Protocol):
    """The part of the library's tokenizer that encodes."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> Encoding: ...

    def encode_batch_fast(self, input: list[str], *, add_special_tokens: bool) -> Sequence[Encoding]: ...


Check = Callable[[str, "array[int]"], None]


def unchecked(part: str, tokens: "array[int]") -> None:
    """Nothing is wrong with any part."""


@dataclass(frozen=True, slots=True)
class Readable:
    """What is certain of a tokenizer. `bytes_per_token`: no text has more UTF-8 bytes for each token; 0: not known.

    `most` says how many bytes of a class (letters, digits …) an entry has at most: a text of many more is long, too.
    """

    cuttable: bool = False
    bytes_per_token: int = 0
    most: tuple[tuple[bytes, int], ...] = ()

    def tokens_at_least(self, text: bytes) -> int:
        """A lower bound. Cost: some ms for each MB; others get their turn in between."""
        counted = [-(-_count(text, members) // most) for members, most in self.most]
        return max([-(-len(text) // self.bytes_per_token), *counted]) if self.bytes_per_token else 0


class Parts:
    """Encodes parts for several threads. Memory: about `memory_bytes` of texts and tokens, the last used ones."""

    def __init__(
        self,
        encoder: Encoder,
        readable: Readable,
        check: Check = unchecked,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        """`check` may refuse a part that was encoded anew."""
        self._encoder = encoder
        self._readable = readable
        self._check = check
        self._memory_bytes = memory_bytes
        self._known: OrderedDict[str, array[int]] = OrderedDict()
        self._lock = threading.Lock()
        self.held_bytes = 0

    def encode(
        self, parts: Sequence[str], at_most: int = NO_LIMIT, before: tuple[int, ...] = ()
    ) -> tuple[int, ...]:
        """The tokens of parts that follow one another, and `before` them.

        Errors  PROMPT_TOO_LONG where they are more than `at_most`, as soon as that is known
        Cost    O(text), less what was encoded before; at most about `at_most` tokens of it where text can be cut
        """
        self._check_bytes(parts, at_most)
        tokens = list(before)
        for part in parts:
            tokens.extend(self._part(part, at_most - len(tokens), at_most))
        return tuple(tokens)

    def encode_document(self, text: str, at_most: int = NO_LIMIT) -> tuple[int, ...]:
        """A text by itself with what the tokenizer puts around documents. Errors: as `encode`."""
        self._check_bytes([text], at_most)
        (said,) = self._encoder.encode_batch_fast([text], add_special_tokens=True)
        if len(said) > at_most:
            raise too_long(at_most)
        return tuple(said.ids)

    def _check_bytes(self, parts: Sequence[str], at_most: int) -> None:
        """What cannot fit is not even tried."""
        if sum(map(len, parts)) * UTF8_BYTES <= at_most:
            return
        if self._readable.tokens_at_least("".join(parts).encode()) > at_most:
            raise too_long(at_most)

    def _part(self, part: str, room: int, at_most: int) -> "array[int]":
        with self._lock:
            known = self._known.get(part)
            if known is not None:
                self._known.move_to_end(part)
        if known is None:
            known = array("I")
            for piece in self._pieces(part):
                known.extend(self._encoded(piece, room - len(known), at_most))
            self._check(part, known)
            self._remember(part, known)
        if len(known) > room:
            raise too_long(at_most)
        return known

    def _encoded(self, piece: str, room: int, at_most: int) -> Iterable[int]:
        if len(piece) <= ALOUD_CHARS:
            said = self._encoder.encode(piece, add_special_tokens=False)
        else:
            (said,) = self._encoder.encode_batch_fast([piece], add_special_tokens=False)
        if len(said) > room:
            raise too_long(at_most)
        return said.ids

    def _pieces(self, part: str) -> Iterator[str]:
        """A part in pieces of about `PIECE_CHARS`, where it can be cut."""
        at = 0
        while self._readable.cuttable and len(part) - at > PIECE_CHARS:
            cut = _next_cut(part, at + PIECE_CHARS)
            yield part[at:cut]
            at = cut
        if at < len(part) or not part:
            yield part[at:]

    def _remember(self, part: str, tokens: "array[int]") -> None:
        weight = _weight(part, tokens)
        with self._lock:
            if part in self._known or weight > self._memory_bytes:
                return
            self._known[part] = tokens
            self.held_bytes += weight
            while self.held_bytes > self._memory_bytes:
                self.held_bytes -= _weight(*self._known.popitem(last=False))


def readable(tokenizer: Tokenizer) -> Readable:
    """What can be proved of a tokenizer; nothing for kinds that are not known here."""
    model, normalizer = tokenizer.model, tokenizer.normalizer
    added = list(tokenizer.get_added_tokens_decoder().values())
    plain = (
        isinstance(model, models.BPE)
        and not (model.dropout or model.continuing_subword_prefix or model.end_of_word_suffix)
        and not (tokenizer.truncation or tokenizer.padding)
        and (normalizer is None or isinstance(normalizer, normalizers.NFC))
        and not any(token.rstrip or any(map(str.isspace, token.content)) for token in added)
        and _is_usual(tokenizer.pre_tokenizer)
    )
    if not plain:
        return Readable()
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    # Each character of an entry stands for a byte. What shortens a text before the model sees it has no such bound.
    drops = (
        normalizer is not None
        or any(token.lstrip for token in added)
        or not ALPHABET.keys() <= vocabulary.keys()
    )
    if drops:
        return Readable(cuttable=True)
    entries = [text.translate(_STAND_INS).encode("latin-1") for text in vocabulary]
    entries += [token.content.encode() for token in added]
    most = ((members, max(_count(entry, members) for entry in entries)) for members in _CLASSES)
    return Readable(True, max(map(len, entries)), tuple(most))


def too_long(at_most: int) -> CacheError:
    """The refusal of a prompt that was not tokenized to its end."""
    return CacheError(
        Kind.PROMPT_TOO_LONG,
        f"the prompt has over {at_most} tokens, which is the model's context; shorten it",
    )


def _next_cut(part: str, start: int) -> int:
    """The first place from `start` on where the part can be cut; its end where there is none."""
    while start < len(part):
        found = _CUT.search(part, start, start + PIECE_CHARS)  # in steps: a search holds up other threads
        if found:
            return found.start()
        start += PIECE_CHARS
    return len(part)


def _count(text: bytes, members: bytes) -> int:
    """How many bytes of a text are of a class."""
    return len(text) - len(text.translate(None, members))


def _weight(part: str, tokens: "array[int]") -> int:
    text_bytes = len(part) * (
        1 if part.isascii() else 8
    )  # the library keeps another copy of what is not ASCII
    return text_bytes + tokens.itemsize * len(tokens) + ENTRY_BYTES


def _is_usual(pre_tokenizer: Any) -> bool:
    """Whether it splits text as GPT-2, Llama 3, Qwen or SmolLM do, and then by bytes."""
    if pre_tokenizer is None:
        return False
    said = json.loads(pre_tokenizer.__getstate__())
    steps = said["pretokenizers"] if said["type"] == "Sequence" else [said]
    *before, last = steps or [said]
    by_bytes = last["type"] == "ByteLevel" and not last["add_prefix_space"]
    into_words = by_bytes and (last["use_regex"] or any(step["type"] == "Split" for step in before))
    return into_words and all(map(_is_usual_split, before))


def _is_usual_split(step: dict[str, Any]) -> bool:
    if step["type"] == "Digits":
        return True
    return (
        step["type"] == "Split"
        and step["pattern"].get("Regex") in _PATTERNS
        and step["behavior"] == "Isolated"
        and not step["invert"]
    )

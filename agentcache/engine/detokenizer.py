"""Tokens to text, one at a time, never half a character."""

import codecs
from typing import Final

from tokenizers import Tokenizer, decoders

UNDECIDED_BYTES: Final = 3
"""An unfinished UTF-8 character has at most so many bytes."""


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-ins that byte-level vocabularies use for the 256 bytes (GPT-2's table)."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in kept]
    return {chr(byte): byte for byte in kept} | {chr(256 + at): byte for at, byte in enumerate(moved)}


ALPHABET: Final = _byte_alphabet()


class Pieces:
    """What each token stands for. `exact`: every token has bytes of its own (byte-level vocabularies)."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        added = tokenizer.get_added_tokens_decoder()
        self._tokenizer = tokenizer
        self._added = {token: entry.content.encode() for token, entry in added.items()}
        self._control = frozenset(token for token, entry in added.items() if entry.special)
        self.exact = isinstance(tokenizer.decoder, decoders.ByteLevel)

    def is_control(self, token: int) -> bool:
        return token in self._control

    def raw(self, token: int) -> bytes:
        """The bytes of a token of a byte-level vocabulary; none for a token that it does not have."""
        if token in self._added:
            return self._added[token]
        return bytes(ALPHABET[char] for char in self._tokenizer.id_to_token(token) or "")

    def text(self, tokens: list[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))


class Detokenizer:
    """One stream of tokens. The parts it answers, joined, are the text of all of them; control tokens are left out."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._window: list[int] = []
        self._said = 0

    def push(self, token: int) -> str:
        """The text that is certain after this token; often its own, sometimes nothing yet."""
        if self._pieces.is_control(token):
            return ""
        return self._utf8.decode(self._pieces.raw(token)) if self._pieces.exact else self._advance(token)

    def flush(self) -> str:
        """What is left at the end; an unfinished character becomes U+FFFD."""
        rest = self._pieces.text(self._window)[self._said :] if self._window else ""
        self._window, self._said = [], 0
        return self._utf8.decode(b"", final=True) + rest

    def _advance(self, token: int) -> str:
        """Decode the last tokens together, for the first of a run may lose its leading space; hold back what
        could still become another character."""
        self._window.append(token)
        text = self._pieces.text(self._window)
        undecided = min(len(text) - len(text.rstrip("�")), UNDECIDED_BYTES)
        new = text[self._said : len(text) - undecided]
        self._said += len(new)
        if not undecided and len(self._window) > 8:
            self._window = self._window[-4:]
            self._said = len(self._pieces.text(self._window))
        return new

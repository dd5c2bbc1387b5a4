"""A tokenizer under watch."""

from collections.abc import Sequence

from tokenizers import Tokenizer

from agentcache.engine.parts import Encoding


class Watched:
    """Encodes, and says what it was asked for: with the interpreter's lock held (`aloud`), or without."""

    def __init__(self, of: Tokenizer) -> None:
        self._of = of
        self.aloud: list[str] = []
        self.quiet: list[str] = []

    def encode(self, sequence: str, *, add_special_tokens: bool) -> Encoding:
        self.aloud.append(sequence)
        said: Encoding = self._of.encode(sequence, add_special_tokens=add_special_tokens)
        return said

    def encode_batch_fast(self, input: list[str], *, add_special_tokens: bool) -> Sequence[Encoding]:
        self.quiet += input
        said: Sequence[Encoding] = self._of.encode_batch_fast(input, add_special_tokens=add_special_tokens)
        return said

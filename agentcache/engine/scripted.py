"""What the accounting engine says: a request's own output, or words that its prompt alone decides."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import chain, islice

import numpy as np

from agentcache.engine.api import GenerateRequest
from agentcache.engine.computing import END, Choice

WORDS = (
    " the cache is real and these words are made up by an engine that computes nothing so read them as you read noise "
    "page slot state window prefix session turn tree chunk grid tier host device queue batch token"
)

Words = Sequence[tuple[int, ...]]
"""Each word in tokens."""


class Script:
    """One request's choices: tokens that were known before, then the end."""

    def __init__(self, tokens: Iterator[int]) -> None:
        self._tokens = tokens

    def choose(self, row: None) -> Choice:
        return Choice(next(self._tokens, END), 0.0)

    def digest(self, row: None) -> str:
        """There are no logits."""
        return ""


def made_up(prompt: Sequence[int], words: Words, count: int) -> Iterator[int]:
    """As many tokens as asked for, of whole words but the last; equal prompts are answered alike."""
    digest = hashlib.sha256(np.array(prompt, dtype=np.int32).tobytes()).digest()
    return islice(chain.from_iterable(words[number % len(words)] for number in _numbers(digest)), count)


def script_of(request: GenerateRequest, words: Words) -> Script:
    """What a request will be answered."""
    if request.output is None:
        return Script(made_up(request.tokens, words, request.max_tokens))
    return Script(iter(request.output))


def _numbers(digest: bytes) -> Iterator[int]:
    """Numbers without end, decided by a digest."""
    while True:
        yield from digest
        digest = hashlib.sha256(digest).digest()

"""What became of one turn: an answer, or why there is none."""

from dataclasses import dataclass

SKIPPED_CODES = frozenset({"context_length_exceeded", "prompt_too_long", "over_pool", "body_too_large"})
"""Error codes of a turn that can never fit this worker; a replay goes on without it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A turn that was answered.

    `ttft_ns` runs from sending the request to the first generated token as the client sees it. `tokens` and
    `first_logits` (sha256 of the first token's logits) are empty unless asked for.
    """

    text: str
    tokens: tuple[int, ...]
    first_logits: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    ttft_ns: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A turn that the worker did not answer: its HTTP status, error code and message."""

    status: int
    code: str
    message: str

    @property
    def skipped(self) -> bool:
        """True if the turn is over the worker's context or pool; else the run failed here."""
        return self.code in SKIPPED_CODES


Outcome = Answer | Refused

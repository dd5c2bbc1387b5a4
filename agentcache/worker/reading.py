"""From an engine's tokens to what a client reads: text, tool calls, and the end."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol

from agentcache.engine.api import Admitted, Finished, FinishReason, GenerateRequest, Token
from agentcache.engine.thread import EngineThread
from agentcache.errors import CacheError, Kind
from agentcache.stats import CachedTokens
from agentcache.types import SessionId
from agentcache.waits import Told, kind_of
from agentcache.worker.stops import StopStrings
from agentcache.worker.tools import Called, Part, joined

NOTHING_CACHED = CachedTokens(0, 0, 0)


class Decoder(Protocol):
    """Tokens to text; what cannot be text yet (half a character) waits for the next token."""

    def push(self, token: int) -> str: ...

    def flush(self) -> str: ...


class PartParser(Protocol):
    """Text to parts (`tools.py`)."""

    def push(self, text: str) -> list[Part]: ...

    def flush(self) -> list[Part]: ...


@dataclass(frozen=True, slots=True)
class Piece:
    """What may be sent now; `tokens` are all generated since the last piece."""

    parts: tuple[Part, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a turn: OpenAI's finish reason, and the counts of its usage. Times in nanoseconds since submit.

    `stop_string` is the one that cut the text, "" if none did. `written_tokens` of the prompt are new in the cache,
    and `stored_tokens` of one that was computed for another worker can be loaded by that.
    """

    reason: str
    prompt_tokens: int
    cached: CachedTokens
    completion_tokens: int
    first_token_ns: int = 0
    first_logits: str = ""
    stop_string: str = ""
    written_tokens: int = 0
    stored_tokens: int = 0


@dataclass(slots=True)
class Reading:
    """Reads one turn: detokenize, cut at stop strings, find tool calls.

    `one_call` ends the turn after its first tool call.
    """

    decoder: Decoder
    stops: StopStrings
    parser: PartParser
    one_call: bool = False
    calls: int = 0
    tokens: int = 0
    _unsent: list[int] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Nothing that the engine may still generate belongs to the answer."""
        return self.stops.stopped or (self.one_call and self.calls > 0)

    def push(self, token: int) -> Piece:
        self.tokens += 1
        self._unsent.append(token)
        parts = self.parser.push(self.stops.push(self.decoder.push(token)))
        return self._piece(parts, whole=bool(parts))

    def rest(self) -> Piece:
        """What was held back, at the end."""
        text = "" if self.stops.stopped else self.stops.push(self.decoder.flush()) + self.stops.flush()
        return self._piece(joined(self.parser.push(text) + self.parser.flush()), whole=True)

    def reason(self, ended: FinishReason) -> str:
        """OpenAI's word for the end: a turn that stopped after a call waits for its result."""
        if ended is FinishReason.STOP and self.calls:
            return "tool_calls"
        return str(ended)

    def _piece(self, parts: list[Part], whole: bool) -> Piece:
        kept = list(self._kept(parts))
        tokens, self._unsent = (tuple(self._unsent), []) if whole else ((), self._unsent)
        return Piece(tuple(kept), tokens)

    def _kept(self, parts: list[Part]) -> list[Part]:
        """The parts up to the end of the answer."""
        kept: list[Part] = []
        for part in parts:
            if self.one_call and self.calls:
                break
            self.calls += isinstance(part, Called)
            kept.append(part)
        return kept


async def read_turn(
    thread: EngineThread, request: GenerateRequest, reading: Reading
) -> AsyncGenerator[Admitted | Piece | Outcome, None]:
    """Run one turn: Admitted, pieces, Outcome. Closing it early aborts the turn in the engine at once.

    Errors   as `EngineThread.generate`; CacheError(SHUTTING_DOWN) when the worker cut the turn
    """
    cached, session, generation, written = NOTHING_CACHED, None, 0, 0
    async with aclosing(thread.generate(request)) as events:
        async for event in events:
            if isinstance(event, Admitted):
                cached, session, generation = event.cached, event.session, event.generation
                written = event.written_tokens
                yield event
            elif isinstance(event, Token):
                piece = reading.push(event.token)
                if piece.parts:
                    yield piece
                if reading.ended:
                    yield reading.rest()
                    reason = reading.reason(FinishReason.STOP)
                    _tell(thread, session, generation, reason)
                    matched = reading.stops.matched
                    ended = Outcome(reason, len(request.tokens), cached, reading.tokens, stop_string=matched)
                    yield replace(ended, written_tokens=written)
                    return
            else:
                yield reading.rest()
                outcome = _outcome(event, reading)
                if outcome.reason != event.reason:
                    _tell(thread, session, generation, outcome.reason)
                yield replace(outcome, written_tokens=written)


def _tell(thread: EngineThread, session: SessionId | None, generation: int, reason: str) -> None:
    """Say how a turn really ended. The engine sees tokens, and neither calls nor stop strings in them."""
    if session:
        told = Told(kind_of(reason))
        thread.tell(lambda engine: engine.cache.tell_session(session, generation, told))


def _outcome(event: Finished, reading: Reading) -> Outcome:
    if event.error:
        raise event.error
    if event.reason is FinishReason.ABORT:
        raise CacheError(Kind.SHUTTING_DOWN, "the worker is shutting down and cut this answer; send it again")
    return Outcome(
        reading.reason(event.reason),
        event.prompt_tokens,
        event.cached,
        event.completion_tokens,
        event.first_token_ns,
        event.first_logits,
        reading.stops.matched,
        stored_tokens=event.stored_tokens,
    )

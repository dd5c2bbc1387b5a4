"""The rounds of `bench multiturn` on one engine: submit, step until all have ended, take notes."""

import random
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from agentcache.bench.endings import complete
from agentcache.bench.multiturn_shape import Shape
from agentcache.clock import Clock
from agentcache.engine.api import Event, Finished, GenerateRequest, Token
from agentcache.engine.engine import Engine
from agentcache.types import SessionId, SessionTag

SILENCE_NS = 7_000_000_000
NEAR_TIE = 1e-3
"""Two logits this close are a coin that rounding tosses; requests that are decoded together round together."""


@dataclass(frozen=True, slots=True)
class Round:
    """All requests of one round: sums, the mean time to the first token (waiting included), and how long it took.

    `cached_tokens` are by the tier that they came from.
    """

    number: int
    prompt_tokens: int
    cached_tokens: Mapping[str, int]
    ttft_ms: float
    wall_s: float

    @property
    def hit_rate(self) -> float:
        return sum(self.cached_tokens.values()) / self.prompt_tokens


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request was answered; `margins` say how far each choice was from another."""

    tokens: tuple[int, ...]
    margins: tuple[float, ...]


Answers = list[list[Answer]]
"""By client, then by round."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A whole run of one configuration."""

    rounds: tuple[Round, ...]
    answers: Answers


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a client was first answered otherwise, and how close the choice was. What follows has another prompt."""

    client: int
    round: int
    margin: float

    @property
    def near_tie(self) -> bool:
        return self.margin < NEAR_TIE


class Progress:
    """What goes on, on stderr; never silent for long while somebody calls `tick`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said_ns = clock.now_ns()

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
        self._said_ns = self._clock.now_ns()

    def tick(self, text: str) -> None:
        """Say it if nothing was said for a while."""
        if self._clock.now_ns() - self._said_ns >= SILENCE_NS:
            self.say(text)


@dataclass(slots=True)
class Client:
    """One conversation: its whole text so far, and where its next words come from."""

    number: int
    words: random.Random
    history: list[int] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def ask(self, shape: Shape, number: int, vocabulary: int) -> GenerateRequest:
        """The request of round `number`: everything said so far and new tokens."""
        self.history += (self.words.randrange(vocabulary) for _ in range(shape.request_length))
        session = SessionTag(SessionId(f"client-{self.number}"))
        name = f"client-{self.number}/{number}"
        return GenerateRequest(name, tuple(self.history), shape.output_length, session=session)

    def hear(self, said: Sequence[Token]) -> None:
        answer = Answer(tuple(one.token for one in said), tuple(one.top_margin for one in said))
        self.answers.append(answer)
        self.history += answer.tokens


@dataclass(frozen=True, slots=True)
class Driver:
    """Runs one configuration, called `name`, on an engine with an empty cache."""

    name: str
    engine: Engine
    shape: Shape
    progress: Progress

    def run(self) -> Conversation:
        """All rounds.

        Errors  those of `Engine.submit`, those of a request that failed; ENGINE_FAILED for one that ended early
        """
        clients = [
            Client(number, random.Random(f"{self.shape.seed}/{number}"))
            for number in range(self.shape.clients)
        ]
        rounds = tuple(self._round(clients, number) for number in range(1, self.shape.rounds + 1))
        return Conversation(rounds, [client.answers for client in clients])

    def _round(self, clients: Sequence[Client], number: int) -> Round:
        vocabulary = self.engine.info.vocab_size
        requests = [client.ask(self.shape, number, vocabulary) for client in clients]
        began_ns = self.engine.clock.now_ns()
        for request in requests:
            self.engine.submit(request)
        events = list(self._events(number))
        wall_s = (self.engine.clock.now_ns() - began_ns) / 1e9
        said: dict[str, list[Token]] = {request.request_id: [] for request in requests}
        for event in events:
            if isinstance(event, Token):
                said[event.request_id].append(event)
        for client, request in zip(clients, requests, strict=True):
            client.hear(said[request.request_id])
        ends = [complete(event) for event in events if isinstance(event, Finished)]
        found = Round(
            number,
            sum(end.prompt_tokens for end in ends),
            cached_by_tier(ends),
            round(statistics.mean(end.first_token_ns for end in ends) / 1e6, 2),
            wall_s,
        )
        self.progress.tick(f"{self._where(number)}: {found.hit_rate:.1%} cached, {wall_s:.2f} s")
        return found

    def _events(self, number: int) -> Iterator[Event]:
        """Step until the round has ended."""
        ended = 0
        while not self.engine.idle():
            events = self.engine.step()
            ended += sum(isinstance(event, Finished) for event in events)
            yield from events
            self.progress.tick(f"{self._where(number)}: {ended} of {self.shape.clients} have ended")
            if not events:
                self.engine.rest()

    def _where(self, number: int) -> str:
        return f"{self.name}: round {number} of {self.shape.rounds}"


def cached_by_tier(ends: Sequence[Finished]) -> dict[str, int]:
    """Cached tokens of requests, by the tier that they came from."""
    sums: Counter[str] = Counter()
    for end in ends:
        sums.update(asdict(end.cached))
    return dict(sums)


def differences(expected: Answers, found: Answers) -> list[Difference]:
    """Where each client was first answered otherwise than expected."""
    both = enumerate(zip(expected, found, strict=True))
    return [
        difference
        for client, (theirs, ours) in both
        for difference in _first_difference(client, theirs, ours)
    ]


def _first_difference(client: int, expected: Sequence[Answer], found: Sequence[Answer]) -> list[Difference]:
    for number, (one, other) in enumerate(zip(expected, found, strict=True), 1):
        choices = zip(one.tokens, other.tokens, one.margins, other.margins, strict=True)
        for token, again, margin, margin_again in choices:
            if token != again:
                return [Difference(client, number, min(margin, margin_again))]
    return []

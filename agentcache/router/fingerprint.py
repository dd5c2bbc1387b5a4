"""Recognises conversations by their content: a chain of digests over messages, and which workers had them.

A request whose beginning is all of an earlier request goes on with that conversation; one that only begins alike
(the same system prompt, the same tools) shares a prefix and is a conversation of its own.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from agentcache.web.fields import Fields

MAX_POINTS = 200_000
TEXT_CHUNK = 1024
"""Characters of a plain prompt that make one link."""
TOKEN_CHUNK = 64
BYTES_PER_TOKEN = 4
"""For estimates where nobody tokenizes."""
HOLDERS = 8
"""Workers that are remembered for one point."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The fingerprints of a request: one digest a message or chunk, and the bytes up to its end."""

    digests: tuple[bytes, ...] = ()
    sizes: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        """About how many tokens the whole is."""
        return self.sizes[-1] // BYTES_PER_TOKEN if self.sizes else 0


@dataclass(slots=True)
class _Point:
    """The workers that had this beginning, the last one first; and the one where a request ended here."""

    holders: tuple[str, ...] = ()
    ended_at: str = ""


def chain_of(fields: Fields, *scope: str) -> Chain:
    """The chain of a request's prompt within a scope (tenant's salt, model). Empty for what has no prompt.

    Cost  O(bytes of the body)
    """
    running = hashlib.sha256(msgspec.json.encode(scope))
    digests: list[bytes] = []
    sizes: list[int] = []
    size = 0
    try:
        for part in _parts(fields):
            running.update(len(part).to_bytes(8, "little") + part)
            size += len(part)
            digests.append(running.digest()[:16])
            sizes.append(size)
    except (OverflowError, RecursionError):  # the worker says what is wrong with it
        return Chain()
    return Chain(tuple(digests), tuple(sizes))


class Fingerprints:
    """What went where, least recently used first out. Learned only from requests that a worker has taken.

    Workers go by whatever name the caller gives; one that lost everything gets another.
    """

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self._max_points = max_points
        self._points: OrderedDict[bytes, _Point] = OrderedDict()

    def __len__(self) -> int:
        return len(self._points)

    def learn(self, chain: Chain, worker: str) -> None:
        """This request went to that worker and was taken. Cost O(messages)."""
        for digest in reversed(chain.digests):
            point = self._points.setdefault(digest, _Point())
            others = tuple(holder for holder in point.holders if holder != worker)
            point.holders = (worker, *others)[:HOLDERS]
            self._points.move_to_end(digest)
        if chain.digests:
            self._points[chain.digests[-1]].ended_at = worker
        while len(self._points) > self._max_points:
            self._points.popitem(last=False)

    def usual(self, chain: Chain) -> str:
        """The worker of the conversation that this request goes on with, or repeats; "" for a new one."""
        known = (self._points.get(digest) for digest in reversed(chain.digests))
        return next((point.ended_at for point in known if point and point.ended_at), "")

    def shared_tokens(self, chain: Chain) -> dict[str, int]:
        """About how much of the prompt each worker has had before; workers that had nothing are left out."""
        found: dict[str, int] = {}
        for digest, size in zip(chain.digests, chain.sizes, strict=True):
            point = self._points.get(digest)
            if not point:
                break
            found |= dict.fromkeys(point.holders, size // BYTES_PER_TOKEN)
        return found


def _parts(fields: Fields) -> Iterator[bytes]:
    """What makes up a prompt, first to last, in any of the forms that requests have."""
    values = fields.values
    for name in ("tools", "system", "instructions"):
        if fields.has(name):
            yield name.encode()
            yield from _members([values[name]])
    if fields.has("messages"):
        yield from _members(values["messages"])
    elif fields.has("input"):
        yield from _members(values["input"])
    elif fields.has("prompt"):
        yield from _prompt(values["prompt"])


def _members(value: object) -> Iterator[bytes]:
    """One part a message, without the cache marks that clients move from one message to the next."""
    for member in value if isinstance(value, list) else [value]:
        part = msgspec.json.encode(member)
        yield msgspec.json.encode(_unmarked(member)) if b'"cache_control"' in part else part


def _unmarked(value: object) -> object:
    if isinstance(value, dict):
        return {name: _unmarked(inner) for name, inner in value.items() if name != "cache_control"}
    return [_unmarked(inner) for inner in value] if isinstance(value, list) else value


def _prompt(value: object) -> Iterator[bytes]:
    """Chunks of one size, so that a longer prompt begins with those of a shorter one; the rest is no part."""
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], int):
        value = value[0]
    if isinstance(value, str):
        for at in range(0, len(value) - TEXT_CHUNK + 1, TEXT_CHUNK):
            yield value[at : at + TEXT_CHUNK].encode(errors="replace")
    elif isinstance(value, list):
        yield from _token_chunks(value)


def _token_chunks(tokens: Sequence[object]) -> Iterator[bytes]:
    for at in range(0, len(tokens) - TOKEN_CHUNK + 1, TOKEN_CHUNK):
        yield msgspec.json.encode(tokens[at : at + TOKEN_CHUNK])

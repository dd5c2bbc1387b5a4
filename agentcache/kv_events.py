"""Placement events as vLLM and SGLang publish them: what their readers can read, and what we read of others.

A message is `[topic, sequence, payload]`; the payload is msgpack, `[ts, events, data_parallel_rank]`, each event a map
with its name in `type`. The incarnation of the worker stands in the topic: readers in Rust refuse a batch with a
fourth element.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
import zmq
from zmq.utils import z85

from agentcache.errors import CacheError, Kind
from agentcache.types import Checkpoint, ComponentName, ComponentSpec, Event, EventKind, TierName, Window
from agentcache.wire import ComponentCard, TagSigner

END_SEQ: Final = -1
"""The sequence number that ends a replay."""
SEQ_BYTES: Final = 8
TOPIC: Final = b"agentcache@"
BlockHash = bytes | int


class BlockStored(msgspec.Struct, tag=True, frozen=True):
    """Blocks that are on a medium from now on. Every field is sent, as strict readers want it.

    `parent_block_hash` is the hash before the first of them; `token_ids` are theirs, `block_size` of each.
    `group` is the component, 0 the one of full attention.
    """

    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None = None
    token_ids: list[int] = []
    block_size: int = 0
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    group: int | None = msgspec.field(default=None, name="group_idx")
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class BlockRemoved(msgspec.Struct, tag=True, frozen=True):
    """Blocks that are not on a medium any more."""

    block_hashes: list[BlockHash]
    medium: str | None = None
    group: int | None = msgspec.field(default=None, name="group_idx")


class AllBlocksCleared(msgspec.Struct, tag=True, frozen=True):
    """Nothing is left, of any component on any medium."""


BlockEvent = BlockStored | BlockRemoved | AllBlocksCleared


class Batch(msgspec.Struct, array_like=True, frozen=True):
    """What happened together; `ts` is Unix time in seconds."""

    ts: float
    events: list[BlockEvent]
    data_parallel_rank: int | None = 0


@dataclass(frozen=True, slots=True)
class Decoded:
    """A batch as it was read, and how many of its events are of types that nobody here knows."""

    batch: Batch
    ignored: int


def encode_batch(batch: Batch) -> bytes:
    """The payload of one message."""
    return msgspec.msgpack.encode(batch)


def decode_batch(payload: bytes) -> Decoded:
    """Read a payload of ours, vLLM's or SGLang's; their older ones had events as arrays.

    Fields that are not known are ignored, event types that are not known are counted.
    Errors  CacheError(BAD_REQUEST) for what is no batch, or an event of a known type that is not whole
    """
    try:
        ts, events, rank = _parts(msgspec.msgpack.decode(payload))
        read = [_event(said) for said in events]
    except (msgspec.DecodeError, ValueError) as error:
        raise CacheError(Kind.BAD_REQUEST, f"this is no batch of placement events: {error}") from None
    known = [event for event in read if event]
    return Decoded(Batch(ts, known, rank), len(read) - len(known))


def topic_of(incarnation: str) -> bytes:
    """The first frame of each message of a worker's incarnation."""
    return TOPIC + incarnation.encode()


def incarnation_of(topic: bytes) -> str:
    """Which incarnation a topic names; "" for a topic that is not ours."""
    return topic[len(TOPIC) :].decode(errors="replace") if topic.startswith(TOPIC) else ""


def pack_seq(seq: int) -> bytes:
    """A sequence number as it is sent."""
    return seq.to_bytes(SEQ_BYTES, "big", signed=True)


def unpack_seq(frame: bytes) -> int:
    """The sequence number in a frame. Errors: CacheError(BAD_REQUEST)."""
    if len(frame) != SEQ_BYTES:
        raise CacheError(Kind.BAD_REQUEST, f"a sequence number has {SEQ_BYTES} bytes", bytes=len(frame))
    return int.from_bytes(frame, "big", signed=True)


def hash_bytes(block_hash: BlockHash) -> bytes:
    """A hash as bytes; numbers are those of 64 bits, with or without a sign."""
    if isinstance(block_hash, bytes):
        return block_hash
    return (block_hash % 2**64).to_bytes(8, "big")


def component_card(spec: ComponentSpec) -> ComponentCard:
    """What a router is told of a component."""
    match spec.rule:
        case Window(tokens):
            return ComponentCard(spec.name, "window", tokens)
        case Checkpoint(grid_tokens):
            return ComponentCard(spec.name, "checkpoint", grid_tokens)
    return ComponentCard(spec.name, "path", 0)


AnySocket = zmq.Socket[Any]


class Seal(Protocol):
    """Who can read a stream: set on each of its sockets before that binds or connects."""

    @property
    def mark(self) -> str:
        """Before an address, for readers."""

    def publisher(self, socket: AnySocket) -> None: ...

    def reader(self, socket: AnySocket) -> None: ...


class Open:
    """Whoever reaches a stream can read it."""

    mark = ""

    def publisher(self, socket: AnySocket) -> None:
        """Nothing to do."""

    def reader(self, socket: AnySocket) -> None:
        """Nothing to do."""


OPEN: Final = Open()


class Sealed:
    """CURVE with keys that follow from the routers' secret: nobody else can read, or speak in a worker's place.

    The publisher's public key is told to nobody, so who knows it knows the secret. Errors: zmq.ZMQError where the
    library was built without CURVE.
    """

    mark = "curve+"

    def __init__(self, signer: TagSigner) -> None:
        self._secret_key = z85.encode(bytes.fromhex(signer.derive("events")))

    def publisher(self, socket: AnySocket) -> None:
        socket.curve_server = True
        socket.curve_secretkey = self._secret_key
        socket.curve_publickey = zmq.curve_public(self._secret_key)

    def reader(self, socket: AnySocket) -> None:
        socket.curve_serverkey = zmq.curve_public(self._secret_key)
        socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()


_SPEC_KINDS: Final = {"path": "full_attention", "window": "sliding_window", "checkpoint": "mamba"}
_MEDIA: Final = {TierName.DEVICE: "GPU", TierName.HOST: "CPU_PINNED", TierName.EXTERNAL: "EXTERNAL"}
_TIERS: Final[Mapping[str | None, TierName]] = {
    None: TierName.DEVICE,
    "GPU": TierName.DEVICE,
    "CPU": TierName.HOST,
    "CPU_PINNED": TierName.HOST,
    "DISK": TierName.EXTERNAL,
    "STORAGE": TierName.EXTERNAL,
    "EXTERNAL": TierName.EXTERNAL,
}


class Groups:
    """The components of one cache as numbered groups of blocks, there and back."""

    def __init__(self, components: Sequence[ComponentCard], page_tokens: int) -> None:
        self._components = components
        self._page_tokens = page_tokens
        self._numbers = {card.name: number for number, card in enumerate(components)}

    def told(self, event: Event) -> BlockEvent:
        """Our event as others read it. A clear is one for every tier."""
        if event.kind is EventKind.CLEARED:
            return AllBlocksCleared()
        number = self._numbers[event.component]
        hashes: list[BlockHash] = list(event.hashes)
        if event.kind is EventKind.REMOVED:
            return BlockRemoved(hashes, _MEDIA[event.tier], number)
        card = self._components[number]
        return BlockStored(
            block_hashes=hashes,
            parent_block_hash=event.parent,
            token_ids=list(event.tokens),
            block_size=self._page_tokens,
            medium=_MEDIA[event.tier],
            group=number,
            kv_cache_spec_kind=_SPEC_KINDS[card.rule],
            # An attention window of W tokens needs the W - 1 before the next one.
            kv_cache_spec_sliding_window=card.tokens + 1 if card.rule == "window" else None,
        )

    def events(self, told: BlockEvent) -> tuple[Event, ...]:
        """Back again: a clear is one event a tier; nothing for groups and media that are not known here."""
        if isinstance(told, AllBlocksCleared):
            return tuple(Event(EventKind.CLEARED, tier) for tier in TierName)
        number = told.group or 0
        if told.medium not in _TIERS or not 0 <= number < len(self._components):
            return ()
        tier = _TIERS[told.medium]
        hashes = tuple(map(hash_bytes, told.block_hashes))
        component = ComponentName(self._components[number].name)
        if isinstance(told, BlockRemoved):
            return (Event(EventKind.REMOVED, tier, hashes, component=component),)
        parent = None if told.parent_block_hash is None else hash_bytes(told.parent_block_hash)
        tokens = tuple(told.token_ids)
        return (Event(EventKind.STORED, tier, hashes, parent, tokens, component=component),)


_TYPES: Final[Mapping[str, tuple[type[BlockEvent], tuple[str, ...]]]] = {
    "BlockStored": (
        BlockStored,
        (
            "block_hashes",
            "parent_block_hash",
            "token_ids",
            "block_size",
            "lora_id",
            "medium",
            "lora_name",
            "extra_keys",
            "group_idx",
            "kv_cache_spec_kind",
            "kv_cache_spec_sliding_window",
        ),
    ),
    "BlockRemoved": (BlockRemoved, ("block_hashes", "medium", "group_idx")),
    "AllBlocksCleared": (AllBlocksCleared, ()),
}
"""Each type, and its fields in the order of vLLM's older arrays."""


def _parts(value: object) -> tuple[float, list[object], int | None]:
    """Time, events and rank; what follows them is ignored."""
    if not isinstance(value, list):
        raise ValueError("a batch is an array")
    return msgspec.convert((*value, None)[:3], type=tuple[float, list[object], int | None])


def _event(said: object) -> BlockEvent | None:
    """One event from a map or an array; None for a type that is not known."""
    named = said if isinstance(said, Mapping) else _named(said)
    kind = named.get("type")
    if not isinstance(kind, str):
        raise ValueError("an event has a type")
    if kind not in _TYPES:
        return None
    return msgspec.convert(named, type=_TYPES[kind][0])


def _named(said: object) -> Mapping[str, object]:
    """An event of the older form: its type, then its fields in order; later ones may be missing."""
    if not (isinstance(said, list) and said):
        raise ValueError("an event is a map, or an array that begins with its type")
    kind, *values = said
    fields = _TYPES[kind][1] if isinstance(kind, str) and kind in _TYPES else ()
    return {"type": kind, **dict(zip(fields, values, strict=False))}

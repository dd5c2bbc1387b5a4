"""What router and worker say to each other: header names, signed tags, notices and receipts, the worker's card.

router ──request + Tag (header x-agentcache-tag)──► worker
router ──Notice (stream of the worker)──► worker ──Receipt (stream of the router)──► router
worker ──WorkerCard, WorkerLoad (heartbeat)──► every router
"""

import base64
import binascii
import hashlib
import hmac
import struct
from enum import StrEnum
from typing import Final

import msgspec

from agentcache.errors import CacheError, Kind

PREFIX: Final = "x-agentcache-"
SESSION: Final = PREFIX + "session"
PARENT: Final = PREFIX + "parent"
GENERATION: Final = PREFIX + "generation"
STRICT: Final = PREFIX + "strict"
SUPERSEDED: Final = PREFIX + "superseded"
FORK: Final = PREFIX + "fork"
REUSE: Final = PREFIX + "reuse"
STATE: Final = PREFIX + "state"
WHY: Final = PREFIX + "why"
TAG: Final = PREFIX + "tag"
WORKER: Final = PREFIX + "worker"
EXPECTED: Final = PREFIX + "expected-s"
CACHED: Final = PREFIX + "cached-tokens"
PROMPT: Final = PREFIX + "prompt-tokens"
RETENTION: Final = PREFIX + "retention"
HINTS: Final = PREFIX + "hints"
"""Said by the router only: `ignored` to a tenant that is not heard when it says how long its sessions wait."""
ROUTED: Final = PREFIX + "routed"
"""Said by the router only: which identity was used and why this worker, in a few words."""
PREFILL: Final = PREFIX + "prefill"
"""Said by the router only: who computed the prompt ahead of the worker that answers, or why nobody did."""

STORED: Final = "stored_tokens"
"""In the answer to a prompt that was computed for another worker: so many of its tokens can be loaded."""

TAG_VALID_S: Final = 120
SECRET_BYTES: Final = 32
_SIZE: Final = struct.Struct("<I")
_MAC_BYTES: Final = hashlib.sha256().digest_size


class Hints(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tag says beyond who and where.

    `ttl_s` is the idle lease that the session has from now on, 0 as before; `kv_hints`: the request may send some.
    `prefill`: nothing is to be answered but that the prompt is computed, and lies where another worker can load it.
    """

    strict: bool = False
    superseded: bool = False
    expected_s: float = 0.0
    ttl_s: float = 0.0
    kv_hints: bool = False
    fork: bool = False
    prefill: bool = False


class Tag(msgspec.Struct, frozen=True):
    """A router's word for one request to one worker.

    `session` is the tenant's own id, "" for a request without one; `placement` counts the session's moves between
    workers. `worker` is the audience, as it has run since it took `incarnation` for its name: one that has started
    anew does not remember what it has seen. `request_id` registers once there. `issued_ms` is Unix time in
    milliseconds.
    """

    tenant: str
    salt: str
    session: str
    generation: int
    placement: int
    parent: str
    hints: Hints
    request_id: str
    worker: str
    issued_ms: int
    epoch: str
    incarnation: str = ""


class TagSigner:
    """Signs and reads tags under one secret. Tags are length-prefixed fields: no field can run into the next."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < SECRET_BYTES // 2:
            raise CacheError(Kind.BAD_CONFIG, f"a secret has at least {SECRET_BYTES // 2} bytes")
        self._secret = secret

    def sign(self, tag: Tag) -> str:
        """The value of the header `x-agentcache-tag`."""
        body = _packed(
            tag.tenant,
            tag.salt,
            tag.session,
            str(tag.generation),
            str(tag.placement),
            tag.parent,
            msgspec.json.encode(tag.hints).decode(),
            tag.request_id,
            tag.worker,
            str(tag.issued_ms),
            tag.epoch,
            tag.incarnation,
        )
        return base64.urlsafe_b64encode(body + self._mac(_VERSION, body)).decode()

    def read(self, text: str, worker: str, now_ms: int) -> Tag:
        """A tag that is genuine, for this worker, and young enough.

        Errors  CacheError(UNAUTHORIZED) says which of these it is not
        """
        try:
            raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raise _refused("is no tag") from None
        body, mac = raw[:-_MAC_BYTES], raw[-_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(_VERSION, body)):
            raise _refused("was not signed with this worker's secret")
        tag = _unpacked(body)
        if tag.worker != worker:
            raise _refused("is for another worker")
        if abs(now_ms - tag.issued_ms) > TAG_VALID_S * 1000:
            raise _refused(f"is older than {TAG_VALID_S} s, or from the future: compare the machines' clocks")
        return tag

    def derive(self, purpose: str, *parts: str) -> str:
        """A value that nobody without the secret can compute or guess: salts. Shapes: 64 hexadecimal digits."""
        return self._mac(_DERIVED, _packed(purpose, *parts)).hex()

    def bearer(self, worker: str, url: str) -> str:
        """The token with which an operator calls the management endpoints of the worker of this name at this address.

        Of no use anywhere else: a router sends it to whatever address the store has for a name.
        """
        return self.derive("operator", worker, url)

    def _mac(self, domain: bytes, body: bytes) -> bytes:
        return hmac.digest(self._secret, domain + body, "sha256")


def _framed(part: bytes) -> bytes:
    return _SIZE.pack(len(part)) + part


_VERSION: Final = _framed(b"agentcache-tag-1")
_DERIVED: Final = _framed(b"agentcache-derived-1")


def _refused(how: str) -> CacheError:
    return CacheError(Kind.UNAUTHORIZED, f"the tag of this request {how}; send requests through the router")


def _packed(*parts: str) -> bytes:
    return b"".join([_framed(part.encode()) for part in parts])


def _unpacked(body: bytes) -> Tag:
    """The fields of a body whose signature held. Errors: UNAUTHORIZED for one of another version."""
    parts: list[str] = []
    at = 0
    try:
        while at < len(body):
            (size,) = _SIZE.unpack_from(body, at)
            parts.append(body[at + 4 : at + 4 + size].decode())
            at += 4 + size
        tenant, salt, session, generation, placement, parent, hints, request_id, worker, *rest = parts
        issued, epoch, incarnation = rest
        return Tag(
            tenant,
            salt,
            session,
            int(generation),
            int(placement),
            parent,
            msgspec.json.decode(hints, type=Hints),
            request_id,
            worker,
            int(issued),
            epoch,
            incarnation,
        )
    except (struct.error, ValueError, msgspec.DecodeError):
        raise _refused("is of another version") from None


class Order(StrEnum):
    """What a worker is asked to do with a session."""

    CLOSE = "close"  # through this generation, for good
    FORK = "fork"  # it has been opened, and inherits the path of `parent` until its first turn
    EXPIRE = "expire"  # an offer: busy if a request of it is queued or running
    MOVED = "moved"  # another worker has it now: release what was registered before `placement`


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One order to one worker. `at` is its place in the stream; `reply_to` the router that waits for the receipt."""

    order: Order
    tenant: str
    session: str
    generation: int
    placement: int = 0
    mode: str = "release"
    operation: str = ""
    reply_to: str = ""
    at: str = ""
    parent: str = ""


class Outcome(StrEnum):
    """What became of a notice."""

    RELEASED = "released"
    UNKNOWN = "unknown"  # the worker holds nothing of it
    BUSY = "busy"  # a request of it is queued or running
    RESTARTED = "restarted"  # the worker lost everything since: nothing is left to release
    FAILED = "failed"


class HeldPart(msgspec.Struct, frozen=True):
    """What was released of one component on one tier; `shared_slots` of its slots other sessions reference, too."""

    component: str
    tier: str
    tokens: int
    slots: int
    bytes: int
    shared_slots: int = 0


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker's answer to a notice. `generation` is the one that it knows now; `said` explains a failure."""

    order: Order
    tenant: str
    session: str
    generation: int
    worker: str
    outcome: Outcome
    operation: str = ""
    reply_to: str = ""
    released: tuple[HeldPart, ...] = ()
    markers: int = 0
    mode: str = "release"
    said: str = ""


class ComponentCard(msgspec.Struct, frozen=True):
    """One component as the placement vote needs it. `rule` is path, window or checkpoint; `tokens` its w or grid."""

    name: str
    rule: str
    tokens: int


class Role(StrEnum):
    """What a worker is for."""

    BOTH = "both"  # whole turns
    PREFILL = "prefill"  # prompts of turns that others answer, and no whole turn
    DECODE = "decode"  # whole turns, whose long prompts others compute ahead


class Casting(msgspec.Struct, frozen=True, kw_only=True):
    """The part that a worker plays; a `Role`, or one of a later version."""

    role: str = Role.BOTH


class WorkerCard(Casting, frozen=True):
    """What a worker is, told once per start. `incarnation` is new with every start: what came before it is gone.

    `namespace` are the fields (model, adapter, dtype, layout) that name its pages beside the tenant's salt. Addresses
    that are "" are not there. No text of more UTF-8 bytes than `prompt_bytes_max` fits the context; 0: not known.
    """

    worker: str
    incarnation: str
    url: str
    model: str
    context_tokens: int
    page_tokens: int
    grid_tokens: int
    seats: int
    queue_limit: int
    components: tuple[ComponentCard, ...] = ()
    namespace: tuple[str, str, str, str] = ("", "", "", "")
    events_url: str = ""
    replay_url: str = ""
    started_ms: int = 0
    prompt_bytes_max: int = 0


class WorkerLoad(msgspec.Struct, frozen=True):
    """How busy a worker is, told with every heartbeat."""

    waiting: int = 0
    running: int = 0
    open_sessions: int = 0
    draining: bool = False

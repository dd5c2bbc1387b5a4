"""What an object in an external store looks like: a header that says what it is, then the bytes of one slot.

    magic 4 | format version u16 | identity 16 | payload length u64 | checksum of the payload 16 | payload

All little-endian. The identity is a hash of the object's name, its component and the layout of its bytes. Every field
is compared, so no bit of an object can change unseen: what is not exactly what was asked for is a miss.
"""

import hashlib
import struct

from agentcache.keys import FORMAT_VERSION
from agentcache.types import ComponentName

MAGIC = b"\xacKV\n"
DIGEST_BYTES = 16
HEADER = struct.Struct(f"<4sH{DIGEST_BYTES}sQ{DIGEST_BYTES}s")


def pack(name: str, component: ComponentName, layout: str, payload: bytes | memoryview) -> bytes:
    """An object ready for a store.

    Cost  one pass over the payload for its checksum (without the GIL), one copy
    """
    return b"".join((_header(name, component, layout, payload), payload))


def unpack(name: str, component: ComponentName, layout: str, length: int, raw: bytes) -> memoryview | None:
    """The payload of an object, or None where it is not the one asked for.

    None for what is cut short or longer, for a flipped bit, another name, component, layout or format version.

    Shapes  `length` bytes, a view of `raw`
    Cost    one pass over the payload for its checksum (without the GIL), no copy
    """
    payload = memoryview(raw)[HEADER.size :]
    if len(raw) != HEADER.size + length:
        return None
    return payload if raw.startswith(_header(name, component, layout, payload)) else None


def _header(name: str, component: ComponentName, layout: str, payload: bytes | memoryview) -> bytes:
    identity = hashlib.sha256(usedforsecurity=False)
    for text in (name, component, layout):
        field = text.encode()
        identity.update(len(field).to_bytes(8, "little") + field)
    checksum = hashlib.sha256(payload, usedforsecurity=False).digest()
    return HEADER.pack(
        MAGIC, FORMAT_VERSION, identity.digest()[:DIGEST_BYTES], len(payload), checksum[:DIGEST_BYTES]
    )

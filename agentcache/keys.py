"""Page-aligned keys and the hash chain that names a page outside the tree."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from agentcache.errors import CacheError, Kind
from agentcache.types import ComponentName, Tokens

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Namespace:
    """Everything that makes equal tokens unequal. Two namespaces never share a page, on any tier."""

    tenant_salt: str = ""
    model: str = ""
    adapter: str = ""
    dtype: str = ""
    layout: str = ""

    def digest(self) -> bytes:
        """sha256 over the format version and the length-prefixed fields: no field can run into the next."""
        seed = hashlib.sha256(b"agentcache" + FORMAT_VERSION.to_bytes(4, "little"))
        for text in (self.tenant_salt, self.model, self.adapter, self.dtype, self.layout):
            raw = text.encode()
            seed.update(len(raw).to_bytes(8, "little") + raw)
        return seed.digest()


@dataclass(frozen=True, slots=True, eq=False)
class Key:
    """Whole pages of tokens in a namespace; what enters the tree.

    Shapes  tokens: int32[n], n a multiple of the page
    """

    tokens: Tokens
    namespace: Namespace

    def __len__(self) -> int:
        return int(self.tokens.shape[0])


def page_key(tokens: Sequence[int] | Tokens, namespace: Namespace, page_tokens: int) -> Key:
    """Cut `tokens` to whole pages. The tail that does not fill a page is never cached.

    Errors  CacheError(BAD_REQUEST) for ids that are no int32 or are negative
    """
    try:
        array = np.ascontiguousarray(tokens, dtype=np.int64)
    except (OverflowError, TypeError, ValueError) as bad:
        raise CacheError(Kind.BAD_REQUEST, "token ids must be integers") from bad
    if array.ndim != 1:
        raise CacheError(Kind.BAD_REQUEST, "token ids must be one flat list", dimensions=array.ndim)
    if array.size and (int(array.min()) < 0 or int(array.max()) > np.iinfo(np.int32).max):
        raise CacheError(Kind.BAD_REQUEST, "token ids must lie in [0, 2^31)")
    whole = array.size - array.size % page_tokens
    return Key(array[:whole].astype(np.int32), namespace)


def chain(previous: bytes, page: bytes) -> bytes:
    """The hash of a page: sha256(hash before it, tokens as little-endian u32)."""
    return hashlib.sha256(previous + page).digest()


def page_hashes(key: Key, page_tokens: int) -> Iterator[bytes]:
    """One hash a page, chained from the namespace; equal prefixes in one namespace have equal hashes."""
    previous = key.namespace.digest()
    raw = key.tokens.astype("<u4").tobytes()
    for at in range(0, len(raw), 4 * page_tokens):
        previous = chain(previous, raw[at : at + 4 * page_tokens])
        yield previous


def object_name(page_hash: bytes, component: ComponentName) -> str:
    """What a page, or the state at its end, is called in an external store."""
    return f"agentcache/{FORMAT_VERSION}/{page_hash.hex()}/{component}"


def identity_of(name: str) -> tuple[ComponentName, bytes]:
    """What an object is, by its name: the component and the page hash. Caller: a name that `object_name` made."""
    _, _, page_hash, component = name.split("/", 3)
    return ComponentName(component), bytes.fromhex(page_hash)


class PathNames:
    """The page hashes of one path, each computed once however often the path is named and however it grows.

    Caller  names only keys of which one is the beginning of the other
    """

    def __init__(self, page_tokens: int) -> None:
        self._page_tokens = page_tokens
        self._hashes: list[bytes] = []

    def of(self, key: Key) -> tuple[bytes, ...]:
        """One hash a page of `key`, from the root on. Cost O(pages not hashed yet), and a copy."""
        known = len(self._hashes)
        pages = len(key) // self._page_tokens
        if pages > known:
            previous = self._hashes[-1] if known else key.namespace.digest()
            raw = key.tokens[known * self._page_tokens :].astype("<u4").tobytes()
            size = 4 * self._page_tokens
            for at in range(0, len(raw), size):
                previous = chain(previous, raw[at : at + size])
                self._hashes.append(previous)
        return tuple(self._hashes[:pages])

"""Who asks: tenants by API key, from a file or from the environment.

    [[tenant]]
    name = "acme"
    keys = ["sk-…", "sha256:…"]     # in clear, or the SHA-256 of the key in hexadecimal digits
    session_limit = 10000           # open sessions at a time; 0: any number
    kv_hints = false                # whether its requests may carry them: for orchestrators
    hints = true                    # whether it is believed when it says how long its sessions wait

Without tenants everybody is the tenant `default`, whatever key is sent.
"""

import hashlib
import hmac
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agentcache.errors import CacheError, Kind
from agentcache.ids import DEFAULT_TENANT, checked_tenant
from agentcache.web.headers import RequestHeaders

VARIABLE: Final = "AGENTCACHE_ROUTER_TENANTS"
"""NAME=KEY,KEY;NAME=KEY: tenants without a file, with the usual limit."""
SESSION_LIMIT: Final = 10_000
OPEN_SESSION_LIMIT: Final = 100_000
"""Of the one tenant that everybody is."""
HASHED: Final = "sha256:"
MIN_KEY_LENGTH: Final = 8
_FIELDS: Final = ("name", "keys", "session_limit", "kv_hints", "hints")
_KEY = re.compile(rf"[!-~]{{{MIN_KEY_LENGTH},512}}")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class Tenant:
    """Whoever shares sessions and cached pages. `session_limit`: open sessions at a time; 0: any number.

    `kv_hints`: its requests may carry them. `hints`: it is heard when it says how long its sessions wait.
    """

    name: str
    session_limit: int = SESSION_LIMIT
    kv_hints: bool = False
    hints: bool = True


EVERYBODY: Final = Tenant(DEFAULT_TENANT, OPEN_SESSION_LIMIT)
_NOBODY: Final = Tenant("")


class Tenants:
    """Keys of tenants and of the operator, by their SHA-256. No tenants: everybody is `EVERYBODY`."""

    def __init__(self, by_digest: Mapping[bytes, Tenant], admin: bytes = b"") -> None:
        self._by_digest = dict(by_digest)
        self._admin = admin

    @property
    def names(self) -> tuple[str, ...]:
        """Sorted; `default` where there are none."""
        return tuple(sorted({tenant.name for tenant in self._by_digest.values()} or {EVERYBODY.name}))

    def authenticate(self, headers: RequestHeaders) -> Tenant:
        """The tenant of `Authorization: Bearer KEY` or `x-api-key: KEY`; of both, of the one that is known.

        Errors   CacheError(UNAUTHORIZED): no key, one that nobody has, or keys of two tenants
        """
        if not self._by_digest:
            return EVERYBODY
        keys = _keys(headers)
        if not keys:
            raise CacheError(
                Kind.UNAUTHORIZED, "there is no API key: send Authorization: Bearer KEY, or x-api-key: KEY"
            )
        # What a look-up's time tells of the digest of a guess says nothing about any key.
        known = {self._by_digest.get(_digest(key), _NOBODY) for key in keys} - {_NOBODY}
        if len(known) > 1:
            raise CacheError(
                Kind.UNAUTHORIZED, "Authorization and x-api-key are keys of two tenants: send one"
            )
        for tenant in known:
            return tenant
        raise CacheError(
            Kind.UNAUTHORIZED, "this API key is not known here: ask whoever runs the router for one"
        )

    def require_admin(self, headers: RequestHeaders) -> None:
        """Let the operator pass; anybody where there are neither tenants nor an operator's key.

        Errors   CacheError(UNAUTHORIZED)
        """
        if not self._admin and not self._by_digest:
            return
        if not self._admin:
            raise CacheError(
                Kind.UNAUTHORIZED, "nobody may do this: the router was started without --admin-key-file"
            )
        digests = [_digest(key) for key in _keys(headers)]
        if not any(hmac.compare_digest(digest, self._admin) for digest in digests):
            raise CacheError(
                Kind.UNAUTHORIZED, "this is for the operator: send Authorization: Bearer with the admin key"
            )


def load_tenants(file: str, variable: str, admin_key_file: str = "") -> Tenants:
    """Tenants from a file, or from the value of the variable; and the operator's key.

    Errors   CacheError(BAD_CONFIG): what is wrong, with file and line or tenant and field; never shows a key
    """
    if file and variable:
        raise _bad(VARIABLE, f"tenants come from the file {file} already; leave one of them out")
    admin = _written_digest(_admin_key(admin_key_file)) if admin_key_file else b""
    entries = _from_file(Path(file).expanduser()) if file else _from_variable(variable)
    return Tenants(_digests(entries), admin)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One tenant as it was written, and where."""

    place: str
    tenant: Tenant
    keys: tuple[str, ...]


def _from_variable(text: str) -> Iterator[_Entry]:
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if text and not parts:
        raise _bad(VARIABLE, "names no tenant; write NAME=KEY,KEY;NAME=KEY, or leave it out")
    for position, said in enumerate(parts, start=1):
        name, equals, keys = said.partition("=")
        place = f"{VARIABLE}, tenant {position}"
        if not equals:
            raise _bad(place, "must be NAME=KEY,KEY")
        yield _entry(place, {"name": name.strip(), "keys": [key.strip() for key in keys.split(",")]})


def _from_file(path: Path) -> Iterator[_Entry]:
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _bad(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _bad(str(path), "is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise _bad(str(path), f"is not TOML: {error}") from None
    tenants = written.pop("tenant", [])
    if written:
        raise _bad(str(path), f"has {', '.join(sorted(written))}; write each tenant below [[tenant]]")
    if not isinstance(tenants, list) or not tenants:
        raise _bad(str(path), "names no tenant; write each below [[tenant]], or leave the file out")
    for position, values in enumerate(tenants, start=1):
        yield _entry(f"{path}, tenant {position}", values)


def _entry(place: str, values: object) -> _Entry:
    if not isinstance(values, dict):
        raise _bad(place, "must be a table")
    for name in values:
        if name not in _FIELDS:
            raise _bad(place, f"has no field {name!r}; there are {', '.join(_FIELDS)}")
    name = _name(place, values.get("name", ""))
    place = f"{place} ({name})"
    limit, keys = values.get("session_limit", SESSION_LIMIT), values.get("keys", [])
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise _bad(place, "session_limit must be a whole number, 0 for any number of sessions")
    hinting = [_flag(place, values, "kv_hints", False), _flag(place, values, "hints", True)]
    if not isinstance(keys, list) or not keys:
        raise _bad(place, "keys must be a list with at least one key")
    return _Entry(
        place,
        Tenant(name, limit, *hinting),
        tuple(_key(f"{place}, keys[{n}]", key) for n, key in enumerate(keys)),
    )


def _flag(place: str, values: Mapping[str, object], name: str, default: bool) -> bool:
    value = values.get(name, default)
    if not isinstance(value, bool):
        raise _bad(place, f"{name} must be true or false")
    return value


def _name(place: str, name: object) -> str:
    if not isinstance(name, str):
        raise _bad(place, "name must be text")
    try:
        return checked_tenant(name)
    except CacheError as error:
        raise _bad(f"{place}, name", error.message) from None


def _key(place: str, key: object) -> str:
    """A key as it was written, if it can be one."""
    if not isinstance(key, str):
        raise _bad(place, "must be text")
    hashed = key.startswith(HASHED)
    if hashed and not _DIGEST.fullmatch(key.removeprefix(HASHED)):
        raise _bad(place, f"must have 64 hexadecimal digits after {HASHED}")
    if not hashed and not _KEY.fullmatch(key):
        raise _bad(place, f"must have {MIN_KEY_LENGTH} to 512 printable ASCII characters and no blanks")
    return key


def _digests(entries: Iterable[_Entry]) -> dict[bytes, Tenant]:
    found: dict[bytes, Tenant] = {}
    names: set[str] = set()
    for entry in entries:
        if entry.tenant.name in names:
            raise _bad(entry.place, "is there twice; write all its keys in one place")
        names.add(entry.tenant.name)
        for key in entry.keys:
            digest = _written_digest(key)
            if digest in found:
                raise _bad(entry.place, f"has a key that {found[digest].name} has already")
            found[digest] = entry.tenant
    return found


def _admin_key(file: str) -> str:
    try:
        key = Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(file, f"the admin key cannot be read: {error}") from None
    return _key(file, key)


def _keys(headers: RequestHeaders) -> list[str]:
    """The keys that a request carries."""
    scheme, _, bearer = headers.text("authorization").partition(" ")
    sent = [bearer.strip() if scheme.lower() == "bearer" else "", headers.text("x-api-key")]
    return [key for key in sent if key]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _written_digest(key: str) -> bytes:
    """The digest of a key as it stands in a file."""
    return bytes.fromhex(key.removeprefix(HASHED)) if key.startswith(HASHED) else _digest(key)


def _bad(place: str, said: str) -> CacheError:
    return CacheError(Kind.BAD_CONFIG, f"tenants: {place}: {said}")

"""Where the session store is: a URL, or the folder of a router whose embedded Valkey keeps it."""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, quote

from agentcache.clock import Clock
from agentcache.embedded import EmbeddedServer, ServerOptions, make_folder, open_embedded, socket_path
from agentcache.errors import CacheError, Kind
from agentcache.store.api import StoreRules
from agentcache.store.calls import Calls
from agentcache.store.lines import ClusterLine, ServerLine
from agentcache.store.pipe import CALL_S
from agentcache.store.redis import RedisStore
from agentcache.wire import SECRET_BYTES

CLUSTER = "+cluster"
CLUSTER_SHARDS = 16
SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")
SECRET = "secret"
KEPT = ServerOptions(append_only=True)


async def connect(
    url: str,
    rules: StoreRules,
    *,
    shards: int = 0,
    now_ms: Callable[[], int] | None = None,
    call_s: float = CALL_S,
) -> RedisStore:
    """The store at a URL: redis://, rediss:// or unix://, or redis+cluster:// for any node of a cluster.

    `shards`: how many slots of a cluster the tenants are spread over; 0: 16 there, 1 on a single server.
    `call_s`: how long a call waits. Nothing is asked yet, so a server that is down is no error here.

    Caller  uses the store in this event loop, calls `prepare` first, and `aclose` in the end
    Errors  CacheError(BAD_CONFIG)
    """
    scheme, _, rest = url.partition("://")
    address = f"{scheme}://{rest.rpartition('@')[2]}"
    if scheme not in SCHEMES or not parse_qs(address.partition("?")[2]).keys() <= {"db"}:
        raise _no_url(address)
    try:
        if scheme.endswith(CLUSTER):
            line: ClusterLine | ServerLine = ClusterLine(
                f"{scheme.removesuffix(CLUSTER)}://{rest}", address, call_s
            )
        else:
            line = ServerLine(url, address, call_s=call_s)
    except ValueError as bad:
        raise _no_url(address) from bad
    default = CLUSTER_SHARDS if isinstance(line, ClusterLine) else 1
    return RedisStore(Calls(line, rules, shards or default, now_ms))


def _no_url(address: str) -> CacheError:
    told = "redis://HOST:PORT/DB, rediss://HOST:PORT/DB, unix://PATH?db=DB or redis+cluster://HOST:PORT"
    return CacheError(
        Kind.BAD_CONFIG, f"{address.partition('?')[0]}: no URL of a session store; one is {told}"
    )


@dataclass(frozen=True, slots=True)
class Home:
    """What a router's folder keeps: an embedded Valkey with the sessions, and the secret of its tags."""

    url: str
    secret: bytes
    server: EmbeddedServer

    def ensure(self) -> None:
        """Return once the server answers; started here if the process that ran it is gone. Blocks: call in a thread.

        Errors  CacheError(BAD_CONFIG)
        """
        self.server.ensure()

    def close(self) -> None:
        """Stop the server where it is ours; the sessions stay on disk. Idempotent."""
        self.server.close()


def open_home(folder: Path, clock: Clock) -> Home:
    """The home of a router: started here, or joined where another process runs it. Made where it is missing.

    Errors  CacheError(BAD_CONFIG): a folder that is not writable, no binary, a server that does not come up
    """
    make_folder(folder)
    secret = folder / SECRET
    _write_once(secret)
    server = open_embedded(folder, KEPT, clock)
    return Home(_url(folder), read_secret(secret), server)


def join_home(folder: Path) -> tuple[str, bytes]:
    """URL and secret of a router's home, for a worker on the same machine. Starts nothing, waits for nothing.

    Errors  CacheError(BAD_CONFIG) for a folder that is no router's
    """
    if not (folder / SECRET).is_file():
        raise CacheError(
            Kind.BAD_CONFIG,
            f"{folder} is no router's folder: start `agentcache router --router-dir {folder}` first, or name the "
            "folder of one",
        )
    return _url(folder), read_secret(folder / SECRET)


def read_secret(path: Path) -> bytes:
    """The secret that routers and workers share: a line of at least 16 characters.

    Errors  CacheError(BAD_CONFIG)
    """
    try:
        secret = path.read_bytes().strip()
    except OSError as bad:
        why = f"cannot read the secret in {path} ({bad.strerror}): name the file that the routers use"
        raise CacheError(Kind.BAD_CONFIG, why) from bad
    if len(secret) < SECRET_BYTES // 2:
        raise CacheError(
            Kind.BAD_CONFIG,
            f"the secret in {path} is too short: it needs {SECRET_BYTES // 2} characters or more, the same for all "
            "routers and workers",
        )
    return secret


def _url(folder: Path) -> str:
    return f"unix://{quote(str(socket_path(folder.absolute())))}"


def _write_once(path: Path) -> None:
    """A new secret, unless there is one: whole or not at all, and one for all who start at once."""
    if path.exists():
        return
    with tempfile.NamedTemporaryFile(dir=path.parent) as draft:
        draft.write(secrets.token_hex(SECRET_BYTES).encode() + b"\n")
        draft.flush()
        os.chmod(draft.name, 0o600)
        with contextlib.suppress(FileExistsError):
            os.link(draft.name, path)

"""HTTP towards workers and other servers: bytes as they are, and failures as values that say what may be repeated."""

import asyncio
import io
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import aiohttp
import yarl
from multidict import CIMultiDict

from agentcache.errors import CacheError, Kind
from agentcache.web.headers import RawHeaders

CONNECT_S: Final = 5.0
KEEP_ALIVE_S: Final = 60.0
GONE_S: Final = 60
"""How long a host that vanished is waited for: nothing that was sent, and no probe of a quiet connection, came back."""
_PROBE_AFTER_S, _PROBE_EVERY_S, _PROBES = 30, 10, 3
ANSWER_BYTES: Final = 16 * 2**20
"""The most that `post` and `get` read of an answer; streams have no limit."""

_IN_ONE_PIECE: Final = 2**20  # aiohttp sends more than this in pieces only from a file
_SKIPPED: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")  # not ours to add

HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)


class Failure(StrEnum):
    """How far an exchange came that brought no answer."""

    UNSENT = "unsent"  # no connection: nothing was sent
    BROKEN = "broken"  # the connection ended before an answer began: it may have been computed
    SILENT = "silent"  # the worker stopped to be heard while it owed an answer
    GARBAGE = "garbage"  # what came is not HTTP
    REFUSED = "refused"  # it does not believe our tags


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """An exchange that brought no answer; `said` is for logs and messages."""

    failure: Failure
    said: str

    def error(self, worker: str) -> CacheError:
        return CacheError(Kind.UPSTREAM_FAILED, f"the worker {worker} gave no answer: {self.said}")


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer."""

    status: int
    body: bytes


class Answer:
    """An answer that has begun. `close` ends it wherever it is, and with it the work at the other side."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status

    @property
    def headers(self) -> RawHeaders:
        """As they came, without those that speak of the connection only."""
        return end_to_end(list(self._response.raw_headers))

    def header(self, name: str) -> str:
        return self._response.headers.get(name, "")

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives. Errors: CacheError(UPSTREAM_FAILED) when it breaks off."""
        try:
            while chunk := await self._response.content.readany():
                yield chunk
        except (
            TimeoutError,
            aiohttp.ClientError,
            OSError,
            RuntimeError,
        ) as error:  # the last: the client is closed
            raise CacheError(Kind.UPSTREAM_FAILED, f"an answer broke off: {_said(error)}") from None

    async def whole(self, limit_bytes: int = ANSWER_BYTES) -> bytes:
        """The body. Errors: CacheError(UPSTREAM_FAILED) when it breaks off, or is longer than that."""
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > limit_bytes:
                raise CacheError(Kind.UPSTREAM_FAILED, f"an answer has over {limit_bytes} bytes")
        return bytes(body)

    def close(self) -> None:
        """Close the connection, unless the answer is complete and the connection can be used again."""
        self._response.close()


def watched_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket whose connection ends by itself when the host at its other end is gone."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _PROBE_AFTER_S),
        ("TCP_KEEPINTVL", _PROBE_EVERY_S),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", GONE_S * 1000),
    ):
        option = getattr(socket, name, 0)  # not every system has each
        if option:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


MakeSocket = Callable[[aiohttp.AddrInfoType], socket.socket]
"""Makes the socket of a connection to an address."""


class Upstreams:
    """The connections of one router process. Cookies are neither kept nor sent, redirects not followed."""

    def __init__(self, connect_s: float = CONNECT_S, make_socket: MakeSocket = watched_socket) -> None:
        self._connect_s = connect_s
        self._make_socket = make_socket
        self._opened: list[aiohttp.ClientSession] = []

    async def send(self, method: str, url: str, headers: RawHeaders, body: bytes = b"") -> Answer | NoAnswer:
        """Send a request and wait until its answer begins, however long that takes."""
        data = body if len(body) <= _IN_ONE_PIECE else io.BytesIO(body)
        try:
            response = await self._session().request(
                method,
                yarl.URL(url, encoded=True),
                data=data if body or method == "POST" else None,
                headers=_decoded(headers),
                allow_redirects=False,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            return NoAnswer(Failure.UNSENT, _said(error))
        except (TimeoutError, aiohttp.ClientConnectionError, OSError) as error:
            return NoAnswer(Failure.BROKEN, _said(error))
        except (aiohttp.ClientError, ValueError) as error:
            return NoAnswer(Failure.GARBAGE, _said(error))
        return Answer(response)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> Reply:
        """A small exchange of JSON. Errors: CacheError(UPSTREAM_FAILED) without a complete answer in time."""
        told = {"content-type": "application/json", **headers}
        return await self._exchange("POST", url, told, timeout_s, body)

    async def get(self, url: str, headers: Mapping[str, str], timeout_s: float) -> Reply:
        """As `post`."""
        return await self._exchange("GET", url, headers, timeout_s)

    async def close(self) -> None:
        while self._opened:
            await self._opened.pop().close()

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], timeout_s: float, body: bytes = b""
    ) -> Reply:
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self.send(method, url, raw, body)
                if isinstance(answer, NoAnswer):
                    raise CacheError(Kind.UPSTREAM_FAILED, f"{url} gave no answer: {answer.said}")
                try:
                    return Reply(answer.status, await answer.whole())
                finally:
                    answer.close()
        except TimeoutError:
            raise CacheError(Kind.UPSTREAM_FAILED, f"{url} gave no answer within {timeout_s:g} s") from None

    def _session(self) -> aiohttp.ClientSession:
        """Made in the loop that uses it."""
        if not self._opened:
            connector = aiohttp.TCPConnector(
                limit=0, keepalive_timeout=KEEP_ALIVE_S, socket_factory=self._make_socket
            )
            self._opened.append(
                aiohttp.ClientSession(
                    connector=connector,
                    auto_decompress=False,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    skip_auto_headers=_SKIPPED,
                    timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_s),
                )
            )
        return self._opened[0]


def end_to_end(headers: RawHeaders) -> RawHeaders:
    """Headers without those of one connection: the known ones, and those that `connection` names."""
    lowered = [name.lower() for name, _ in headers]
    dropped = HOP_BY_HOP.intersection(lowered)
    if b"connection" in dropped:
        named = (_parts(value) for name, value in headers if name.lower() == b"connection")
        dropped = dropped.union(*named)
    if not dropped:
        return list(headers)
    return [header for header, name in zip(headers, lowered, strict=True) if name not in dropped]


def _parts(value: bytes) -> Iterator[bytes]:
    return (part.strip().lower() for part in value.split(b","))


def _decoded(headers: RawHeaders) -> CIMultiDict[str]:
    """Headers as aiohttp takes them; it sends text as UTF-8, so bytes that are not that have no way through."""
    told: CIMultiDict[str] = CIMultiDict()
    for name, value in headers:
        try:
            told.add(name.decode("ascii"), value.decode("utf-8"))
        except UnicodeDecodeError:
            continue
    return told


def _said(error: BaseException) -> str:
    return (str(error) or type(error).__name__).split("\n")[0][:200]

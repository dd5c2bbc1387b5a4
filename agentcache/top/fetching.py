"""What a server says to a GET, each answer a value; only a server that is not there is an error."""

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from agentcache.errors import CacheError, Kind

TIMEOUT_S: Final = 5.0
MOST_BYTES: Final = 64 * 2**20
_HTTP: Final = re.compile(r"https?://[^/\s?#]+(/[^\s?#]*)?$")


@dataclass(frozen=True, slots=True)
class Said:
    """An answer; what is no JSON object has no fields."""

    status: int
    text: str

    @property
    def fields(self) -> dict[str, Any]:
        try:
            found = json.loads(self.text)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


Fetch = Callable[[str, str], Said]
"""Base address and path → the answer. Errors: CacheError(UNREACHABLE)."""


def checked_url(url: str) -> str:
    """The address without a slash at its end. Errors: CacheError(BAD_REQUEST)."""
    if not _HTTP.match(url):
        raise CacheError(Kind.BAD_REQUEST, f"--url must look like http://HOST:PORT, and is {url[:200]!r}")
    return url.rstrip("/")


def fetching(url: str, key: str, timeout_s: float = TIMEOUT_S) -> Fetch:
    """Fetch over HTTP. `key` (an API key, an operator's token, or "") is sent to `url` only; no proxy is asked."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stays())

    def fetch(base: str, path: str) -> Said:
        headers = {"authorization": f"Bearer {key}"} if key and base == url else {}
        request = urllib.request.Request(f"{base}{path}", headers=headers)
        try:
            with opener.open(request, timeout=timeout_s) as answer:
                return Said(answer.status, answer.read(MOST_BYTES).decode("utf-8", "replace"))
        except urllib.error.HTTPError as refused:
            with refused:
                return Said(refused.code, "")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _unreachable(base, error) from None

    return fetch


class _Stays(urllib.request.HTTPRedirectHandler):
    """Nobody is followed elsewhere: a key is for the address that was named."""

    def redirect_request(self, *_arguments: Any, **_named: Any) -> None:
        return None


def _unreachable(base: str, error: Exception) -> CacheError:
    reason = getattr(error, "reason", error)
    said = getattr(reason, "strerror", "") or str(reason) or type(reason).__name__
    return CacheError(
        Kind.UNREACHABLE,
        f"nobody answers at {base} ({said}): start `agentcache router` or `agentcache serve`, or name another --url",
    )

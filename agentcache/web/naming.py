"""Ids, generations and times as clients send them, refused by the name of what carried them."""

import math
import re
from typing import Final

from agentcache.errors import CacheError
from agentcache.ids import checked_id
from agentcache.types import SessionId
from agentcache.web.status import refuse

MAX_GENERATION: Final = 2**63 - 1
MAX_EXPECTED_S: Final = 1e9
_DECIMAL: Final = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
"""Plain decimal numbers; `float` knows more (`+5`, `1_000`, the digits of other scripts)."""


def named_id(text: object, param: str) -> SessionId:
    """The id, if it is one. Errors: CacheError(BAD_SESSION_ID) that names `param`."""
    try:
        return checked_id(text)
    except CacheError as error:
        raise CacheError(error.kind, error.message, param=param) from None


def read_generation(text: str, param: str) -> int | None:
    """A generation as sent, None when not sent. Errors: CacheError(BAD_REQUEST)."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MAX_GENERATION):
        raise refuse(f"{param} must be a generation: a whole number that was answered before", param)
    return int(text)


def read_expected(text: str, param: str) -> float:
    """The seconds until a session is expected back, 0 when not sent. Errors: CacheError(BAD_REQUEST)."""
    said = text or "0"
    seconds = float(said) if _DECIMAL.fullmatch(said) else math.nan
    if not 0.0 <= seconds <= MAX_EXPECTED_S:
        raise refuse(f"{param} must be seconds from 0 to {MAX_EXPECTED_S:.0f}", param)
    return seconds

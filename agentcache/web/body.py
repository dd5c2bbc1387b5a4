"""Request bodies: read under a limit, noticed when the client leaves, decoded with one clear error."""

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Final, NoReturn, TypeVar

from starlette.types import Receive, Scope

from agentcache.errors import CacheError, Kind
from agentcache.web.fields import Fields
from agentcache.web.status import refuse

Answer = TypeVar("Answer")
_SESSION: Final = b'"session_id"'


class ClientGoneError(Exception):
    """The client closed the connection; nobody is left to answer."""


async def read_body(scope: Scope, receive: Receive, limit_bytes: int, whose: str = "worker") -> bytes:
    """The whole body, refused as soon as it is known to be longer than `limit_bytes`, an option of `whose`.

    Errors   CacheError(BODY_TOO_LARGE); ClientGoneError
    """
    if _declared_bytes(scope) > limit_bytes:
        raise _too_large(limit_bytes, whose)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        body += message.get("body", b"")
        if len(body) > limit_bytes:
            raise _too_large(limit_bytes, whose)
        if not message.get("more_body", False):
            return bytes(body)


def parse_object(body: bytes) -> Fields:
    """The JSON object in a body; an empty body is an empty object.

    Errors   CacheError(BAD_REQUEST) for anything that is not a JSON object in valid UTF-8, and for one that names two
             sessions in one place
    """
    if not body.strip():
        return Fields({})
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_not_a_number)
        if body.count(_SESSION) > 1:
            json.loads(body, object_pairs_hook=_agreeing)
        if b"\\u" in body:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeError:
        raise CacheError(Kind.BAD_REQUEST, "the body is not valid UTF-8 (or has lone surrogates)") from None
    except (ValueError, RecursionError) as error:
        raise CacheError(Kind.BAD_REQUEST, f"the body is not valid JSON: {_short(error)}") from None
    if not isinstance(value, dict):
        raise CacheError(Kind.BAD_REQUEST, "the body must be a JSON object")
    return Fields(value)


def _agreeing(pairs: list[tuple[str, object]]) -> None:
    """Of most fields that are sent twice the last one holds; which session is meant would be a guess."""
    if len({repr(value) for name, value in pairs if name == "session_id"}) > 1:
        raise refuse("the body has session_id more than once with different values", "session_id")


async def unless_gone(receive: Receive, work: Coroutine[object, object, Answer]) -> Answer:
    """Run `work` while watching the connection; a client that leaves cancels it at once.

    Caller   has read the whole body, so that `receive` only answers for the end of the connection
    Errors   ClientGoneError; whatever `work` raises
    """
    serving = asyncio.current_task()
    assert serving, "a coroutine is run by a task"
    watcher = asyncio.create_task(_cancel_when_gone(receive, serving))
    try:
        return await work
    finally:
        gone = watcher.done() and not watcher.cancelled()
        watcher.cancel()
        if gone and not serving.uncancel():
            raise ClientGoneError


async def _cancel_when_gone(receive: Receive, serving: "asyncio.Task[object]") -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    serving.cancel()


def _declared_bytes(scope: Scope) -> int:
    headers: Mapping[bytes, bytes] = dict(scope["headers"])
    declared = headers.get(b"content-length", b"")
    return int(declared) if declared.isdigit() and len(declared) < 19 else 0


def _too_large(limit_bytes: int, whose: str) -> CacheError:
    return CacheError(
        Kind.BODY_TOO_LARGE,
        f"the body is over {limit_bytes} bytes; send less, or raise the {whose}'s --body-limit-bytes",
    )


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _short(error: Exception) -> str:
    return str(error).split("\n")[0][:120] if isinstance(error, ValueError) else "nested too deeply"

"""Who may ask a worker for what: a router's signed tags, an operator's token, or anybody where there is no secret."""

import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from agentcache.engine.api import Admitted
from agentcache.errors import CacheError, Kind
from agentcache.ids import MAX_SCOPED_BYTES, checked_id, scoped, unscoped
from agentcache.types import SessionId
from agentcache.web.fields import Fields
from agentcache.web.headers import RequestHeaders
from agentcache.web.naming import named_id
from agentcache.web.reply import json_response
from agentcache.web.status import error_answer, error_headers
from agentcache.wire import TAG, TAG_VALID_S, Tag, TagSigner
from agentcache.worker.headers import Identity, read_identity, routed_identity

REMEMBERED: Final = 200_000
"""Tags that a worker knows to be used: more than it can serve while they are valid."""

OPEN_PATHS: Final = ("/health", "/ready", "/metrics", "/v1/models")
OPERATORS_PATHS: Final = ("/flush_cache", "/v1/cache")
_IDS: Final = ("session", "parent")


@dataclass(frozen=True, slots=True)
class Grant:
    """What a request may do, and whom it speaks for: what it says itself, unless a router says it in a tag."""

    tag: Tag | None = None
    operator: bool = False

    def identity(self, headers: RequestHeaders, fields: Fields) -> Identity:
        """Errors: as `read_identity`; of a tag nothing can be wrong any more."""
        return routed_identity(self.tag) if self.tag else read_identity(headers, fields)

    @property
    def request_id(self) -> str:
        """What a router's client calls the request, whichever attempt of the router's this is; "" without a router."""
        return self.tag.request_id.partition(".")[0] if self.tag else ""

    @property
    def may_hint(self) -> bool:
        """Whether `kv_hints` are read: where there is no router, and for tenants that routers let."""
        return not self.tag or self.tag.hints.kv_hints

    @property
    def hands_over(self) -> bool:
        """Whether a router wants the prompt computed for another worker, and no answer to it."""
        return bool(self.tag and self.tag.hints.prefill)

    def session(self, text: str, param: str) -> SessionId:
        """What the worker calls the session that a request names. Operators name the tenant too.

        Errors  CacheError(BAD_SESSION_ID)
        """
        if self.operator:
            return checked_id(text, MAX_SCOPED_BYTES)
        named = named_id(text, param)
        return scoped(self.tag.tenant, named) if self.tag else named

    def shows(self, session: SessionId) -> bool:
        """Whether a session that the worker has may be seen."""
        return not self.tag or unscoped(session)[0] == self.tag.tenant

    def own(self, session: str) -> str:
        """What whoever asks calls the session: a tenant knows nothing of tenants."""
        return unscoped(SessionId(session))[1] if self.tag else session

    def in_own_name(self, admitted: Admitted) -> Admitted:
        """What the engine says, in the words of whoever asked."""
        if not (self.tag and admitted.session):
            return admitted
        return replace(admitted, session=SessionId(self.own(admitted.session)))

    def in_own_words(self, error: CacheError) -> CacheError:
        """A refusal, in the words of whoever asked."""
        if not self.tag:
            return error
        named: dict[str, object] = {
            name: self.own(str(error.facts[name])) for name in _IDS if name in error.facts
        }
        return CacheError(error.kind, error.message, **{**error.facts, **named})


class Gate(Protocol):
    """Lets requests in. `guarded`: there is a router, which alone opens and closes sessions."""

    guarded: bool

    def admit(self, headers: RequestHeaders) -> Grant:
        """For a request that generates. Errors: CacheError(UNAUTHORIZED)."""

    def manage(self, headers: RequestHeaders, path: str) -> Grant:
        """For any other call. Errors: CacheError(UNAUTHORIZED)."""


class OpenGate:
    """A worker without a secret: everybody is let in and says who they are."""

    guarded = False

    def admit(self, headers: RequestHeaders) -> Grant:
        return EVERYBODY

    def manage(self, headers: RequestHeaders, path: str) -> Grant:
        return EVERYBODY


EVERYBODY: Final = Grant()
OPEN_GATE: Final = OpenGate()


class TagGate:
    """Lets in what a router has signed for this worker, once; and operators to what is not for generating."""

    guarded = True

    def __init__(
        self,
        signer: TagSigner,
        worker: str,
        now_ms: Callable[[], int],
        incarnation: str = "",
        url: str = "",
    ) -> None:
        """`incarnation`: this start of the worker; "" for one that never starts anew. `url`: where routers reach it."""
        self._signer = signer
        self._worker = worker
        self._bearer = signer.bearer(worker, url).encode()
        self._incarnation = incarnation
        self._now_ms = now_ms
        self._used = UsedTags(REMEMBERED)

    def admit(self, headers: RequestHeaders) -> Grant:
        text = headers.text(TAG)
        if not text:
            raise _refused("this worker takes requests from its routers only; send them to a router")
        now_ms = self._now_ms()
        tag = self._signer.read(text, self._worker, now_ms)
        if self._incarnation and tag.incarnation != self._incarnation:
            raise CacheError(
                Kind.NO_WORKER,
                "this request was meant for the worker as it was before its last start; try again",
            )
        self._used.take(tag, now_ms)
        return Grant(tag)

    def manage(self, headers: RequestHeaders, path: str) -> Grant:
        if _below(path, OPEN_PATHS):
            return EVERYBODY
        scheme, _, token = headers.text("authorization").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(token.encode(), self._bearer):
            return Grant(operator=True)
        if headers.has(TAG) and not _below(path, OPERATORS_PATHS):
            return self.admit(headers)
        raise _refused("this needs the operator's token for this worker and its address, or goes to a router")


class UsedTags:
    """Request ids of tags that were used, each for as long as it is valid; at most `limit` of them.

    When there are more, those issued before the oldest of them are not believed any more.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._issued_ms: OrderedDict[str, int] = OrderedDict()
        self._through_ms = 0

    def __len__(self) -> int:
        return len(self._issued_ms)

    def take(self, tag: Tag, now_ms: int) -> None:
        """Use a tag. Errors: CacheError(UNAUTHORIZED) for one that was, or may have been, used before."""
        if tag.request_id in self._issued_ms:
            raise _refused("the tag of this request was used before: it is a replay")
        if tag.issued_ms <= self._through_ms:
            raise _refused(
                "the tag of this request is older than what this busy worker remembers; send it again"
            )
        self._drop_old(now_ms)
        self._issued_ms[tag.request_id] = tag.issued_ms

    def _drop_old(self, now_ms: int) -> None:
        while self._issued_ms:
            request_id, issued_ms = next(iter(self._issued_ms.items()))
            valid = now_ms - issued_ms <= TAG_VALID_S * 1000
            if valid and len(self._issued_ms) < self._limit:
                return
            del self._issued_ms[request_id]
            if valid:
                self._through_ms = max(self._through_ms, issued_ms)


class Guard:
    """Stands before all routes but the generating ones, which ask the gate themselves and answer in their shape."""

    def __init__(self, app: ASGIApp, gate: Gate, own: frozenset[str]) -> None:
        self._app = app
        self._gate = gate
        self._own = own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not (scope["path"] in self._own and scope["method"] == "POST"):
            try:
                grant = self._gate.manage(RequestHeaders(scope["headers"]), scope["path"])
            except CacheError as error:
                status, said = error_answer(error)
                await json_response(status, said, error_headers(error))(scope, receive, send)
                return
            scope.setdefault("state", {})["grant"] = grant
        await self._app(scope, receive, send)


def granted(scope: Scope) -> Grant:
    """What the guard let a request do."""
    grant = scope.get("state", {}).get("grant", EVERYBODY)
    assert isinstance(grant, Grant)
    return grant


def _below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(root + "/") for root in roots)


def _refused(said: str) -> CacheError:
    return CacheError(Kind.UNAUTHORIZED, said)

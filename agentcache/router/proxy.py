"""The paths that pass through: a raw ASGI application that watches its client, and tells the log one line."""

import asyncio
from http import HTTPStatus
from typing import Final

import structlog
from starlette.types import Receive, Scope, Send

from agentcache import wire
from agentcache.errors import CacheError
from agentcache.router.context import Router
from agentcache.router.forwarding import header_value
from agentcache.router.identity import Identity, identify
from agentcache.router.log_line import tell
from agentcache.router.metrics import Facts, Times
from agentcache.router.passing import Passing
from agentcache.router.relay import Relay
from agentcache.router.request import Request
from agentcache.router.retaining import wishes
from agentcache.router.routes import PassedRoute, fault_body
from agentcache.router.standing import Standing
from agentcache.router.tenants import Tenant
from agentcache.web.body import ClientGoneError, parse_object, read_body, unless_gone
from agentcache.web.headers import RawHeaders, RequestHeaders
from agentcache.web.reply import REQUEST_ID
from agentcache.web.retention import NOTHING_ASKED
from agentcache.web.status import HTTP_STATUS, ErrorShape, error_headers, shaped_answer

CLIENT_CLOSED: Final = 499
"""The status in logs and metrics of a request whose client left; nobody sees it as an answer."""


class ProxyEndpoint:
    """POST of one path that is passed on. A client that leaves ends the work at the worker."""

    def __init__(self, router: Router, route: PassedRoute) -> None:
        self._router = router
        self._route = route
        self._wishes = wishes(router.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        relay = Relay(send)
        times = Times(self._router.clock.now_ns())
        facts = Facts(self._route.path, times, request_id=self._router.new_id())
        self._router.active.begin()
        try:
            self._router.require_open()
            headers: RawHeaders = list(scope["headers"])
            read = RequestHeaders(headers)
            tenant = self._router.tenants.authenticate(read)
            facts.tenant = tenant.name
            body = await read_body(scope, receive, self._router.settings.body_limit_bytes, "router")
            request = self._request(facts, tenant, read, headers, body, scope["query_string"])
            await unless_gone(receive, self._serve(request, relay, facts))
            facts.reason = "complete"
        except ClientGoneError:
            facts.reason = "complete" if relay.complete else "client_gone"
            if not relay.complete:
                facts.status = CLIENT_CLOSED
        except CacheError as error:
            await self._fail(error, relay, facts)
        except Exception:  # whoever runs this application logs it
            if not relay.status:
                said = fault_body(self._route.path, facts.request_id)
                told = (REQUEST_ID.encode(), facts.request_id.encode())
                await relay.whole(HTTPStatus.INTERNAL_SERVER_ERROR, said, [told])
            raise
        finally:
            self._router.active.end()
            self._tell(facts)

    def _request(
        self,
        facts: Facts,
        tenant: Tenant,
        read: RequestHeaders,
        headers: RawHeaders,
        body: bytes,
        query: bytes,
    ) -> Request:
        """Everything that can be refused without asking anybody."""
        fields = parse_object(body)
        self._router.tracing.asked(fields.values)
        identity, retention = Identity(), NOTHING_ASKED
        if self._route.turn:
            identity, retention = self._wishes.read(identify(read, fields), fields, body, tenant)
        facts.session, facts.source = identity.session, identity.source
        return Request(
            route=self._route,
            request_id=facts.request_id,
            tenant=tenant,
            identity=identity,
            salt=self._router.signer.derive("salt", tenant.name, fields.text("cache_salt")),
            fields=fields,
            body=body,
            headers=headers,
            query=query,
            pinned=read.text(wire.WORKER),
            retention=retention,
        )

    async def _serve(self, request: Request, relay: Relay, facts: Facts) -> None:
        only = "" if request.pinned else self._only_worker()
        standing = await self._router.standings.enter(
            request.request_id, request.tenant, request.identity, only
        )
        passing = Passing(self._router, request, standing, relay, facts)
        left = False
        try:
            await passing.run()
        except asyncio.CancelledError:
            left = True
            raise
        finally:
            last = request.identity.final and (_has_served(relay.status) or (left and not relay.status))
            if last and passing.standing.referenced:
                self._router.endings.begin(self._closed(passing.standing))

    def _only_worker(self) -> str:
        """The single worker that new work can go to: the store may give it the session at once."""
        answering = [view.id for view in self._router.fleet.views() if view.answers]
        return answering[0] if len(answering) == 1 else ""

    async def _closed(self, standing: Standing) -> None:
        """After the last request of a session, as its client said."""
        try:
            await self._router.closer.close(standing.ref, standing.tagged.generation)
        except CacheError as error:
            structlog.get_logger().warning("not closed", session=standing.ref.session, why=error.message)

    async def _fail(self, error: CacheError, relay: Relay, facts: Facts) -> None:
        """Say what went wrong; an answer that has begun breaks off instead."""
        facts.reason, facts.why = str(error.kind), facts.why or error.message
        if relay.status:
            facts.reason = "broke_off"
            return
        facts.status = HTTP_STATUS[error.kind]
        await answer_error(relay, error, self._route.shape, facts.request_id)

    def _tell(self, facts: Facts) -> None:
        facts.times.ended_ns = self._router.clock.now_ns()
        facts.reason = facts.reason or "fault"
        self._router.metrics.count_passed(facts)
        tell(facts, "POST")
        self._router.tracing.ended(facts)


def _has_served(status: int) -> bool:
    """Whether an answer with this status (0: none) does what was asked, so that nobody sends the request again."""
    return HTTPStatus.OK <= status < HTTPStatus.BAD_REQUEST


async def answer_error(relay: Relay, error: CacheError, shape: ErrorShape, request_id: str) -> None:
    """An error as the route's clients read it, with the headers that say how to go on."""
    told = {REQUEST_ID: request_id, **error_headers(error)}
    if "session" in error.facts:
        told[wire.SESSION] = str(error.facts["session"])
    headers = [(name.encode(), header_value(value)) for name, value in told.items()]
    await relay.whole(*shaped_answer(shape, error, request_id), headers)

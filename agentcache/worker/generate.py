"""The generating endpoints: a raw ASGI application that watches its client and tells the log one line."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from starlette.types import Receive, Scope, Send

from agentcache.engine.api import Admitted, GenerateRequest
from agentcache.engine.capability import ReuseClass
from agentcache.errors import CacheError
from agentcache.web.body import ClientGoneError, parse_object, read_body, unless_gone
from agentcache.web.fields import Fields
from agentcache.web.headers import RawHeaders, RequestHeaders
from agentcache.web.reply import Json, Reply, StreamEvent
from agentcache.web.retention import NOTHING_ASKED, Retention, Verdict, header_text, read_retention
from agentcache.web.status import HTTP_STATUS, ErrorAnswer, anthropic_answer, error_answer, responses_answer
from agentcache.wire import RETENTION, REUSE
from agentcache.worker.answers import ChatShape, Head, Shape, TextShape, extension
from agentcache.worker.context import Worker
from agentcache.worker.handing_over import PREFILL_SHAPE, handed_over
from agentcache.worker.headers import Identity, answer_headers, why_not_deeper
from agentcache.worker.log_line import tell
from agentcache.worker.messages import chat_of_messages
from agentcache.worker.messages_shape import MessagesShape, messages_shape
from agentcache.worker.prompts import Prompted, chat_prompt, read_prompt, text_prompt
from agentcache.worker.reading import Outcome, Piece, Reading, read_turn
from agentcache.worker.responses import chat_of_response
from agentcache.worker.responses_shape import ResponsesShape
from agentcache.worker.retaining import verdicts, verdicts_json, wishing
from agentcache.worker.stops import StopStrings
from agentcache.worker.tagged import Grant
from agentcache.worker.tally import Tally
from agentcache.worker.tools import PlainText, ToolCallParser
from agentcache.worker.tracing import NO_TRACING, Tracing

CLIENT_CLOSED = 499
"""The status in logs and metrics of a request whose client left; nobody sees it as an answer."""

TurnItems = AsyncGenerator[Admitted | Piece | Outcome, None]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request ready for the engine."""

    request: GenerateRequest
    identity: Identity
    prompted: Prompted
    shape: Shape
    retention: Retention = NOTHING_ASKED

    def for_another(self) -> "Asked":
        """The prompt alone, in one piece, whatever the request wants of its answer."""
        options = replace(self.prompted.options, stream=False, stops=())
        prompted = replace(self.prompted, options=options, parse_calls=False, one_call=False)
        return replace(self, request=handed_over(self.request), prompted=prompted, shape=PREFILL_SHAPE)


@dataclass(frozen=True, slots=True)
class Served:
    """A request that the engine has begun; `why` says in a few words why no more of it came from the cache.

    `kept` is what became of its wishes for how long its prompt is kept.
    """

    asked: Asked
    admitted: Admitted
    why: str
    kept: tuple[Verdict, ...] = ()

    def headers(self) -> RawHeaders:
        request = self.asked.request
        said = answer_headers(
            self.admitted, self.asked.identity, request.request_id, self.why, len(request.tokens)
        )
        return [*said, (RETENTION.encode(), header_text(self.kept).encode())] if self.kept else said

    def extension(self, outcome: Outcome) -> Json:
        said = extension(self.admitted, outcome, self.why)
        return {**said, "retention": verdicts_json(self.kept)} if self.kept else said

    def endings(self, outcome: Outcome) -> list[StreamEvent]:
        include_usage = self.asked.prompted.options.include_usage
        return self.asked.shape.endings(outcome, self.extension(outcome), include_usage)


NewId = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Api:
    """What differs between the generating APIs: how a request is read, and how answers and errors are said."""

    route: str
    prompt: Callable[[Worker, Fields], Prompted]
    prefix: str
    shaped: Callable[[Head, NewId, Fields], Shape]
    translate: Callable[[Fields], Fields] = lambda fields: fields
    error: ErrorAnswer = error_answer

    def shape(self, worker: Worker, answer_id: str, token_ids: bool, fields: Fields) -> Shape:
        """`fields` are the request's own, as they came."""
        head = Head(f"{self.prefix}{answer_id}", worker.info.model, int(worker.now_s()), token_ids)
        return self.shaped(head, worker.new_id, fields)


CHAT = Api(
    "/v1/chat/completions",
    chat_prompt,
    f"{ChatShape.kind}-",
    lambda head, new_id, _: ChatShape(head, lambda: f"call_{new_id()[:24]}"),
)
TEXT = Api("/v1/completions", text_prompt, f"{TextShape.kind}-", lambda head, *_: TextShape(head))
MESSAGES = Api(
    "/v1/messages",
    chat_prompt,
    f"{MessagesShape.kind}_",
    lambda head, new_id, fields: messages_shape(head, lambda: f"toolu_{new_id()[:24]}", fields),
    chat_of_messages,
    anthropic_answer,
)
RESPONSES = Api(
    "/v1/responses",
    chat_prompt,
    f"{ResponsesShape.kind}_",
    ResponsesShape,
    chat_of_response,
    responses_answer,
)
APIS = (CHAT, TEXT, MESSAGES, RESPONSES)
GENERATING = frozenset(api.route for api in APIS)


class GenerateEndpoint:
    """POST of one of the generating APIs. A client that leaves, in a stream or not, aborts its turn in the engine."""

    def __init__(self, worker: Worker, api: Api, tracing: Tracing = NO_TRACING) -> None:
        self._worker = worker
        self._api = api
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = Reply(send, self._api.error, self._worker.new_id())
        tally = Tally(self._worker.clock.now_ns())
        try:
            self._worker.require_open()
            body = await read_body(scope, receive, self._worker.body_limit_bytes)
            await unless_gone(receive, self._serve(RequestHeaders(scope["headers"]), body, reply, tally))
        except ClientGoneError:
            if reply.complete:
                return  # after the answer every client leaves
            tally.status, tally.reason = CLIENT_CLOSED, "client_gone"
        except CacheError as error:
            tally.status, tally.reason = HTTP_STATUS[error.kind], str(error.kind)
            await reply.fail(error)
        finally:
            self._tell(tally, reply.request_id)

    def _tell(self, tally: Tally, request_id: str) -> None:
        now_ns, route = self._worker.clock.now_ns(), self._api.route
        tell(self._worker, tally.facts(route, request_id, now_ns))
        self._tracing.ended(route, self._worker.info.model, tally, now_ns)

    async def _serve(self, headers: RequestHeaders, body: bytes, reply: Reply, tally: Tally) -> None:
        own_id, granted = reply.request_id, self._worker.gate.admit(headers)
        reply.request_id = granted.request_id or own_id
        try:
            asked = await self._ask(own_id, granted, headers, parse_object(body))
            await self._answer(asked.for_another() if granted.hands_over else asked, granted, reply, tally)
        except CacheError as error:
            raise granted.in_own_words(error) from None

    async def _answer(self, asked: Asked, granted: Grant, reply: Reply, tally: Tally) -> None:
        tally.request = asked.request
        reading = _reading(self._worker, asked.prompted)
        async with aclosing(read_turn(self._worker.thread, asked.request, reading)) as turn:
            admitted = await anext(turn)
            assert isinstance(admitted, Admitted)
            tally.admitted, tally.why = admitted, self._why(asked, admitted)
            grid = self._worker.info.grid_tokens
            kept = verdicts(asked.retention, asked.identity, admitted, asked.prompted, grid)
            served = Served(asked, granted.in_own_name(admitted), tally.why, kept)
            answer = self._stream if asked.prompted.options.stream else self._whole
            await answer(served, turn, reply, tally)

    async def _ask(self, request_id: str, granted: Grant, headers: RequestHeaders, fields: Fields) -> Asked:
        """Everything that can be refused without the engine, then the request for it."""
        named = granted.identity(headers, fields)
        translated, prompted, retention = await asyncio.to_thread(self._read, fields, granted.may_hint)
        identity = wishing(named, retention, self._worker.leases)
        self._worker.unknown.report(translated)
        options = prompted.options
        request = GenerateRequest(
            request_id=request_id,
            tokens=prompted.tokens,
            max_tokens=_max_tokens(self._worker, prompted),
            sampling=options.sampling,
            stop_tokens=() if options.ignore_eos else self._worker.tokenizer.stop_tokens,
            session=identity.tag,
            tenant_salt=identity.salt,
            user_end_tokens=prompted.user_end_tokens,
            reuse=options.reuse and headers.flag(REUSE, default=True),
            priority=options.priority,
            digest_logits=options.digest,
            output=prompted.output,
            marks=tuple(sorted({end for _, end in prompted.marks if end})),
        )
        shape = self._api.shape(self._worker, request_id, options.token_ids, fields)
        return Asked(request, identity, prompted, shape, retention)

    def _read(self, fields: Fields, hints_allowed: bool) -> tuple[Fields, Prompted, Retention]:
        """Off the event loop: a long history takes a while."""
        translated = self._api.translate(fields)
        retention = read_retention(fields, hints_allowed)
        return translated, read_prompt(self._api.prompt, self._worker, translated), retention

    async def _stream(self, served: Served, turn: TurnItems, reply: Reply, tally: Tally) -> None:
        shape = served.asked.shape
        await reply.open_stream(served.headers())
        await reply.events(shape.opening(served.admitted, len(served.asked.request.tokens)))
        async for item in turn:
            if isinstance(item, Piece):
                self._sent(tally, item)
                await reply.events(shape.chunks(item))
            elif isinstance(item, Outcome):
                tally.ended(item)
                await reply.events(served.endings(item))
        await reply.end_stream(shape.tail)

    async def _whole(self, served: Served, turn: TurnItems, reply: Reply, tally: Tally) -> None:
        pieces: list[Piece] = []
        async for item in turn:
            if isinstance(item, Piece):
                self._sent(tally, item)
                pieces.append(item)
            elif isinstance(item, Outcome):
                tally.ended(item)
                answer = served.asked.shape.whole(pieces, item, served.extension(item))
                await reply.whole(200, answer, served.headers())

    def _why(self, asked: Asked, admitted: Admitted) -> str:
        if self._worker.info.reuse == ReuseClass.NOT_REUSABLE:
            return "model not reusable"
        return why_not_deeper(admitted) if asked.request.reuse else "reuse off"

    def _sent(self, tally: Tally, piece: Piece) -> None:
        tally.first_ns = tally.first_ns or self._worker.clock.now_ns()
        tally.completion_tokens += len(piece.tokens)


def _max_tokens(worker: Worker, prompted: Prompted) -> int:
    """What to generate at most; an answer that the request says is said to its end unless the request limits it."""
    asked = prompted.options.max_tokens
    if prompted.output is not None:
        asked = asked or len(prompted.output) + 1
    return worker.max_tokens(asked, len(prompted.tokens))


def _reading(worker: Worker, prompted: Prompted) -> Reading:
    parser = ToolCallParser() if prompted.parse_calls else PlainText()
    stops = StopStrings(prompted.options.stops)
    return Reading(worker.tokenizer.detokenizer(), stops, parser, prompted.one_call)

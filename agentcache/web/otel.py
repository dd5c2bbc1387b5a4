"""Spans with OpenTelemetry's SDK: the only file that imports it, found by name when spans are asked for."""

import importlib.metadata
import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

import structlog
from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from agentcache.clock import Clock
from agentcache.errors import CacheError, Kind
from agentcache.web.headers import RawHeaders
from agentcache.web.spans import Attributes, Span

CLOSE_S: Final = 2.0
"""Seconds that the end of a program waits for its last spans to leave."""
LIBRARY: Final = "opentelemetry"
_W3C: Final = TraceContextTextMapPropagator()
_CARRIED: Final = frozenset({b"traceparent", b"tracestate"})
_REQUEST: Final = context.create_key("agentcache-request")


def open_otel(service: str, clock: Clock, now_ns: Callable[[], int]) -> "OtelTracer":
    """A tracer whose spans leave in batches, from a thread of their own. Errors: BAD_CONFIG."""
    try:
        exporter = TellingExporter(OTLPSpanExporter())
    except Exception as error:
        raise CacheError(Kind.BAD_CONFIG, f"the OTLP exporter does not start: {error}") from None
    logger = logging.getLogger(LIBRARY)
    logger.handlers, logger.propagate = [exporter.heard], False
    provider = TracerProvider(resource=_resource(service), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OtelTracer(provider, clock, now_ns)


def _resource(service: str) -> Resource:
    """Who sends the spans: as the environment says, and what it leaves open."""
    ours = Resource.create({SERVICE_NAME: service, SERVICE_INSTANCE_ID: uuid.uuid4().hex})
    return ours.merge(OTELResourceDetector().detect())


class OtelSpan:
    """A span that is recorded, unless its trace is not sampled. `zero_ns`: Unix time at the zero of the clock."""

    def __init__(self, span: trace.Span, zero_ns: int = 0) -> None:
        self._span = span
        self.zero_ns = zero_ns

    def tell(self, attributes: Attributes) -> None:
        for name, value in attributes.items():
            self._span.set_attribute(name, value)

    def fail(self, kind: str) -> None:
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR, kind))


NO_SPAN: Final = OtelSpan(trace.INVALID_SPAN)


class OtelTracer:
    """Spans of one provider. `clock` is that of the times in `past`, `now_ns` Unix time; `close_s`: how long the last
    of them may take to leave."""

    def __init__(
        self, provider: TracerProvider, clock: Clock, now_ns: Callable[[], int], close_s: float = CLOSE_S
    ) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("agentcache", importlib.metadata.version("agentcache"))
        self._clock = clock
        self._now_ns = now_ns
        self._close_s = close_s

    @property
    def request(self) -> OtelSpan:
        found = context.get_value(_REQUEST)
        return found if isinstance(found, OtelSpan) else NO_SPAN

    @contextmanager
    def serving(self, name: str, headers: RawHeaders) -> Iterator[Span]:
        now_ns = self._now_ns()
        began = self._tracer.start_span(name, _parent(headers), SpanKind.SERVER, start_time=now_ns)
        told = OtelSpan(began, now_ns - self._clock.now_ns())
        here = context.set_value(_REQUEST, told, trace.set_span_in_context(began))
        with self._current(here, began, told):
            yield told

    def part(self, name: str) -> AbstractContextManager[Span]:
        return self._inside(name, SpanKind.INTERNAL)

    def call(self, name: str) -> AbstractContextManager[Span]:
        return self._inside(name, SpanKind.CLIENT)

    @contextmanager
    def _inside(self, name: str, kind: SpanKind) -> Iterator[Span]:
        """Nothing is recorded outside a request, after its end, and where its trace is not sampled."""
        if not trace.get_current_span().is_recording():
            yield NO_SPAN
            return
        began = self._tracer.start_span(name, kind=kind, start_time=self._now_ns())
        told = OtelSpan(began)
        with self._current(trace.set_span_in_context(began), began, told):
            yield told

    @contextmanager
    def _current(self, here: context.Context, span: trace.Span, told: Span) -> Iterator[None]:
        token = context.attach(here)
        try:
            yield
        except CacheError as error:
            told.fail(str(error.kind))
            raise
        except Exception as error:
            told.fail(type(error).__name__)
            raise
        finally:
            context.detach(token)
            span.end(self._now_ns())

    def past(self, name: str, began_ns: int, ended_ns: int, attributes: Attributes) -> None:
        if not trace.get_current_span().is_recording():
            return
        zero_ns = self.request.zero_ns
        span = self._tracer.start_span(name, start_time=zero_ns + began_ns)
        OtelSpan(span).tell(attributes)
        span.end(zero_ns + max(began_ns, ended_ns))

    def carried(self, headers: RawHeaders) -> RawHeaders:
        told: dict[str, str] = {}
        _W3C.inject(told)
        if not told:
            return headers
        ours = [(name.encode(), value.encode()) for name, value in told.items()]
        return [*(header for header in headers if header[0].lower() not in _CARRIED), *ours]

    def close(self) -> None:
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(self._close_s)


def _parent(headers: RawHeaders) -> context.Context:
    """The trace that a client's headers name; a new one for a `traceparent` that is none, or is there twice."""
    told: dict[str, list[str]] = {}
    for name, value in headers:
        if name.lower() in _CARRIED:
            told.setdefault(name.lower().decode(), []).append(value.decode("latin-1"))
    if len(told.get("traceparent", ())) != 1:
        return context.Context()
    return _W3C.extract(told, context.Context())


class TellingExporter(SpanExporter):
    """Another exporter, whose failures are one line in the log until it works again."""

    def __init__(self, exporter: SpanExporter) -> None:
        self.heard = Heard()
        self._exporter = exporter
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exported(spans)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not self._failing:
            structlog.get_logger().warning("spans_lost", spans=len(spans), why=self.heard.last)
        if self._failing and not failed:
            structlog.get_logger().info("spans_leave_again")
        self._failing = failed
        return result

    def _exported(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            return self._exporter.export(spans)
        except Exception as error:
            self.heard.last = f"{type(error).__name__}: {error}"
            return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self._exporter.shutdown()


class Heard(logging.Handler):
    """Keeps the last thing that the library complains of, in place of a line for each."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = "the exporter does not say why"

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()

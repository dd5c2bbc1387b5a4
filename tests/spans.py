"""Spans in memory, as OpenTelemetry's SDK made them."""

import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Sampler
from opentelemetry.trace import StatusCode

from agentcache.clock import Clock, SystemClock
from agentcache.web.otel import OtelTracer

TRACE, CLIENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{CLIENT}-01"
UNIX_NS = 1_700_000_000_000_000_000


class Spans:
    """A tracer, and what it has told; its Unix time is `UNIX_NS` after the clock's."""

    def __init__(self, clock: Clock | None = None, sampler: Sampler = DEFAULT_ON) -> None:
        clock = clock or SystemClock()
        self._memory = InMemorySpanExporter()
        provider = TracerProvider(sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._memory))
        self.tracer = OtelTracer(provider, clock, lambda: UNIX_NS + clock.now_ns())

    @property
    def all(self) -> list[ReadableSpan]:
        """In order of their ends."""
        return list(self._memory.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    @property
    def text(self) -> str:
        """Everything that leaves the process."""
        return "\n".join(span.to_json() for span in self.all)


def ids(span: ReadableSpan) -> tuple[str, str, str]:
    """Trace, parent ("" for none) and own id."""
    assert span.context
    parent = f"{span.parent.span_id:016x}" if span.parent else ""
    return f"{span.context.trace_id:032x}", parent, f"{span.context.span_id:016x}"


def said(span: ReadableSpan) -> Mapping[str, object]:
    """Its attributes, as JSON has them."""
    found: Mapping[str, object] = json.loads(span.to_json())["attributes"]
    return found


def failed(span: ReadableSpan) -> str:
    """The kind of its failure; "" for one that did not fail."""
    return (span.status.description or "?") if span.status.status_code is StatusCode.ERROR else ""


def lasted(span: ReadableSpan) -> tuple[int, int]:
    """From when to when, in nanoseconds of the clock."""
    assert span.start_time
    assert span.end_time
    return span.start_time - UNIX_NS, span.end_time - UNIX_NS


@contextmanager
def collecting(heard: list[tuple[str, bytes]]) -> Iterator[str]:
    """A collector on a free port; `heard` are paths and bodies."""

    class Takes(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Not told."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Takes)
    running = threading.Thread(target=server.serve_forever)
    running.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        running.join()
        server.server_close()

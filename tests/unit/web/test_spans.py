"""Spans: whose trace they are in, what they never say, and a collector that is not there."""

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from structlog.testing import capture_logs

from agentcache.clock import ManualClock, SystemClock
from agentcache.errors import CacheError, Kind
from agentcache.web.otel import LIBRARY, OtelTracer, TellingExporter
from agentcache.web.spans import known, need_otel, open_tracer, told_by_client
from tests.patience import PATIENCE_S
from tests.spans import CLIENT, TRACE, TRACEPARENT, Spans, collecting, failed, ids, lasted, said

COMES = [(b"traceparent", TRACEPARENT.encode()), (b"tracestate", b"vendor=1")]


def test_a_request_is_in_the_trace_of_its_client_and_its_parts_inside_it() -> None:
    spans = Spans(ManualClock(1))
    with spans.tracer.serving("POST /v1/completions", COMES):
        with spans.tracer.part("inner") as part:
            part.tell({"n": 1})
        with spans.tracer.call("outer"):
            carried = dict(spans.tracer.carried([*COMES, (b"accept", b"*/*")]))
    inner, outer, request = spans.all
    trace, parent, own = ids(request)
    assert (trace, parent) == (TRACE, CLIENT)
    assert {ids(span)[:2] for span in (inner, outer)} == {(TRACE, own)}
    assert said(inner) == {"n": 1}
    called = f"00-{TRACE}-{ids(outer)[2]}-01".encode()
    assert carried == {b"traceparent": called, b"tracestate": b"vendor=1", b"accept": b"*/*"}
    assert [span.kind.name for span in spans.all] == ["INTERNAL", "CLIENT", "SERVER"]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"traceparent", b"rubbish")],
        [(b"traceparent", b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01")],
        [(b"traceparent", TRACEPARENT.encode()), (b"Traceparent", TRACEPARENT.encode())],
        [(b"traceparent", b"\xff" * 600)],
    ],
)
def test_whoever_names_no_trace_gets_one_of_its_own(headers: list[tuple[bytes, bytes]]) -> None:
    spans = Spans()
    with spans.tracer.serving("x", headers):
        pass
    trace, parent, _ = ids(spans.one("x"))
    assert trace != TRACE
    assert not parent


def test_nothing_is_told_outside_a_request_nor_after_its_end() -> None:
    spans = Spans(ManualClock(1))
    with spans.tracer.part("before"):
        assert spans.tracer.carried(COMES) == COMES
    with spans.tracer.serving("x", []):
        pass
    spans.tracer.past("after", 1, 2, {})
    spans.tracer.request.tell({"late": 1})
    assert [span.name for span in spans.all] == ["x"]


def test_a_trace_that_is_not_sampled_is_not_told_here_nor_further_on() -> None:
    spans = Spans(sampler=ALWAYS_OFF)
    with spans.tracer.serving("x", []), spans.tracer.part("y") as part:
        part.tell({"n": 1})
        (carried,) = spans.tracer.carried([])
        spans.tracer.past("z", 1, 2, {})
    assert int(carried[1][-2:], 16) & 1 == 0
    assert spans.all == []


def test_what_is_over_is_told_in_the_time_of_the_clock() -> None:
    clock = ManualClock(1_000)
    spans = Spans(clock)
    with spans.tracer.serving("x", []):
        clock.advance(500)
        spans.tracer.past("queue", 1_100, 1_300, {"n": 1})
        spans.tracer.past("nothing", 1_300, 1_200, {})
    assert lasted(spans.one("queue")) == (1_100, 1_300)
    assert lasted(spans.one("nothing")) == (1_300, 1_300)
    assert lasted(spans.one("x")) == (1_000, 1_500)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CacheError(Kind.QUEUE_FULL, "the secret words"), "queue_full"),
        (ValueError("the secret words"), "ValueError"),
    ],
)
def test_a_failure_is_told_by_its_kind_and_never_in_its_words(error: Exception, kind: str) -> None:
    spans = Spans()
    with pytest.raises(type(error)), spans.tracer.serving("x", []), spans.tracer.part("y"):
        raise error
    assert [failed(span) for span in spans.all] == [kind, kind]
    assert {said(span)["error.type"] for span in spans.all} == {kind}
    assert "secret" not in spans.text


def test_attributes_say_something_and_not_too_much() -> None:
    assert known({"a": "", "b": [], "c": 0, "d": False}) == {"c": 0, "d": False}
    assert told_by_client("x" * 1000) == "x" * 256
    assert told_by_client(["x"]) == ""


def test_without_the_extra_one_error_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "agentcache.web.otel")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(
        CacheError, match=r"needs the package opentelemetry.*pip install 'agentcache\[otel\]'"
    ) as bad:
        need_otel()
    assert bad.value.kind is Kind.BAD_CONFIG


def test_without_the_switch_nothing_of_it_is_imported() -> None:
    """A server's whole start imports neither our room nor what traces (redis looks for what counts, by itself)."""
    asked = (
        "import sys, agentcache.router.serve, agentcache.worker.serve;"
        "ours = ('agentcache.web.otel', 'opentelemetry.sdk.trace', 'opentelemetry.exporter');"
        "print([m for m in sys.modules if m.startswith(ours)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout.strip() == "[]"


class Collector(SpanExporter):
    """Does as it is told: a result, an error, or (`held`) nothing until it is let go."""

    def __init__(self, *results: SpanExportResult | Exception) -> None:
        self.results = list(results)
        self.held = threading.Event()
        self.asked = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        if not self.results:
            self.held.wait(60)
            return SpanExportResult.FAILURE
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    def shutdown(self) -> None:
        """Nothing is open."""


def test_a_collector_that_fails_is_one_line_until_it_works_again() -> None:
    bad, good = SpanExportResult.FAILURE, SpanExportResult.SUCCESS
    exporter = TellingExporter(Collector(good, bad, OSError("no route"), bad, good, bad))
    with capture_logs() as lines:
        results = [exporter.export([]) for _ in range(6)]
    assert results == [good, bad, bad, bad, good, bad]
    assert [line["event"] for line in lines] == ["spans_lost", "spans_leave_again", "spans_lost"]


def test_a_collector_that_never_answers_holds_up_nobody() -> None:
    """More requests than its queue holds pass; the end of the program waits no longer than it was told to."""
    collector, provider = Collector(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(
        BatchSpanProcessor(collector, max_queue_size=8, max_export_batch_size=4, schedule_delay_millis=1)
    )
    tracer = OtelTracer(provider, SystemClock(), lambda: 1, close_s=0.01)
    logger = logging.getLogger(LIBRARY)
    logger.disabled = True
    try:
        for _ in range(100):
            with tracer.serving("x", []):
                pass
        assert collector.asked.wait(60)
        tracer.close()
        assert not collector.held.is_set()
    finally:
        logger.disabled = False
        collector.held.set()


@pytest.fixture
def _library_as_it_was() -> Iterator[None]:
    logger = logging.getLogger(LIBRARY)
    before = logger.handlers, logger.propagate
    yield
    logger.handlers, logger.propagate = before


@pytest.mark.usefixtures("_library_as_it_was")
def test_spans_leave_where_the_standard_variables_say(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, bytes]] = []
    with collecting(heard) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "my-router")
        tracer = open_tracer("agentcache-router", SystemClock(), lambda: 1)
        assert isinstance(tracer, OtelTracer)
        tracer._close_s = PATIENCE_S
        with tracer.serving("POST /v1/completions", COMES):
            pass
        tracer.close()
    ((path, body),) = heard
    assert path == "/v1/traces"
    assert b"POST /v1/completions" in body
    assert b"my-router" in body
    assert bytes.fromhex(TRACE) in body

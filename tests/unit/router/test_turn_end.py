"""What is read of answers that pass: how turns end, and with which calls; of what is damaged, nothing wrong."""

import json
from collections.abc import Callable, Iterable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcache.engine.api import Admitted
from agentcache.router.routes import PASSED
from agentcache.router.turn_end import (
    CALLS,
    LINE_BYTES,
    NAME_BYTES,
    TOOLS,
    UNKNOWN,
    UNWATCHED,
    WHOLE_BYTES,
    Streamed,
    TurnEnd,
    Whole,
    watch,
)
from agentcache.stats import CachedTokens
from agentcache.types import SessionState
from agentcache.web.fields import Fields
from agentcache.web.reply import StreamEvent, encode
from agentcache.worker.answers import ChatShape, Head, Shape, TextShape
from agentcache.worker.messages_shape import MessagesShape
from agentcache.worker.reading import Outcome, Piece
from agentcache.worker.responses_shape import ResponsesShape
from agentcache.worker.tools import Called, Said
from tests import recorded_answers as recorded

CHAT, TEXT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
SSE, JSON = "text/event-stream; charset=utf-8", "application/json"


def calls(*named: str, ids: Iterable[str] = ()) -> TurnEnd:
    return TurnEnd("tool_calls", named, frozenset(ids))


RECORDED: Final = [
    (CHAT, SSE, recorded.OPENAI_CHAT, calls("get_weather", ids=["call_DdmO9pD3xa9XTPNJ32zg2hcA"])),
    (
        CHAT,
        SSE,
        recorded.VLLM_CHAT,
        calls("read_file", "bash", ids=["chatcmpl-tool-aa01", "chatcmpl-tool-aa02"]),
    ),
    (CHAT, SSE, recorded.SGLANG_CHAT, calls("bash", ids=["call_0f"])),
    (TEXT, SSE, recorded.SPACED_TEXT, TurnEnd("stop")),
    (CHAT, JSON, recorded.OPENAI_CHAT_WHOLE, calls("get_current_weather", ids=["call_abc123"])),
    (CHAT, JSON, recorded.OLD_FUNCTION_WHOLE, calls("get_weather")),
    (CHAT, JSON, recorded.CUSTOM_TOOL_WHOLE, calls("code_exec", ids=["call_1"])),
    (MESSAGES, SSE, recorded.ANTHROPIC, calls("get_weather", ids=["toolu_01T1x1fJ34qAmk2tNTrN7Up6"])),
    (MESSAGES, JSON, recorded.ANTHROPIC_WHOLE, TurnEnd("stop")),
    (RESPONSES, SSE, recorded.RESPONSES, calls("get_weather", ids=["call_unDR"])),
    (RESPONSES, JSON, recorded.RESPONSES_WHOLE, calls("local_shell", ids=["call_9"])),
    (RESPONSES, SSE, recorded.RESPONSES_CUT, TurnEnd("length")),
]


def seen(path: str, kind: str, *chunks: bytes) -> TurnEnd:
    watching = watch(path, kind)
    for chunk in chunks:
        watching.see(chunk)
    return watching.end()


@pytest.mark.parametrize(("path", "kind", "answer", "end"), RECORDED)
def test_recorded_answers_are_understood_however_they_are_cut(
    path: str, kind: str, answer: bytes, end: TurnEnd
) -> None:
    assert seen(path, kind, answer) == end
    assert seen(path, kind, *(answer[at : at + 1] for at in range(len(answer)))) == end
    assert seen(path, kind, *answer.splitlines(keepends=True)) == end
    assert seen(path, kind, answer.replace(b"\n", b"\r\n")) == end
    for at in range(0, len(answer), 7):
        assert seen(path, kind, answer[:at], answer[at:]) == end


# our own worker's answers

HEAD = Head("answer", "tiny", 1, False)
NOTHING = CachedTokens(0, 0, 0)
ADMITTED = Admitted("r", NOTHING, 0, None, None, 1, SessionState.OPEN)
TOLD = Piece((Said('He said "name": "x"'), Called("bash", '{"name": "ls"}')), (1, 2))
SHAPES: dict[str, Callable[[], Shape]] = {
    CHAT: lambda: ChatShape(HEAD, lambda: "call_1"),
    TEXT: lambda: TextShape(HEAD),
    MESSAGES: lambda: MessagesShape(HEAD, lambda: "call_1"),
    RESPONSES: lambda: ResponsesShape(HEAD, lambda: "1", Fields({"tools": [{"name": "other"}]})),
}


def framed(events: Iterable[StreamEvent]) -> Iterable[bytes]:
    for name, value in events:
        yield (f"event: {name}\n".encode() if name else b"") + b"data: " + encode(value) + b"\n\n"


@pytest.mark.parametrize("path", sorted(SHAPES))
@pytest.mark.parametrize("reason", ["tool_calls", "stop", "length"])
def test_our_own_answers_are_understood_streamed_and_whole(path: str, reason: str) -> None:
    piece = TOLD if reason == "tool_calls" else Piece(TOLD.parts[:1], (1,))
    outcome = Outcome(reason, 10, NOTHING, 2)
    shape = SHAPES[path]()
    events = [*shape.opening(ADMITTED, 10), *shape.chunks(piece), *shape.endings(outcome, {}, True)]
    whole = encode(SHAPES[path]().whole([piece], outcome, {}))
    wanted = calls("bash", ids=["call_1"]) if reason == "tool_calls" and path != TEXT else TurnEnd(reason)
    assert seen(path, SSE, *framed(events), shape.tail) == seen(path, JSON, whole) == wanted


# what is damaged, or too much

FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"%s"}]}\n\n'
ENDED = FINISH % b"tool_calls"


def call(name: str, call_id: str = "c") -> bytes:
    called = {"index": 0, "id": call_id, "function": {"name": name, "arguments": ""}}
    said = {"choices": [{"index": 0, "delta": {"tool_calls": [called]}, "finish_reason": None}]}
    return b"data: " + json.dumps(said, separators=(",", ":")).encode() + b"\n\n"


BASH = call("bash")
DOUBT = TurnEnd("tool_calls", (), frozenset({"c"}))


@pytest.mark.parametrize(
    ("chunks", "end"),
    [
        ([], UNKNOWN),
        ([b""], UNKNOWN),
        ([BASH], UNKNOWN),
        ([BASH, ENDED], calls("bash", ids=["c"])),
        ([BASH, FINISH % b"stop"], calls("bash", ids=["c"])),
        ([BASH, FINISH % b"length"], TurnEnd("length", ("bash",), frozenset({"c"}))),
        ([BASH, ENDED, FINISH % b"stop"], UNKNOWN),
        ([BASH, ENDED, ENDED], calls("bash", ids=["c"])),
        ([BASH, b'data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"x', b"\n\n", ENDED], DOUBT),
        ([BASH, b'data: {"name":\xff\xfe}\n\n', ENDED], DOUBT),
        ([BASH, b'data: {"choices":[{"delta":{"tool_calls":"name"}}],"name":1}\n\n', ENDED], DOUBT),
        ([BASH, b'data: {"name":' + b"[" * 50_000 + b"\n\n", ENDED], DOUBT),
        ([BASH, call("\u202e"), ENDED], DOUBT),
        ([BASH, call("é" * NAME_BYTES), ENDED], DOUBT),
        ([BASH, *(call(f"tool {number}") for number in range(TOOLS)), ENDED], DOUBT),
        ([BASH * 1000, ENDED], calls("bash", ids=["c"])),
        ([BASH, ENDED.rstrip()], calls("bash", ids=["c"])),
        ([BASH, ENDED[:-20]], UNKNOWN),
        ([BASH, b"data: " + b"x" * 2 * LINE_BYTES + b"\n" + ENDED], calls("bash", ids=["c"])),
        ([BASH, b'data: {"name":"' + b"x" * LINE_BYTES + b'"}\n' + ENDED], DOUBT),
    ],
)
def test_what_is_damaged_is_left_out_and_makes_the_tools_unknown(chunks: list[bytes], end: TurnEnd) -> None:
    assert seen(CHAT, SSE, *chunks) == end


def test_a_line_of_ten_megabytes_is_never_kept() -> None:
    watching = watch(CHAT, SSE)
    assert isinstance(watching, Streamed)
    for chunk in (BASH, b"data: ", *[b'"name"' * 1000] * 1700):
        watching.see(chunk)
        assert len(watching._held) <= LINE_BYTES
    for chunk in (b"the rest\n", b"\n", ENDED):
        watching.see(chunk)
    assert watching.end() == DOUBT


def test_a_whole_answer_that_is_too_long_is_dropped_and_unknown() -> None:
    watching = watch(CHAT, JSON)
    assert isinstance(watching, Whole)
    watching.see(recorded.OPENAI_CHAT_WHOLE)
    for _ in range(40):
        watching.see(b" " * 2**18)
    assert sum(map(len, watching._chunks)) <= WHOLE_BYTES
    assert watching.end() == UNKNOWN


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"choices":1}', b"[" * 100_000, b"null"])
def test_a_whole_answer_that_is_none_is_unknown(body: bytes) -> None:
    assert [seen(path, JSON, body) for path in SHAPES] == [UNKNOWN] * 4


def test_ids_are_few() -> None:
    many = [call("bash", f"c{number}") for number in range(3 * CALLS)]
    assert len(seen(CHAT, SSE, *many, ENDED).calls) == CALLS
    assert seen(CHAT, SSE, call("bash", "c" * 5000), ENDED) == calls("bash")


@pytest.mark.parametrize(
    ("path", "kind", "encoding"),
    [
        ("/v1/messages/count_tokens", JSON, ""),
        (CHAT, "text/plain", ""),
        (CHAT, "", ""),
        (CHAT, SSE, "gzip"),
        (CHAT, JSON, "br"),
    ],
)
def test_what_cannot_be_read_is_not_watched(path: str, kind: str, encoding: str) -> None:
    watching = watch(path, kind, encoding)
    watching.see(ENDED)
    assert (watching, watching.end()) == (UNWATCHED, UNKNOWN)


def test_every_route_of_a_turn_is_watched() -> None:
    assert {route.path for route in PASSED if route.turn} == set(SHAPES)


@given(
    st.sampled_from(sorted(SHAPES)),
    st.sampled_from([SSE, JSON]),
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from(
                [BASH, ENDED, b"\n", b"data: ", b'"name"', b'finish_reason":"', recorded.ANTHROPIC]
            ),
            st.builds(
                lambda answer, at: answer[at:],
                st.sampled_from([recorded.RESPONSES, recorded.OPENAI_CHAT, recorded.ANTHROPIC_WHOLE]),
                st.integers(0, 900),
            ),
        ),
        max_size=12,
    ),
)
def test_nothing_that_comes_makes_it_fail(path: str, kind: str, chunks: list[bytes]) -> None:
    end = seen(path, kind, *chunks)
    assert end == seen(path, kind, b"".join(chunks))

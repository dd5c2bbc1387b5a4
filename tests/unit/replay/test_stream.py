"""A streamed answer, chunk by chunk, on a clock that moves only when told."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol

from agentcache.clock import ManualClock
from agentcache.replay.outcome import Answer, Refused
from agentcache.replay.stream import StreamedAnswer, events

USAGE = {"prompt_tokens": 20, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 16}}


def delta(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def test_first_token_is_counted_from_sending_to_the_first_text() -> None:
    clock = ManualClock(1000)
    answer = StreamedAnswer(clock)
    clock.advance(5)
    answer.add(delta(role="assistant", content=""))
    clock.advance(7)
    answer.add(delta(content="He"))
    clock.advance(30)
    answer.add(delta(content="llo"))
    answer.add({"choices": [], "usage": USAGE})
    outcome = answer.outcome()
    assert outcome == Answer("Hello", (), "", 20, 16, 2, ttft_ns=12)


def test_token_ids_count_as_a_token_before_their_text_can_be_shown() -> None:
    clock = ManualClock()
    answer = StreamedAnswer(clock)
    clock.advance(3)
    answer.add({"choices": [{"delta": {}, "token_ids": [5]}]})
    clock.advance(4)
    answer.add({"choices": [{"delta": {"content": "é"}, "token_ids": [6, 7]}]})
    answer.add({"choices": [{"delta": {}}], "agentcache": {"first_logits_sha256": "ab"}})
    answer.add({"choices": [], "usage": USAGE, "agentcache": {"state": "open"}})
    outcome = answer.outcome()
    assert isinstance(outcome, Answer)
    assert (outcome.tokens, outcome.first_logits, outcome.ttft_ns) == ((5, 6, 7), "ab", 3)


def test_the_answer_to_a_prompt_of_tokens_has_its_text_in_the_choice_itself() -> None:
    clock = ManualClock()
    answer = StreamedAnswer(clock)
    clock.advance(3)
    for text in ("He", "llo", ""):
        answer.add({"choices": [{"index": 0, "text": text, "finish_reason": None}]})
        clock.advance(4)
    answer.add({"choices": [], "usage": USAGE})
    outcome = answer.outcome()
    assert isinstance(outcome, Answer)
    assert (outcome.text, outcome.ttft_ns) == ("Hello", 3)


def test_an_answer_without_any_token_took_all_its_time() -> None:
    clock = ManualClock()
    answer = StreamedAnswer(clock)
    clock.advance(9)
    answer.add({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 0}})
    outcome = answer.outcome()
    assert isinstance(outcome, Answer)
    assert (outcome.ttft_ns, outcome.cached_tokens) == (9, 0)


def test_an_error_in_the_stream_is_a_refusal() -> None:
    answer = StreamedAnswer(ManualClock())
    answer.add(delta(content="He"))
    answer.add({"error": {"message": "too late", "code": "shutting_down"}})
    assert answer.outcome() == Refused(200, "shutting_down", "too late")


def test_a_stream_without_its_end_is_a_refusal() -> None:
    answer = StreamedAnswer(ManualClock())
    answer.add(delta(content="He"))
    outcome = answer.outcome()
    assert isinstance(outcome, Refused)
    assert (outcome.code, outcome.skipped) == ("cut_off", False)


@pytest.mark.asyncio
async def test_events_are_the_data_lines_up_to_done() -> None:
    lines = [b": ping\n", b"event: x\n", b'data: {"a": 1}\n', b"\n", b'data:{"a": 2}\r\n', b"data: [DONE]\n"]
    assert [event async for event in events(await stream([*lines, b'data: {"a": 3}\n']))] == [
        {"a": 1},
        {"a": 2},
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize("data", [b"{broken", b"[1]", json.dumps("text").encode()])
async def test_data_that_is_no_object_is_an_error_event(data: bytes) -> None:
    (event,) = [event async for event in events(await stream([b"data: " + data + b"\n"]))]
    assert event["error"]["code"] == "bad_stream"


async def stream(lines: list[bytes]) -> aiohttp.StreamReader:
    loop = asyncio.get_running_loop()
    reader = aiohttp.StreamReader(BaseProtocol(loop), 2**16, loop=loop)
    reader.feed_data(b"".join(lines))
    reader.feed_eof()
    return reader

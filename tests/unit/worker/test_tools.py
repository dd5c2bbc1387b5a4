"""Tool calls out of streamed text: any cut of the stream gives the same parts."""

import codecs
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcache.worker.tools import Called, Part, PlainText, Said, ToolCallParser, joined, parse_call

CALL = '<tool_call>\n{"name": "ls", "arguments": {"path": "/ü"}}\n</tool_call>'
BAD_CALLS = (
    "<tool_call>not json</tool_call>",
    '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
    '<tool_call>{"name": "", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "ls", "arguments": [1]}</tool_call>',
    '<tool_call>{"name": "ls", "arguments": {"x": NaN}}</tool_call>',
    "<tool_call></tool_call>",
    '<tool_call>["ls"]</tool_call>',
    "<tool_call>" + "[" * 100_000 + "</tool_call>",
)


def parse(pieces: list[str]) -> list[Part]:
    parser = ToolCallParser()
    parts = [part for piece in pieces for part in parser.push(piece)]
    return joined(parts + parser.flush())


def test_text_before_a_call_is_text_and_the_call_is_parsed() -> None:
    assert parse(["I look.\n", CALL]) == [Said("I look."), Called("ls", '{"path": "/ü"}')]


def test_several_calls_drop_the_space_between_them() -> None:
    call = Called("ls", '{"path": "/ü"}')
    assert parse([CALL + "\n" + CALL + "\n"]) == [call, call]


def test_text_after_a_call_is_kept() -> None:
    assert parse([CALL + "\n\ndone "]) == [Called("ls", '{"path": "/ü"}'), Said("done ")]


@pytest.mark.parametrize("bad", BAD_CALLS)
def test_a_malformed_call_stays_text(bad: str) -> None:
    assert parse([f"a \n{bad} b "]) == [Said(f"a \n{bad} b ")]


def test_a_call_that_is_never_closed_stays_text() -> None:
    assert parse(['x <tool_call>{"name": "ls"']) == [Said('x <tool_call>{"name": "ls"')]


def test_arguments_may_be_text_or_absent() -> None:
    assert parse_call('{"name": "ls", "arguments": "{}"}') == Called("ls", "{}")
    assert parse_call('{"name": "ls"}') == Called("ls", "{}")


def test_text_without_marks_goes_out_at_once() -> None:
    parser = ToolCallParser()
    assert parser.push("hello wor") == [Said("hello wor")]
    assert parser.push("ld <to") == [Said("ld")]
    assert parser.push("p>") == [Said(" <top>")]


def test_plain_text_parses_nothing() -> None:
    parser = PlainText()
    assert parser.push(CALL) == [Said(CALL)]
    assert parser.push("") == []
    assert parser.flush() == []


WORDS = st.lists(
    st.sampled_from([CALL, *BAD_CALLS[:5], " ", "\n", "a", "é€😀", "<tool_", "<", "</tool_call>", "call>"]),
    max_size=8,
).map("".join)


@given(text=WORDS, data=st.data())
def test_any_split_at_any_byte_gives_the_same_parts(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    decoder = codecs.getincrementaldecoder("utf-8")()
    pieces = [decoder.decode(raw[a:b]) for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert parse(pieces) == parse([text])


@given(st.text(alphabet="<tool_call>/ \n{}x", max_size=60))
def test_text_without_a_call_is_returned_unchanged(text: str) -> None:
    assert "".join(part.text for part in parse(list(text)) if isinstance(part, Said)) == text


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3))
def test_arguments_survive_unchanged(arguments: dict[str, object]) -> None:
    inside = json.dumps({"name": "f", "arguments": arguments})
    if "</tool_call>" not in inside:
        [call] = parse(list(f"<tool_call>{inside}</tool_call>"))
        assert isinstance(call, Called)
        assert json.loads(call.arguments) == arguments


@pytest.mark.parametrize("arguments", ['{"path":"a b",  "depth":2}', "{}", '{"arguments": {"x": 1}}'])
def test_arguments_keep_the_spacing_they_were_written_with(arguments: str) -> None:
    assert parse_call('{"name":"f","arguments" : ' + arguments + "}") == Called("f", arguments)

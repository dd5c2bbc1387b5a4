"""Whose results a request brings: those after the last turn of the model, in each API's words."""

from typing import Any

import pytest

from agentcache.router.tool_results import LOOKED_AT, results_in

ASKED = {"role": "user", "content": "hi"}
CALLED: Any = {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]}


def result(name: object) -> Any:
    return {"role": "tool", "tool_call_id": name, "content": "done"}


def block(name: str) -> Any:
    return {"type": "tool_result", "tool_use_id": name, "content": "done"}


CLAUDE = {"role": "user", "content": [block("a"), block("b"), {"type": "text", "text": "go on"}]}
CODEX: Any = [
    ASKED,
    {"type": "reasoning", "id": "r"},
    {"type": "function_call", "call_id": "a"},
    {"type": "function_call", "call_id": "b"},
    {"type": "function_call_output", "call_id": "a", "output": "done"},
    {"type": "custom_tool_call_output", "call_id": "b", "output": "done"},
]


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ({"messages": [ASKED, CALLED, result("a"), result("b")]}, "ab"),
        ({"messages": [CALLED, result("a"), CALLED, result("b"), ASKED]}, "b"),
        ({"messages": [ASKED, {"role": "assistant", "content": [block("no")]}, CLAUDE]}, "ab"),
        ({"input": CODEX}, "ab"),
        ({"input": [*CODEX, {"role": "assistant", "content": "so"}, ASKED]}, ""),
        ({"input": [*CODEX, {"type": "local_shell_call", "call_id": "c"}]}, ""),
        ({"messages": [ASKED, CALLED, result("a"), ASKED, {"role": "assistant"}, ASKED]}, ""),
        ({"messages": [ASKED]}, ""),
        ({"messages": [result(7), {"role": "tool", "tool_call_id": ["x"]}, result("a")]}, "a"),
        ({"messages": [result("b"), "odd", result("a")]}, "a"),
        ({"messages": [{"role": ["x"], "type": {}, "content": {"tool_use_id": "a"}}]}, ""),
        ({"messages": {"role": "tool"}, "input": 5}, ""),
        ({"prompt": [1, 2], "input": "text"}, ""),
        ({}, ""),
    ],
)
def test_the_last_results_are_found(body: dict[str, Any], ids: str) -> None:
    assert results_in(body) == frozenset(ids)


def test_no_more_than_so_many_are_looked_at() -> None:
    many = [result(str(number)) for number in range(4 * LOOKED_AT)]
    assert len(results_in({"messages": many})) == LOOKED_AT
    blocks = {"role": "user", "content": [block(str(number)) for number in range(4 * LOOKED_AT)]}
    assert len(results_in({"messages": [blocks]})) == LOOKED_AT

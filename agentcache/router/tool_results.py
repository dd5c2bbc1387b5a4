"""Which tool calls a request brings the results of: those after the last turn of the model."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

LOOKED_AT: Final = 256
"""Messages or items at the end of a request that are looked at."""


def results_in(values: Mapping[str, object]) -> frozenset[str]:
    """The ids of the calls whose results come last in a request's body, of whichever API; none that is no text.

    Cost  O(what follows the last turn of the model), at most `LOOKED_AT`
    """
    history = values.get("messages") or values.get("input")
    if not isinstance(history, list):
        return frozenset()
    return frozenset(_ids(islice(reversed(history), LOOKED_AT)))


def _ids(backwards: Iterator[object]) -> Iterator[str]:
    for one in backwards:
        if not isinstance(one, dict):
            return
        if one.get("role") == "assistant" or str(one.get("type")).endswith(("_call", "reasoning")):
            return
        for named in (one.get("tool_call_id"), one.get("call_id"), *_blocks(one.get("content"))):
            if isinstance(named, str):
                yield named


def _blocks(content: object) -> Iterator[object]:
    """Results among the blocks of Anthropic's messages."""
    blocks = content if isinstance(content, list) else ()
    return (block.get("tool_use_id") for block in islice(blocks, LOOKED_AT) if isinstance(block, dict))

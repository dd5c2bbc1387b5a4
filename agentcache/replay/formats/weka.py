"""Reader for the traces of Weka's kv-cache-tester, as InferenceX AgentX and aiperf (`weka_trace`) replay them.

One document is one recorded agent: its calls with ids for every 64 tokens instead of text, and its sub-agents, which
become sessions of their own. Ids are equal only inside a document. Tools come first in every prompt and are the same
for everybody with this model and so many tokens of tools, which only their number tells: see `Session.hidden`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentcache.replay.formats.history import Names, elapsed, finish_of, shared
from agentcache.replay.formats.record import Record, record_of
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Link, Origin, Session
from agentcache.waits import WaitKind

_MILLI = 1000
ANSWER_S = 2.9
ANSWER_S_PER_TOKEN = 0.0155
"""What an answer takes where the trace does not say: the line through 17,000 answers of which it does."""


class WekaReader:
    """`{id, block_size, hash_id_scope, tool_tokens, requests: [...]}`, one document an agent and its sub-agents."""

    format = "Weka kv-cache-tester (AgentX)"
    description = "Claude Code sessions as block ids, with times and sub-agents"
    document_is_session = False

    def accepts(self, first: Document) -> bool:
        value = first.value
        return isinstance(value, dict) and {"requests", "block_size", "hash_id_scope"} <= value.keys()

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]:
        for source in files:
            for document in source.documents():
                yield from read_agents(document, source.stem)


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request of an agent; `t` is seconds from where the agent begins."""

    record: Record
    t: float
    api_s: float | None
    stop: str
    end_s: float

    @classmethod
    def of(cls, record: Record) -> "_Asked":
        record.need("t", "in", "hash_ids")
        t, api_s = record.needed("t"), record.seconds("api_time")
        takes = ANSWER_S + ANSWER_S_PER_TOKEN * record.count("out") if api_s is None else api_s
        return cls(record, t, api_s, record.text("stop"), t + takes)


def read_agents(document: Document, stem: str) -> Iterator[Session]:
    """The agent of a document, then its sub-agents.

    Errors  CacheError(BAD_TRACE) naming place and field: wrong types, calls out of order, blocks missing
    """
    whole = record_of(document.value, document)
    name = whole.name("id") or f"{stem}-{document.line}"
    requests = whole.children("requests")
    asked = _in_order([record for record in requests if record.text("type") != "subagent"])
    yield _session(whole, name, asked, Origin(), Gap(), whole)
    names = Names()
    for record in requests:
        if record.text("type") == "subagent":
            child = names.new(f"{name}/{record.name('agent_id')}")
            place, gap = _spawned(record, name, asked)
            yield _session(record, child, _in_order(record.children("requests")), place, gap, whole)


def _in_order(records: Iterable[Record]) -> list[_Asked]:
    asked: list[_Asked] = []
    for record in records:
        asked.append(_Asked.of(record))
        if len(asked) > 1 and asked[-1].t < asked[-2].t:
            raise record.early("t")
    return asked


def _spawned(record: Record, parent: str, asked: Sequence[_Asked]) -> tuple[Origin, Gap]:
    """Where a sub-agent begins: `t` is its end where it is told as completed, with how long it took."""
    begins_s = record.needed("t")
    if record.text("status") == "completed":
        begins_s -= record.seconds("duration_ms", _MILLI) or 0.0
    ended = [one.end_s for one in asked if one.end_s <= begins_s]
    gap = Gap(WaitKind.UNKNOWN, elapsed(ended[-1] if ended else 0.0, begins_s))
    return Origin(parent, Link.SPAWN, len(ended)), gap


def _session(
    agent: Record, name: str, asked: Sequence[_Asked], origin: Origin, first: Gap, whole: Record
) -> Session:
    whole.need("block_size")
    block_tokens = whole.count("block_size")
    if not block_tokens:
        raise whole.wrong("block_size", "not at least 1 token")
    tools = agent.count("tool_tokens")
    family = re.sub(r"-\d{8}$", "", asked[0].record.text("model")) if asked else ""
    return Session(
        name,
        tuple(_calls(asked, first, block_tokens)),
        whole.document.place,
        block_tokens,
        scope="" if whole.text("hash_id_scope") == "global" else whole.name("id") or name,
        origin=origin,
        hidden=Hidden(f"{family}/{tools}", tools) if tools else Hidden(),
    )


def _calls(asked: Sequence[_Asked], first: Gap, block_tokens: int) -> Iterator[Call]:
    before: list[int] = []
    for turn, one in enumerate(asked):
        blocks = _blocks(one.record, block_tokens)
        keep = shared(before, blocks)
        if not all(type(block) is int for block in blocks[keep:]):
            raise one.record.bad("hash_ids", "holds something that is not a whole number")
        facts = Facts(
            _gap(asked[turn - 1], one) if turn else first,
            one.api_s,
            one.record.count("in"),
            one.record.count("out"),
            finish=finish_of(one.stop),
            model=one.record.text("model"),
        )
        yield Call(keep, blocks=tuple(blocks[keep:]), facts=facts)
        before = blocks


def _blocks(record: Record, block_tokens: int) -> list[int]:
    """The whole blocks of a prompt."""
    blocks, tokens = record.items("hash_ids"), record.count("in")
    if len(blocks) < tokens // block_tokens:
        raise record.bad("hash_ids", f"has {len(blocks)} blocks, too few for {tokens} tokens")
    return list(blocks[: tokens // block_tokens])


def _gap(before: _Asked, now: _Asked) -> Gap:
    """Without both times it is what is left of the time between the two calls."""
    kind = WaitKind.UNKNOWN
    if "tool_result" in now.record.items("input_types") or before.stop == "tool_use":
        kind = WaitKind.TOOL
    elif before.stop == "end_turn":
        kind = WaitKind.HUMAN
    thought = now.record.number("think_time")
    if thought is not None and before.api_s is not None:
        return Gap(kind, max(0.0, thought))
    return Gap(kind, elapsed(before.end_s, now.t), measured=False)

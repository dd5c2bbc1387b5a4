"""Reader for Mooncake's traces: requests to a service, as ids of blocks of 512 tokens. Nothing says whose they are."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from agentcache.replay.formats.record import Record, record_of
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import LATEST_S, Call, Facts, Origin, Session

BLOCK_TOKENS = 512
_OTHERS = frozenset({"chat_id", "session_id", "wait_for"})
"""What rows of formats have that grew out of this one, and mean something else."""


class MooncakeReader:
    """`{timestamp, input_length, output_length, hash_ids}`, one request a line: each is a session of one call.

    Timestamps (milliseconds) are those of buckets: requests of one are spread over it in file order, up to the next
    one.
    """

    format = "Mooncake"
    description = "requests as block ids, without sessions (.jsonl)"
    document_is_session = True

    def accepts(self, first: Document) -> bool:
        value = first.value
        if not isinstance(value, dict) or _OTHERS & value.keys():
            return False
        return {"timestamp", "input_length", "hash_ids"} <= value.keys()

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]:
        for source in files:
            for start_s, record in _spread(_in_order(source)):
                yield _session(record, start_s, source.stem)


def _in_order(source: Source) -> Iterator[tuple[float, Record]]:
    latest = 0.0
    for document in source.documents():
        record = record_of(document.value, document)
        record.need("timestamp", "input_length", "hash_ids")
        moment = record.needed("timestamp")
        if abs(moment) / 1000 > LATEST_S:
            raise record.wrong("timestamp", "a time that no clock has")
        if moment < latest:
            raise record.early("timestamp")
        latest = moment
        yield moment / 1000, record


def _spread(requests: Iterable[tuple[float, Record]]) -> Iterator[tuple[float, Record]]:
    """Each bucket reaches to the next one; the last is as wide as the one before it, an only one has no width."""
    begin_s, width_s = 0.0, 0.0
    bucket: list[Record] = []
    for next_s, group in groupby(requests, key=lambda request: request[0]):
        if bucket:
            width_s = next_s - begin_s
        yield from _over(bucket, begin_s, width_s)
        begin_s, bucket = next_s, [record for _, record in group]
    yield from _over(bucket, begin_s, width_s)


def _over(bucket: list[Record], begin_s: float, width_s: float) -> Iterator[tuple[float, Record]]:
    for number, record in enumerate(bucket):
        yield round(begin_s + width_s * number / len(bucket), 6), record


def _session(record: Record, start_s: float, stem: str) -> Session:
    """The last, partial block has an id of its own: only whole ones are part of a prefix."""
    tokens, blocks = record.count("input_length"), record.items("hash_ids")
    if len(blocks) < tokens // BLOCK_TOKENS:
        raise record.bad("hash_ids", f"has {len(blocks)} blocks, too few for {tokens} tokens")
    if not all(type(block) is int for block in blocks):
        raise record.bad("hash_ids", "holds something that is not a whole number")
    facts = Facts(prompt_tokens=tokens, output_tokens=record.count("output_length"))
    call = Call(0, blocks=tuple(blocks[: tokens // BLOCK_TOKENS]), facts=facts)
    document = record.document
    name = f"{stem}-{document.line}"
    return Session(name, (call,), document.place, BLOCK_TOKENS, origin=Origin(start_s=start_s))

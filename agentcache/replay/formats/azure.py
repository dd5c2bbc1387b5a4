"""Reader for Azure's LLM inference traces: when requests came and how long they were, and nothing else."""

from collections.abc import Iterable, Iterator

from agentcache.replay.formats.record import Record, record_of
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import Call, Facts, Origin, Session

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class AzureReader:
    """A table of TIMESTAMP, ContextTokens, GeneratedTokens: each line is a session of one call without content."""

    format = "Azure LLM inference"
    description = "an arrival process only: times and lengths of requests, no content (.csv)"
    document_is_session = True

    def accepts(self, first: Document) -> bool:
        return isinstance(first.value, dict) and set(COLUMNS) <= first.value.keys()

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]:
        for source in files:
            latest_s = 0.0
            for document in source.documents():
                record = record_of(document.value, document)
                start_s = record.moment("TIMESTAMP") or 0.0
                if start_s < latest_s:
                    raise record.early("TIMESTAMP")
                latest_s = start_s
                facts = Facts(
                    prompt_tokens=_tokens(record, "ContextTokens"),
                    output_tokens=_tokens(record, "GeneratedTokens"),
                )
                name, origin = f"{source.stem}-{document.line}", Origin(start_s=start_s)
                yield Session(name, (Call(0, facts=facts),), document.place, origin=origin)


def _tokens(record: Record, name: str) -> int:
    text = record.text(name)
    if not (text.isascii() and text.isdigit()):
        raise record.wrong(name, "not a whole number from 0 on")
    return int(text)

"""Reader for the trajectories of tau-bench: an agent with tools, and a customer that is a second model.

No times are recorded. What precedes everything, the definitions of the tools, is not in the file either.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agentcache.replay.formats.conversation import asked_first, cut, finish_by, sent, tools_of, wait_after
from agentcache.replay.formats.history import Names
from agentcache.replay.formats.record import Record, record_of
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import Facts, Gap, Hidden, Origin, Session


@dataclass(frozen=True, slots=True)
class TauBenchReader:
    """`{task_id, trial, traj: [...]}`, or a list of these as tau-bench writes it.

    `tools_tokens`: how long the definitions of the tools are, if known; they are the same in all of a file's sessions.
    """

    tools_tokens: int = 0
    format: str = "tau-bench"
    description: str = "conversations with tools, no times (.json as tau-bench writes it, or one a line)"
    document_is_session: bool = False

    def accepts(self, first: Document) -> bool:
        value = first.value[0] if isinstance(first.value, list) and first.value else first.value
        return isinstance(value, dict) and isinstance(value.get("traj"), list) and "task_id" in value

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]:
        for source in files:
            names = Names()
            hidden = Hidden(f"tools of {source.stem}", self.tools_tokens) if self.tools_tokens else Hidden()
            for record in _records(source):
                yield _session(record, names, hidden)


def _records(source: Source) -> Iterator[Record]:
    for document in source.documents():
        if isinstance(document.value, list):
            yield from Record({"": document.value}, document).children("")
        else:
            yield record_of(document.value, document)


def _session(record: Record, names: Names, hidden: Hidden) -> Session:
    record.need("task_id", "traj")
    told = record.children("traj")
    messages = [sent(one) for one in told]
    answers = asked_first(told, [at for at, message in enumerate(messages) if message["role"] == "assistant"])

    def facts(turn: int, at: int) -> Facts:
        gap = Gap(wait_after(messages[at - 1])) if turn else Gap()
        return Facts(gap, finish=finish_by(messages[at]), tools=tools_of(told[at]))

    task = record.name("task_id")
    return Session(
        names.new(f"{task}-{record.name('trial') or 0}"),
        tuple(cut(messages, answers, facts)),
        record.document.place,
        origin=Origin(group=task),
        hidden=hidden,
    )

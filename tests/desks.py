"""Workers as a session store sees them: at their desk, reading notices and answering them as they are told to."""

from collections.abc import Callable
from dataclasses import dataclass, field

from agentcache.store.api import WorkerDesk
from agentcache.wire import HeldPart, Notice, Order, Outcome, Receipt, WorkerCard

PART = HeldPart("FULL", "device", tokens=64, slots=1, bytes=4096)

Respond = Callable[["DeskWorker", Notice], Receipt | None]
"""The answer to a notice; None for none."""


def card_of(worker: str, incarnation: str = "i1", url: str = "") -> WorkerCard:
    """A worker that says as little as it may."""
    return WorkerCard(
        worker=worker,
        incarnation=incarnation,
        url=url or f"http://127.0.0.1/{worker}",
        model="tiny",
        context_tokens=4096,
        page_tokens=64,
        grid_tokens=64,
        seats=4,
        queue_limit=8,
    )


def receipt_of(worker: str, notice: Notice, outcome: Outcome = Outcome.RELEASED, said: str = "") -> Receipt:
    """The answer to a notice; what is released is one page."""
    return Receipt(
        notice.order,
        notice.tenant,
        notice.session,
        notice.generation,
        worker,
        outcome,
        notice.operation,
        notice.reply_to,
        (PART,) if outcome is Outcome.RELEASED else (),
        markers=1 if outcome is Outcome.RELEASED else 0,
        mode=notice.mode,
        said=said,
    )


def obeys(worker: "DeskWorker", notice: Notice) -> Receipt | None:
    return receipt_of(worker.name, notice)


def silent(_worker: "DeskWorker", _notice: Notice) -> Receipt | None:
    return None


@dataclass
class DeskWorker:
    """One worker at the desk of a store. `seen` are the notices that it has read."""

    store: WorkerDesk
    name: str
    respond: Respond = obeys
    incarnation: str = "i1"
    cursor: str = ""
    seen: list[Notice] = field(default_factory=list)

    async def start(self) -> "DeskWorker":
        await self.store.register(card_of(self.name, self.incarnation))
        self.cursor = (await self.store.mail(self.name, 0, "", 0.0)).cursor
        return self

    async def restart(self, incarnation: str) -> None:
        self.incarnation = incarnation
        await self.start()

    async def run(self) -> None:
        """Read and answer until cancelled."""
        while True:
            await self.read(1.0)

    async def read(self, wait_s: float = 0.0) -> None:
        """Read and answer what is there."""
        mail = await self.store.mail(self.name, 0, self.cursor, wait_s)
        self.cursor = mail.cursor
        for notice in mail.notices:
            self.seen.append(notice)
            if receipt := self.respond(self, notice):
                await self.store.receipt(receipt)

    def closes(self) -> list[tuple[str, str]]:
        """Sessions that it was told to close, and how."""
        return [(notice.session, notice.mode) for notice in self.seen if notice.order is Order.CLOSE]

"""One stream of notices: read, followed, and answered for, in that order and until the answers are through."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from agentcache.errors import CacheError, Kind
from agentcache.store.api import WorkerDesk
from agentcache.wire import Notice, Receipt

MAIL_WAIT_S: Final = 5.0
Obey = Callable[[Sequence[Notice]], Awaitable[Sequence[Receipt]]]

log = structlog.get_logger(__name__)


class Mailbox:
    """The notices of one shard for one worker. No notice is read before those read have been answered."""

    def __init__(self, desk: WorkerDesk, worker: str, shard: int, obey: Obey) -> None:
        self._desk = desk
        self._worker = worker
        self._shard = shard
        self._obey = obey
        self._cursor = ""
        self._answers: deque[Receipt] = deque()

    async def begin(self) -> None:
        """Take the place from which to read, before anything is said that could be answered by a notice.

        Errors  CacheError(STORE_FAILED)
        """
        if not self._cursor:
            self._cursor = (await self._desk.mail(self._worker, self._shard, "", 0.0)).cursor

    async def read(self, wait_s: float = MAIL_WAIT_S) -> bool:
        """Read what has come, or wait for it, follow it and answer. True: notices were lost before these.

        Errors  CacheError(STORE_FAILED): call it again, nothing is lost
        """
        await self._answer()
        mail = await self._desk.mail(self._worker, self._shard, self._cursor, wait_s)
        self._answers.extend(await self._obey(mail.notices) if mail.notices else ())
        self._cursor = mail.cursor
        await self._answer()
        return mail.gap

    async def _answer(self) -> None:
        while self._answers:
            try:
                await self._desk.receipt(self._answers[0])
            except CacheError as error:
                if error.kind is Kind.STORE_FAILED:
                    raise
                log.error("router.receipt_refused", error=str(error))
            self._answers.popleft()

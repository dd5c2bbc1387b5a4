"""What is said between two turns, by a client or by what was learned, told to the session's worker and to the one that
computes its prompts: their order of eviction goes by it."""

import asyncio
import json
from collections.abc import Mapping
from typing import Final

from agentcache.errors import CacheError
from agentcache.router.forwarding import OURS, session_path
from agentcache.router.holders import Bearer
from agentcache.router.sglang import Find, Post
from agentcache.router.tool_waits import Ended, Expected
from agentcache.store.api import Note, NoteKind, SessionRecord, SessionRef

TELL_S: Final = 0.5


class Pausing:
    """Tells workers, with the operator's token for each, `bearer`."""

    def __init__(self, find: Find, post: Post, bearer: Bearer) -> None:
        self._find = find
        self._post = post
        self._bearer = bearer

    async def tell(self, record: SessionRecord, note: Note) -> bool:
        """Pass on a pause or a resume of an open session. False: its worker has not heard it, whatever the reason.

        Only a hint is lost then: the store has the note, and what was learned of the session's gaps still counts.
        """
        if note.kind is NoteKind.TOUCH:
            return False
        said: dict[str, object] = {"generation": record.generation}
        if note.kind is NoteKind.PAUSE:
            said |= {"tool": note.tool, "expected_s": note.expected_s}
        return await self._say_both(record.ref, (record.worker, record.prefill), note.kind, said)

    async def foretell(self, ended: Ended, expected: Expected) -> bool:
        """Tell the worker that ended a turn how long its session is expected to wait. False: as for `tell`.

        The store has no note of it: this is no word of the session's client, and a worker believes that one first.
        """
        said = {"generation": ended.generation, "tool": expected.tool, "expected_s": expected.seconds}
        workers = (ended.worker, ended.prefill)
        return await self._say_both(ended.ref, workers, NoteKind.PAUSE, {**said, "learned": True})

    async def _say_both(
        self, ref: SessionRef, workers: tuple[str, str], call: str, said: Mapping[str, object]
    ) -> bool:
        """At the same time. Not every return of a session reaches who computes its prompts: that one publishes nothing,
        as of what was learned, and trusts what it hears as far as it proves true of the prompts that do."""
        worker, prefill = workers
        if not prefill:
            return await self._say(ref, worker, call, said)
        quiet = {**said, "learned": True} if call == NoteKind.PAUSE else said
        heard, _ = await asyncio.gather(
            self._say(ref, worker, call, said), self._say(ref, prefill, call, quiet)
        )
        return heard

    async def _say(self, ref: SessionRef, worker: str, call: str, said: Mapping[str, object]) -> bool:
        view = self._find(worker)
        if not view or view.kind != OURS or not view.alive:
            return False
        url = f"{view.url}{session_path(ref.tenant, ref.session)}/{call}"
        headers = {"authorization": f"Bearer {self._bearer(view.id, view.url)}"}
        try:
            reply = await self._post(url, json.dumps(said).encode(), headers, TELL_S)
        except CacheError:
            return False
        return reply.status == 200

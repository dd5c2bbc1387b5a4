"""What a client says between two turns, passed on to its session's worker, whose order of eviction goes by it."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import quote

from agentcache.errors import CacheError
from agentcache.ids import scoped
from agentcache.router.forwarding import OURS
from agentcache.router.holders import Bearer
from agentcache.router.sglang import Find
from agentcache.router.upstream import Reply
from agentcache.store.api import Note, NoteKind, SessionRecord
from agentcache.types import SessionId

Post = Callable[[str, bytes, Mapping[str, str], float], Awaitable[Reply]]
"""URL, body, headers and a time limit in seconds → the answer. Errors: CacheError(UPSTREAM_FAILED)."""
TELL_S: Final = 0.5


class Pausing:
    """Tells workers, with the operator's token for each, `bearer`."""

    def __init__(self, find: Find, post: Post, bearer: Bearer) -> None:
        self._find = find
        self._post = post
        self._bearer = bearer

    async def tell(self, record: SessionRecord, note: Note) -> bool:
        """Pass on a pause or a resume of an open session. False: no worker of ours has heard it, whatever the reason.

        Only a hint is lost then: the store has the note, and what was learned of the session's gaps still counts.
        """
        view = self._find(record.worker)
        if note.kind is NoteKind.TOUCH or not view or view.kind != OURS or not view.alive:
            return False
        named = quote(scoped(record.ref.tenant, SessionId(record.ref.session)), safe="")
        said: dict[str, object] = {"generation": record.generation}
        if note.kind is NoteKind.PAUSE:
            said |= {"tool": note.tool, "expected_s": note.expected_s}
        url = f"{view.url}/v1/sessions/{named}/{note.kind}"
        headers = {"authorization": f"Bearer {self._bearer(view.id, view.url)}"}
        try:
            reply = await self._post(url, json.dumps(said).encode(), headers, TELL_S)
        except CacheError:
            return False
        return reply.status == 200

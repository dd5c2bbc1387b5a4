"""How long a prompt is, without computing anything: Anthropic's `/v1/messages/count_tokens`."""

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from agentcache.errors import CacheError
from agentcache.web.body import parse_object, read_body
from agentcache.web.fields import Fields
from agentcache.web.reply import REQUEST_ID, json_response
from agentcache.web.status import anthropic_answer, error_headers
from agentcache.worker.context import Worker
from agentcache.worker.messages import chat_of_messages
from agentcache.worker.prompts import Prompted, chat_prompt
from agentcache.worker.tagged import granted

COUNT_ROUTE: Final = "/v1/messages/count_tokens"


class CountTokens:
    """Renders a request as generating would, and answers its length."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def count(self, request: Request) -> Response:
        """`{system?, messages, tools?}` → `{input_tokens}`."""
        try:
            body = await read_body(request.scope, request.receive, self._worker.body_limit_bytes)
            fields = Fields({**parse_object(body).values, "max_tokens": 1})
            prompted = await asyncio.to_thread(_prompt, self._worker, fields)
        except CacheError as error:
            request_id = granted(request.scope).request_id or self._worker.new_id()
            status, said = anthropic_answer(error, request_id)
            return json_response(status, said, {REQUEST_ID: request_id, **error_headers(error)})
        return json_response(200, {"input_tokens": len(prompted.tokens)})


def _prompt(worker: Worker, fields: Fields) -> Prompted:
    """Off the event loop: a long history takes a while to be translated, too."""
    return chat_prompt(worker, chat_of_messages(fields))

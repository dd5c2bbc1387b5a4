"""`/tokenize` and `/detokenize`, as vLLM has them: the tokens that a request would have, without running it."""

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from agentcache.web.body import parse_object, read_body
from agentcache.web.fields import Fields
from agentcache.web.query import read_query
from agentcache.web.reply import Json, json_response
from agentcache.web.status import refuse
from agentcache.worker.chat import read_chat
from agentcache.worker.completion import read_completion
from agentcache.worker.context import Worker
from agentcache.worker.messages import chat_of_messages
from agentcache.worker.prompts import tokens_of
from agentcache.worker.responses import chat_of_response

TOKENIZE = "/tokenize"
DETOKENIZE = "/detokenize"


class TokenizeRoutes:
    """Both ways, off the event loop: a long text takes the tokenizer a while."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def routes(self) -> list[BaseRoute]:
        return [
            Route(TOKENIZE, self.tokenize, methods=["POST"]),
            Route(DETOKENIZE, self.detokenize, methods=["POST"]),
        ]

    async def tokenize(self, request: Request) -> Response:
        """`{prompt}`, or `{messages, tools?, add_generation_prompt?}` → `{count, max_model_len, tokens}`.

        With `?for=ROUTE` the body is one of that route's requests.
        """
        translate = _translation(read_query(request).get("for", ""))
        tokens = await asyncio.to_thread(
            lambda fields: prompt_tokens(self._worker, translate(fields)), await self._fields(request)
        )
        said: Json = {
            "count": len(tokens),
            "max_model_len": self._worker.info.context_tokens,
            "tokens": tokens,
            "token_strs": None,
        }
        return json_response(200, said)

    async def detokenize(self, request: Request) -> Response:
        """`{tokens}` → `{prompt}`, control tokens spelled out."""
        text = await asyncio.to_thread(text_of, self._worker, await self._fields(request))
        return json_response(200, {"prompt": text})

    async def _fields(self, request: Request) -> Fields:
        return parse_object(await read_body(request.scope, request.receive, self._worker.body_limit_bytes))


def _translation(route: str) -> Callable[[Fields], Fields]:
    """From a route's requests to the chats that they mean. Errors: BAD_REQUEST for a route that generates nothing."""
    if route not in TRANSLATIONS:
        raise refuse(f"for must be one of {', '.join(filter(None, TRANSLATIONS))}", "for")
    return TRANSLATIONS[route]


def _of_messages(fields: Fields) -> Fields:
    """How much may be generated changes no prompt."""
    return chat_of_messages(Fields({"max_tokens": 1, **fields.values}))


TRANSLATIONS: Final[dict[str, Callable[[Fields], Fields]]] = {
    "": lambda fields: fields,
    "/v1/messages": _of_messages,
    "/v1/responses": chat_of_response,
}


def prompt_tokens(worker: Worker, fields: Fields) -> tuple[int, ...]:
    """Exactly the tokens that a completion, or a chat completion, with these fields would have as its prompt.

    Errors   CacheError(BAD_REQUEST) with the field's name; CacheError(EMPTY_PROMPT) for no message;
             CacheError(PROMPT_TOO_LONG) for a text of more than the context
    """
    is_chat = fields.has("messages")
    if is_chat == fields.has("prompt"):
        raise refuse("one of prompt and messages says what to tokenize", "prompt")
    _refuse_variants(fields, is_chat)
    if is_chat:
        asked = read_chat(fields)
        finished = fields.flag("add_generation_prompt", default=True)
        limit = worker.info.context_tokens
        return worker.tokenizer.render(asked.messages, asked.tools, finished, limit).tokens
    if fields.values["prompt"] == "":
        return worker.tokenizer.encode("")
    return tokens_of(worker, read_completion(fields, worker.info.vocab_size).prompt)


def text_of(worker: Worker, fields: Fields) -> str:
    """The text of token ids. Errors: CacheError(BAD_REQUEST)."""
    tokens, size = fields.array("tokens"), worker.info.vocab_size
    ids = [token for token in tokens if type(token) is int and 0 <= token < size]
    if len(ids) != len(tokens) or not fields.has("tokens"):
        raise fields.wrong("tokens", f"an array of token ids from 0 to {size - 1}")
    return worker.tokenizer.spell(ids)


def _refuse_variants(fields: Fields, is_chat: bool) -> None:
    """What would give other tokens than our own requests have, or more than their numbers."""
    if fields.flag("add_special_tokens", default=not is_chat) == is_chat:
        raise refuse(
            "add_special_tokens cannot be chosen: requests have them in text only", "add_special_tokens"
        )
    for name in ("return_token_strs", "continue_final_message"):
        if fields.flag(name):
            raise refuse(f"{name} is not supported by this worker; leave it out", name)
    if fields.has("chat_template"):
        raise refuse("the chat template is the checkpoint's; leave chat_template out", "chat_template")

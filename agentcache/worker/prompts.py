"""From a request's body to tokens: the only place where the worker uses the tokenizer to encode."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from agentcache.engine.api import ACCOUNTING
from agentcache.engine.parts import too_long
from agentcache.web.fields import Fields
from agentcache.web.status import refuse
from agentcache.worker.chat import ChatRequest, read_chat
from agentcache.worker.completion import CompletionRequest, Prompt, read_completion
from agentcache.worker.context import Worker
from agentcache.worker.options import Options

MAX_MARKS: Final = 4
"""Of one prompt the last ones count, as at providers."""


@dataclass(frozen=True, slots=True)
class Prompted:
    """A prompt in tokens. `user_end_tokens` is where its last user message ends.

    `output` is the answer, where the request says it. `marks` are the ends of what the client has marked in the prompt,
    by the mark's name; 0 for one that does not count.
    """

    tokens: tuple[int, ...]
    user_end_tokens: int
    options: Options
    parse_calls: bool = False
    one_call: bool = False
    output: tuple[int, ...] | None = None
    marks: tuple[tuple[str, int], ...] = ()


def read_prompt(prompt: Callable[[Worker, Fields], Prompted], worker: Worker, fields: Fields) -> Prompted:
    """A request's prompt, and its answer where the engine is told it. Cost: as `chat_prompt`.

    Errors   as `prompt`; CacheError(BAD_REQUEST) for a field that this worker's engine has no use for
    """
    prompted = prompt(worker, fields)
    return replace(prompted, output=_output(worker, prompted.options))


def _output(worker: Worker, options: Options) -> tuple[int, ...] | None:
    computes = worker.info.engine != ACCOUNTING
    if options.digest and not computes:
        raise refuse(
            "agentcache.logits_digest needs an engine that computes logits", "agentcache.logits_digest"
        )
    if options.output is None:
        return None
    text = isinstance(options.output, str)
    if computes:
        param = f"agentcache.{'output' if text else 'output_tokens'}"
        raise refuse(f"{param} is for workers of --engine {ACCOUNTING}; this one computes its answers", param)
    if isinstance(options.output, str):
        return worker.tokenizer.encode(options.output, worker.info.context_tokens)
    return options.output


def chat_prompt(worker: Worker, fields: Fields) -> Prompted:
    """Render a chat through the model's template. Cost: the tokenizer's; run it off the event loop.

    Errors   as `read_chat`; CacheError(PROMPT_TOO_LONG) for more than the context, found before all of it is encoded
    """
    asked: ChatRequest = read_chat(fields)
    heads = sorted({mark.messages for mark in asked.marks if mark.messages})[-MAX_MARKS:]
    rendered = worker.tokenizer.render(
        asked.messages, asked.tools, at_most=worker.info.context_tokens, heads=heads
    )
    ends = dict(zip(heads, rendered.head_tokens, strict=True))
    return Prompted(
        rendered.tokens,
        rendered.user_end_tokens,
        asked.options,
        asked.parse_calls,
        asked.one_call,
        marks=tuple((mark.name, ends.get(mark.messages, 0)) for mark in asked.marks),
    )


def text_prompt(worker: Worker, fields: Fields) -> Prompted:
    """Encode a text prompt, or take token ids as they are; all of it counts as the user's message.

    Errors   as `chat_prompt`
    """
    asked: CompletionRequest = read_completion(fields, worker.info.vocab_size)
    tokens = tokens_of(worker, asked.prompt)
    return Prompted(tokens, len(tokens), asked.options)


def tokens_of(worker: Worker, prompt: Prompt) -> tuple[int, ...]:
    """A prompt's tokens. Errors: CacheError(PROMPT_TOO_LONG) for more than the context."""
    limit = worker.info.context_tokens
    if isinstance(prompt, str):
        return worker.tokenizer.encode(prompt, limit)
    if len(prompt) > limit:
        raise too_long(limit)
    return prompt

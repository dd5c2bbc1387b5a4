"""From a request's body to tokens: the only place where the worker uses the tokenizer to encode."""

from dataclasses import dataclass

from agentcache.web.fields import Fields
from agentcache.worker.chat import ChatRequest, read_chat
from agentcache.worker.completion import CompletionRequest, read_completion
from agentcache.worker.context import Worker
from agentcache.worker.options import Options


@dataclass(frozen=True, slots=True)
class Prompted:
    """A prompt in tokens. `user_end_tokens` is where its last user message ends."""

    tokens: tuple[int, ...]
    user_end_tokens: int
    options: Options
    parse_calls: bool = False
    one_call: bool = False


def chat_prompt(worker: Worker, fields: Fields) -> Prompted:
    """Render a chat through the model's template. Cost: the tokenizer's; run it off the event loop."""
    asked: ChatRequest = read_chat(fields)
    rendered = worker.tokenizer.render(asked.messages, asked.tools)
    return Prompted(
        rendered.tokens, rendered.user_end_tokens, asked.options, asked.parse_calls, asked.one_call
    )


def text_prompt(worker: Worker, fields: Fields) -> Prompted:
    """Encode a text prompt, or take token ids as they are; all of it counts as the user's message."""
    asked: CompletionRequest = read_completion(fields, worker.info.vocab_size)
    prompt = asked.prompt
    tokens = worker.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    return Prompted(tokens, len(tokens), asked.options)

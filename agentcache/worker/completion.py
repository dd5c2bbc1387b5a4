"""A text completion request as values: the prompt is text or token ids."""

from dataclasses import dataclass

from agentcache.errors import CacheError, Kind
from agentcache.web.fields import Fields
from agentcache.web.status import refuse
from agentcache.worker.options import Options, read_options

Prompt = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """`prompt` is text to encode, or token ids as they are."""

    prompt: Prompt
    options: Options


def read_completion(fields: Fields, vocab_size: int) -> CompletionRequest:
    """A completion request, checked; token ids must be under `vocab_size`.

    Errors   CacheError(EMPTY_PROMPT); CacheError(BAD_REQUEST) with the field's name
    """
    options = read_options(fields)
    prompt = _prompt(fields.values.get("prompt"), vocab_size)
    if not prompt:
        raise CacheError(Kind.EMPTY_PROMPT, "prompt must hold at least one token", param="prompt")
    return CompletionRequest(prompt, options)


def _prompt(value: object, vocab_size: int) -> Prompt:
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise refuse("prompt must be a string, an array with one string, or token ids", "prompt")
    if not value:
        return ()
    if isinstance(value[0], str | list):
        return _only(value, vocab_size)
    if not all(type(token) is int and 0 <= token < vocab_size for token in value):
        raise refuse(f"prompt must hold token ids from 0 to {vocab_size - 1}", "prompt")
    return tuple(value)


def _only(prompts: list[object], vocab_size: int) -> Prompt:
    if len(prompts) != 1:
        raise refuse("prompt holds several prompts; send one request for each", "prompt")
    if isinstance(prompts[0], list) and any(isinstance(part, list) for part in prompts[0]):
        raise refuse("prompt is nested too deeply", "prompt")
    return _prompt(prompts[0], vocab_size)

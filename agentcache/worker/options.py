"""What chat and text completions share: sampling, limits, streaming, and what is refused by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from agentcache.engine.api import Sampling
from agentcache.web.fields import Fields
from agentcache.web.status import refuse

MAX_STOPS: Final = 16

# Fields that would change the answer in a way this worker cannot: refused unless they ask for nothing.
_UNSUPPORTED: Final[Mapping[str, tuple[object, ...]]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "prompt_logprobs": (0,),
    "echo": (False,),
    "suffix": ("",),
    "logit_bias": ({},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "audio": (),
    "modalities": (["text"], []),
    "functions": ([],),
    "function_call": ("none",),
    "web_search_options": (),
    "response_format": ({"type": "text"},),
}

# Fields that are read somewhere, or that say nothing about the answer: no word about them in the log.
_KNOWN: Final = frozenset(_UNSUPPORTED) | {
    "model",
    "messages",
    "prompt",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stop",
    "seed",
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "stream",
    "stream_options",
    "session_id",
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "cache_control",
    "prompt_cache_breakpoint",
    "kv_hints",
    "ignore_eos",
    "return_token_ids",
    "priority",
    "cache_salt",
    "agentcache",
}


@dataclass(frozen=True, slots=True)
class Options:
    """The common part of a request. `max_tokens` 0 means that the client left it to the worker.

    `output` is what an engine that computes nothing will answer, text or token ids; None: not said.
    """

    max_tokens: int
    sampling: Sampling
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool
    ignore_eos: bool
    token_ids: bool
    digest: bool
    reuse: bool
    priority: int
    output: str | tuple[int, ...] | None = None


def read_options(fields: Fields) -> Options:
    """The common fields, checked; unknown ones are the caller's to report (`UnknownFields`).

    Errors   CacheError(BAD_REQUEST) with the field's name
    """
    refuse_unsupported(fields)
    extension = fields.inner("agentcache")
    return Options(
        max_tokens=_max_tokens(fields),
        sampling=_sampling(fields),
        stops=_stops(fields),
        stream=fields.flag("stream"),
        include_usage=fields.inner("stream_options").flag("include_usage"),
        ignore_eos=fields.flag("ignore_eos"),
        token_ids=fields.flag("return_token_ids"),
        digest=extension.flag("logits_digest"),
        reuse=extension.flag("reuse", default=True),
        priority=fields.whole("priority", 0, -(2**31), 2**31 - 1),
        output=_output(extension),
    )


def refuse_unsupported(fields: Fields) -> None:
    """Refuse by name what this worker cannot do, unless the field asks for nothing."""
    for name, harmless in _UNSUPPORTED.items():
        if fields.has(name) and fields.values[name] not in harmless:
            raise refuse(f"{name} is not supported by this worker; leave it out", fields.param(name))


class UnknownFields:
    """Names of ignored fields, each told to the log once in the worker's life.

    At most `limit` names are remembered, so that no client fills the log or the memory.
    """

    def __init__(self, tell: Callable[[str], None], limit: int = 256) -> None:
        self._tell = tell
        self._limit = limit
        self._told: set[str] = set()

    def report(self, fields: Fields) -> None:
        for name in fields.values:
            if name not in _KNOWN and name not in self._told and len(self._told) < self._limit:
                self._told.add(name)
                self._tell(name[:80])


def log_unknown(name: str) -> None:
    """Tell the log that a field of requests is ignored."""
    structlog.get_logger().info("field_ignored", field=name)


def _sampling(fields: Fields) -> Sampling:
    temperature = fields.number("temperature", 1.0, 0.0, 2.0)
    top_p = fields.number("top_p", 1.0, 0.0, 1.0)
    if top_p == 0.0:
        raise fields.wrong("top_p", "over 0 and at most 1")
    seed = fields.whole("seed", 0, -(2**63)) % 2**63 if fields.has("seed") else None
    return Sampling(temperature, top_p, seed)


def _max_tokens(fields: Fields) -> int:
    name = "max_completion_tokens" if fields.has("max_completion_tokens") else "max_tokens"
    return fields.whole(name, 0, low=1)


def _output(extension: Fields) -> str | tuple[int, ...] | None:
    """`agentcache.output` or `agentcache.output_tokens`; an empty one is an answer, too."""
    if extension.has("output") and extension.has("output_tokens"):
        raise extension.wrong("output_tokens", "left out where there is an output")
    if extension.has("output"):
        return extension.text("output")
    if not extension.has("output_tokens"):
        return None
    tokens = extension.array("output_tokens")
    if not all(type(token) is int and token >= 0 for token in tokens):
        raise extension.wrong("output_tokens", "an array of token ids")
    return tuple(token for token in tokens if isinstance(token, int))


def _stops(fields: Fields) -> tuple[str, ...]:
    value = fields.values.get("stop")
    stops = [value] if isinstance(value, str) else fields.array("stop")
    if len(stops) > MAX_STOPS:
        raise fields.wrong("stop", f"at most {MAX_STOPS} strings")
    if not all(isinstance(stop, str) and stop for stop in stops):
        raise fields.wrong("stop", "a string or an array of strings, none of them empty")
    return tuple(str(stop) for stop in stops)

"""Text to tokens and back: our own byte-level BPE or a checkpoint's tokenizer.json, with its chat template.

Text that comes from a request never becomes a control token. Strings of control tokens inside it are cut by a
character that occurs nowhere else (`cut`) before the template is rendered; the rendered text is split there, and each
part is encoded by itself (`parts`). Our template also cuts where a message's content begins, so that the tokens of
earlier messages do not depend on what follows, and parts that were encoded before come from a memory.
"""

import json
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from agentcache.engine.detokenizer import Detokenizer, Pieces
from agentcache.engine.parts import NO_LIMIT, Parts, readable
from agentcache.errors import CacheError, Kind

ASSETS = Path(__file__).parent / "assets"
CUTS = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))
"""Unicode noncharacters: never part of text that people exchange."""
ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
NO_TEMPLATE = "{{ raise_exception('this checkpoint has no chat template; use /v1/completions') }}"

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A chat as tokens; `user_end_tokens` is their number up to and including the last user message (0: none).

    `head_tokens` are the numbers for the heads that were asked for (0: the template renders no such head).
    """

    tokens: tuple[int, ...]
    user_end_tokens: int
    head_tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """A chat template and what it may name. `plain_arguments`: it wants tool arguments as objects, not as text."""

    source: str
    names: Mapping[str, str]
    plain_arguments: bool


class ChatTokenizer:
    """One model's tokenizer. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, template: Template, stop_tokens: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._pieces = Pieces(tokenizer)
        decoder = tokenizer.get_added_tokens_decoder()
        added = decoder.values()
        control = [str(token.content) for token in added if token.special]
        markup = [t.content for t in added if t.special or (t.content[:1] == "<" and t.content[-1:] == ">")]
        self._control = re.compile(
            "|".join(map(re.escape, sorted(control, key=len, reverse=True))) or r"(?!)"
        )
        self._markup = tuple(text for text in markup if len(text) > 1)
        self._environment = _environment()
        known = readable(tokenizer)
        self.bytes_per_token = known.bytes_per_token
        self._parts = Parts(tokenizer, known, self._refuse_controls)
        self._before = _document_head(tokenizer)
        self.stop_tokens = tuple(stop_tokens)
        self.special_tokens = tuple(sorted({*decoder, *stop_tokens}))
        self.vocab_size = int(tokenizer.get_vocab_size())

    def encode(self, text: str, at_most: int = NO_LIMIT) -> tuple[int, ...]:
        """A request's text as tokens, with what the tokenizer puts before a document (often nothing).

        Errors  PROMPT_TOO_LONG where they are more than `at_most`, as soon as that is known
        Cost    as `Parts.encode`
        """
        cut = _unused(text)
        first, *rest = self._broken(text, cut).split(cut)
        if self._before is not None:
            head, parts = self._before, [first, *rest]
        else:
            head, parts = self._parts.encode_document(first, at_most), rest
        return self._parts.encode(parts, at_most, head)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, control tokens left out; what is no text becomes U+FFFD."""
        detokenizer = self.detokenizer()
        return "".join(map(detokenizer.push, tokens)) + detokenizer.flush()

    def spell(self, tokens: Sequence[int]) -> str:
        """The text of tokens with control tokens as they are written; for people who look at a prompt."""
        # decode_batch, unlike decode, holds up no other threads
        (text,) = self._tokenizer.decode_batch([list(tokens)], skip_special_tokens=False)
        return str(text)

    def detokenizer(self) -> Detokenizer:
        """A fresh one, for one stream of tokens."""
        return Detokenizer(self._pieces)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] = (),
        add_generation_prompt: bool = True,
        at_most: int = NO_LIMIT,
        heads: Sequence[int] = (),
    ) -> Rendered:
        """A chat in OpenAI's shape (contents as text or None) through the template.

        `heads` are numbers of messages, of which it is to be known where they end.

        Errors  BAD_REQUEST: no messages, an unknown role, or the template refuses them; PROMPT_TOO_LONG where the
                tokens are more than `at_most`
        Cost    as `Parts.encode`, and the template's, once more for each head
        """
        check_messages(messages)
        cut = _unused(json.dumps([messages, tools], ensure_ascii=False, default=str))
        chat = [self._prepared(message, cut) for message in messages]
        offered = [self._broken_all(tool, cut) for tool in tools]
        tokens = self._parts.encode(
            self._render(chat, offered, add_generation_prompt, cut).split(cut), at_most
        )

        def end_of(head: int) -> int:
            return _common(
                self._parts.encode(self._render(chat[:head], offered, False, cut).split(cut)), tokens
            )

        last = max((at for at, message in enumerate(messages, 1) if message["role"] == "user"), default=0)
        ends = {head: _if_rendered(end_of, head) for head in heads if head != last}
        if last:
            ends[last] = end_of(last)
        return Rendered(tokens, ends.get(last, 0), tuple(ends[head] for head in heads))

    def _render(self, chat: Sequence[Message], tools: Sequence[Message], prompt: bool, cut: str) -> str:
        template = _compiled(self._environment, self._template.source)
        try:
            return template.render(
                messages=chat,
                tools=list(tools) or None,
                add_generation_prompt=prompt,
                cut=cut,
                **self._template.names,
            )
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError) as bad:
            raise CacheError(Kind.BAD_REQUEST, f"the chat template refuses these messages: {bad}") from bad

    def _prepared(self, message: Message, cut: str) -> dict[str, Any]:
        """A message as the template gets it: content always text, control strings cut."""
        prepared: dict[str, Any] = self._broken_all({**message, "content": message.get("content") or ""}, cut)
        if self._template.plain_arguments and message.get("tool_calls"):
            prepared["tool_calls"] = [_with_plain_arguments(call) for call in prepared["tool_calls"]]
        return prepared

    def _broken(self, text: str, cut: str) -> str:
        """Text without any markup in one piece: a cut behind the first character of each."""
        places = sorted({at for markup in self._markup for at in _places(text, markup)})
        if not places:
            return text
        return cut.join(
            text[one:other] for one, other in pairwise([0, *(at + 1 for at in places), len(text)])
        )

    def _broken_all(self, value: Any, cut: str) -> Any:
        if isinstance(value, str):
            return self._broken(value, cut)
        if isinstance(value, Mapping):
            return {self._broken(str(key), cut): self._broken_all(item, cut) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._broken_all(item, cut) for item in value]
        return value

    def _refuse_controls(self, part: str, tokens: "array[int]") -> None:
        """As many control tokens come out of a part as the template wrote.

        Errors  BAD_REQUEST when normalisation turned other text into a control token
        """
        came = sum(map(self._pieces.is_control, tokens))
        if came and came > len(self._control.findall(part)):
            raise CacheError(Kind.BAD_REQUEST, "a text of the request would become a control token")


def check_messages(messages: Sequence[Message]) -> None:
    """Errors: BAD_REQUEST for no messages, an unknown role or a content that is no text."""
    if not messages:
        raise CacheError(Kind.BAD_REQUEST, "messages must not be empty")
    for number, message in enumerate(messages):
        if message.get("role") not in ROLES:
            raise CacheError(
                Kind.BAD_REQUEST,
                f"messages[{number}].role must be one of {sorted(ROLES)}",
                role=message.get("role"),
            )
        if not isinstance(message.get("content") or "", str):
            raise CacheError(Kind.BAD_REQUEST, f"messages[{number}].content must be text")


def load_tokenizer(directory: Path = ASSETS) -> ChatTokenizer:
    """The tokenizer of a checkpoint directory, or our own.

    Errors  CacheError(BAD_CHECKPOINT) naming the file that is missing or broken
    """
    path = directory / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as bad:  # the library raises bare Exception
        raise CacheError(
            Kind.BAD_CHECKPOINT, f"cannot read {path}: {bad}; it is needed to serve text"
        ) from bad
    settings = _read_json(directory / "tokenizer_config.json")
    names = {
        name: _content(settings.get(name)) for name in ("bos_token", "eos_token", "pad_token", "unk_token")
    }
    template = Template(_template_source(directory, settings), names, directory != ASSETS)
    return ChatTokenizer(tokenizer, template, _stop_tokens(directory, tokenizer, names["eos_token"]))


def packed_tokenizer(content: str, template: str, names: Mapping[str, str]) -> ChatTokenizer:
    """A tokenizer from the content of a tokenizer.json, a chat template and named tokens (eos_token ends answers)."""
    tokenizer = Tokenizer.from_str(content)
    stop = tokenizer.token_to_id(names["eos_token"])
    return ChatTokenizer(
        tokenizer, Template(template or NO_TEMPLATE, names, True), [stop] if isinstance(stop, int) else []
    )


def _template_source(directory: Path, settings: Mapping[str, Any]) -> str:
    beside = directory / "chat_template.jinja"
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    found = settings.get("chat_template")
    if isinstance(found, list):
        named = {entry["name"]: entry["template"] for entry in found}
        found = named.get("default") or next(iter(named.values()), None)
    return found if isinstance(found, str) else NO_TEMPLATE


def _stop_tokens(directory: Path, tokenizer: Tokenizer, eos: str) -> list[int]:
    """Every token that the checkpoint says may end an answer."""
    found = {tokenizer.token_to_id(eos)} if eos else set()
    for name in ("generation_config.json", "config.json"):
        named = _read_json(directory / name).get("eos_token_id")
        found.update(named if isinstance(named, list) else [named])
    return sorted(token for token in found if isinstance(token, int))


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as bad:
        raise CacheError(Kind.BAD_CHECKPOINT, f"cannot read {path}: {bad}") from bad
    return read if isinstance(read, dict) else {}


def _content(token: object) -> str:
    """A token's text: settings files name it bare or with its properties."""
    return str(token.get("content", "") if isinstance(token, dict) else token or "")


def _document_head(tokenizer: Tokenizer) -> tuple[int, ...] | None:
    """The tokens before every document; None for a tokenizer that puts some behind it too."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    dressed = tokenizer.encode("a", add_special_tokens=True).ids
    before = len(dressed) - len(bare)
    return tuple(dressed[:before]) if dressed[before:] == bare else None


def _places(text: str, markup: str) -> Iterator[int]:
    """Where a markup begins, overlapping ones included."""
    at = text.find(markup)
    while at >= 0:
        yield at
        at = text.find(markup, at + 1)


def _unused(text: str) -> str:
    """A cut that the text does not contain."""
    for cut in CUTS:
        if cut not in text:
            return cut
    raise CacheError(Kind.BAD_REQUEST, "the text contains every noncharacter of U+FDD0 to U+FDEF")


def _if_rendered(end_of: Callable[[int], int], head: int) -> int:
    """Where a head ends; 0 for one that the template takes for no chat."""
    try:
        return end_of(head)
    except CacheError:
        return 0


def _common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    if other[: len(one)] == one:
        return len(one)
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))


def _with_plain_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call whose arguments are an object where they can be read as one."""
    function = dict(call.get("function", {}))
    try:
        function["arguments"] = json.loads(function.get("arguments") or "{}")
    except (TypeError, ValueError):
        return dict(call)
    return {**call, "function": function}


def _environment() -> ImmutableSandboxedEnvironment:
    """The environment that chat templates are written for."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    return environment


@lru_cache(16)
def _compiled(environment: ImmutableSandboxedEnvironment, source: str) -> jinja2.Template:
    try:
        return environment.from_string(source)
    except jinja2.TemplateError as bad:
        raise CacheError(Kind.BAD_CHECKPOINT, f"cannot read the chat template: {bad}") from bad


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)

"""What a core is built from, as one line of text, and keys as short words."""

import itertools
import re
from dataclasses import dataclass

import numpy as np

from agentcache.keys import Key, Namespace
from agentcache.tree.api import CoreConfig, Order, OrderBase, WritePolicy
from agentcache.types import Checkpoint, ComponentName, ComponentSpec, Path, Rule, Window
from tests.builders import AWAY, HOME

SPACES = {"h": HOME, "w": AWAY}
_RUN = re.compile(r"([a-z])(\d*)")


@dataclass(frozen=True, slots=True)
class Shape:
    """A configuration and the sizes of its pools."""

    config: CoreConfig
    slots: int
    host_slots: int

    def __str__(self) -> str:
        return f"{config_text(self.config)} slots={self.slots} host_slots={self.host_slots}"

    @classmethod
    def parse(cls, line: str) -> "Shape":
        words = words_of(line)
        return cls(config_of_words(words), int(words["slots"]), int(words["host_slots"]))


def words_of(line: str) -> dict[str, str]:
    """The `name=value` words of a line."""
    pairs = (word.partition("=") for word in line.split())
    return {name: value for name, equals, value in pairs if equals}


def config_text(config: CoreConfig) -> str:
    specs = ",".join(f"{spec.name}:{_rule_text(spec.rule)}" for spec in config.specs)
    write_back = int(config.write_policy is WritePolicy.WRITE_BACK)
    return (
        f"page={config.page_tokens} grid={config.grid} specs={specs} order={config.order} base={config.base} "
        f"host={int(config.host_tier)} write_back={write_back} events={int(config.emit_events)} "
        f"markers={config.max_markers} unclaimed={config.unclaimed_ns}"
    )


def config_of_words(words: dict[str, str]) -> CoreConfig:
    policy = WritePolicy.WRITE_BACK if words["write_back"] == "1" else WritePolicy.WRITE_THROUGH
    return CoreConfig(
        int(words["page"]),
        tuple(map(_spec_of, words["specs"].split(","))),
        grid_tokens=int(words["grid"]),
        order=Order(words["order"]),
        base=OrderBase(words["base"]),
        write_policy=policy,
        host_tier=words["host"] == "1",
        emit_events=words["events"] == "1",
        max_markers=int(words["markers"]),
        unclaimed_ns=int(words["unclaimed"]),
    )


def _rule_text(rule: Rule) -> str:
    if isinstance(rule, Window):
        return f"window:{rule.tokens}"
    return f"states:{rule.grid_tokens}" if isinstance(rule, Checkpoint) else "path"


def _spec_of(text: str) -> ComponentSpec:
    name, kind, *number = text.split(":")
    if kind == "path":
        return ComponentSpec(ComponentName(name), Path(), ())
    rule = Window(int(number[0])) if kind == "window" else Checkpoint(int(number[0]))
    return ComponentSpec(ComponentName(name), rule)


@dataclass(frozen=True, slots=True)
class Word:
    """A key by letters, one a page: `h:a30b2` is thirty pages of a and two of b at home."""

    space: str
    letters: str

    def __str__(self) -> str:
        runs = ((letter, len(list(run))) for letter, run in itertools.groupby(self.letters))
        return f"{self.space}:" + "".join(letter + (str(n) if n > 1 else "") for letter, n in runs)

    @classmethod
    def parse(cls, text: str) -> "Word":
        space, _, runs = text.partition(":")
        return cls(space, "".join(letter * int(count or 1) for letter, count in _RUN.findall(runs)))

    @property
    def namespace(self) -> Namespace:
        return SPACES[self.space]

    def key(self, page_tokens: int) -> Key:
        """Equal letters after equal letters are equal pages."""
        ids = np.frombuffer(self.letters.encode(), dtype=np.uint8).astype(np.int32) * 100
        tokens = (ids[:, None] + np.arange(page_tokens, dtype=np.int32)).reshape(-1)
        return Key(np.ascontiguousarray(tokens), self.namespace)

"""What `bench multiturn` runs: its shape, what a cache can reach on it, and how large the tiers are.

round 1   |-- new --|
round 2   |-- new --|out|-- new --|            what a client's round 1 had, what it was answered, and new tokens
round 3   |-- new --|out|-- new --|out|-- new --|
"""

from collections.abc import Mapping
from dataclasses import dataclass

from agentcache.engine.publish import POOL_SETTINGS, PublishPolicy
from agentcache.types import ComponentName

L1_PART = 10
"""The device holds one part in ten of what an unlimited cache holds at the end."""
L2_PART = 2
"""The host holds one in two."""
SPARE_SLOTS = 16
"""Slots a client beyond its own pages and states, so that an unlimited cache evicts nothing for a reservation."""


@dataclass(frozen=True, slots=True)
class Shape:
    """`clients` conversations of `rounds` rounds, in step: a round begins when all have ended the one before.

    A round adds `request_length` random tokens to the prompt, and its answer has `output_length`. The cache restores
    whole chunks of `grid_tokens` only.
    """

    clients: int = 16
    rounds: int = 40
    request_length: int = 128
    output_length: int = 4
    grid_tokens: int = 64
    seed: int = 20260626

    def prompt_tokens(self, number: int) -> int:
        """Tokens of a client's prompt in a round, counted from 1."""
        return number * self.request_length + (number - 1) * self.output_length

    @property
    def final_tokens(self) -> int:
        """The last prompt and its answer."""
        return self.prompt_tokens(self.rounds) + self.output_length

    @property
    def late_rounds(self) -> range:
        """The second half, where the smaller tiers are full: 21 to 40 of 40."""
        return range(self.rounds // 2 + 1, self.rounds + 1)

    @property
    def last_rounds(self) -> range:
        """The last quarter: 31 to 40 of 40."""
        return range(self.rounds - max(1, self.rounds // 4) + 1, self.rounds + 1)

    def reachable(self, rounds: range) -> float:
        """The hit rate, in these rounds, of a cache that keeps every whole chunk of every earlier prompt."""
        before = (self.prompt_tokens(number - 1) for number in rounds if number > 1)
        cached = sum(tokens - tokens % self.grid_tokens for tokens in before)
        return cached / sum(self.prompt_tokens(number) for number in rounds)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the tiers are: device slots by setting; bytes on the host, and bytes of the whole working set.

    `raised` says which device pools had to be larger than their part, to admit one request, and from how many slots.
    """

    device_slots: Mapping[str, int]
    raised: Mapping[str, int]
    host_bytes: int
    working_set_bytes: int


def unlimited_slots(shape: Shape) -> dict[str, int]:
    """Pools in which nothing is ever evicted: a page, a window page and a state for every chunk of every client."""
    slots = shape.clients * (shape.final_tokens // shape.grid_tokens + SPARE_SLOTS)
    return dict.fromkeys(POOL_SETTINGS.values(), slots)


def sizes_for(shape: Shape, policy: PublishPolicy, working_set: Mapping[ComponentName, int]) -> Sizes:
    """The tiers' parts of the working set (slots by component).

    The device has at least what the longest request needs. The host's bytes are shared out among the components as the
    device's are, so each has its part there too, unless a device pool had to be raised.
    """
    setting_of = {spec.name: POOL_SETTINGS[type(spec.rule)] for spec in policy.specs}
    slots = dict.fromkeys(setting_of.values(), 1)
    for name, setting in setting_of.items():
        slots[setting] = max(slots[setting], -(-working_set[name] // L1_PART))
    raised: dict[str, int] = {}
    longest = shape.prompt_tokens(shape.rounds)
    while short := policy.over_pool(longest, {name: slots[setting] for name, setting in setting_of.items()}):
        raised.setdefault(short.setting, short.slots)
        slots[short.setting] = short.least
    working_set_bytes = sum(working_set[spec.name] * spec.slot_bytes for spec in policy.specs)
    return Sizes(slots, raised, working_set_bytes // L2_PART, working_set_bytes)

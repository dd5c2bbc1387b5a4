"""What `bench pause` compares: where a session's prefix is kept while it is away, and how large the tiers are for that.

device   |── running ──|── brought back ──|─ ½ ─|          room for two and a half sessions
others   |──── a ────|──── b ────|──── c ────|             three: no room for a fourth who is away for long
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agentcache.engine.publish import POOL_SETTINGS, PublishPolicy
from agentcache.errors import CacheError, Kind
from agentcache.types import ComponentName, ComponentSpec

AGENTS: Final = 3
"""Other agents at each engine, each with a prompt as long as the session's."""
LAST_S: Final = 2.0
"""So long before a session returns no engine but its own is worked on."""
APART_S: Final = 2.5
"""Sessions leave, and so return, at least so far apart."""
ROOMY, SNUG, NARROW = AGENTS + 2.0, 2.5, 2.25
"""Rooms in sessions: for all; on the device, for two and a half; on a host that is too small, too."""
MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to treat a session's prefix: rooms of the tiers in sessions, and whether its client says when it returns.

    `tier`: where its prefix is to be when it returns, "" for nowhere. `pushed`: others take the device meanwhile.
    """

    name: str
    title: str
    device: float = SNUG
    host: float = 0.0
    store: bool = False
    told: bool = False
    tier: str = ""

    @property
    def pushed(self) -> bool:
        return self.device == SNUG


KEPT, RECOMPUTED = "kept", "recomputed"
ARMS: Final = (
    Arm(KEPT, "never evicted", device=ROOMY, tier="device"),
    Arm("host_told", "to the host, return told", host=ROOMY, told=True, tier="device"),
    Arm("host_unannounced", "to the host, not told", host=ROOMY, tier="host"),
    Arm("store_told", "to the store, return told", host=NARROW, store=True, told=True, tier="device"),
    Arm("store_unannounced", "to the store, not told", host=NARROW, store=True, tier="external"),
    Arm(RECOMPUTED, "nowhere: computed again"),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """Sessions of `cached_tokens`, a multiple of the grid, that return with `new_tokens` more after `pause_s`.

    At each engine another agent takes a turn every `every_s`, if there is time.
    """

    cached_tokens: int = 4096
    new_tokens: int = 64
    trials: int = 5
    pause_s: float = 30.0
    grid_tokens: int = 128
    every_s: float = 1.0
    seed: int = 0

    def check(self) -> None:
        """Errors: BAD_CONFIG for a prefix off the grid, or a pause in which the others could not take the device."""
        if self.cached_tokens % self.grid_tokens:
            raise CacheError(
                Kind.BAD_CONFIG,
                f"--cached {self.cached_tokens} is no multiple of the grid ({self.grid_tokens}), and chunks are cached",
            )
        least_s = AGENTS * self.every_s + LAST_S
        if not least_s <= self.pause_s <= 3600:
            raise CacheError(
                Kind.BAD_CONFIG,
                f"--pause-s must be {least_s:g} to 3600: the others need {least_s:g} s to take the device",
            )


def room(arm: Arm, shape: Shape, policy: PublishPolicy) -> dict[str, float]:
    """The settings that size an arm's tiers: device slots, and MiB on the host where it has one."""
    prompt = shape.cached_tokens + 1
    needs = policy.need(0, policy.full(0, prompt, 0))
    slots: dict[str, float] = {}
    for spec in policy.specs:
        wanted = math.ceil(arm.device * needs[spec.name])
        slots[_setting(spec)] = max(slots.get(_setting(spec), 1), wanted)
    while short := policy.over_pool(prompt + shape.new_tokens, _by_name(policy, slots)):
        slots[short.setting] = short.least
    if arm.host:
        device_bytes = sum(slots[_setting(spec)] * spec.slot_bytes for spec in policy.specs)
        slots["host_mib"] = device_bytes * arm.host / arm.device / MIB
    return slots


def _setting(spec: ComponentSpec) -> str:
    return POOL_SETTINGS[type(spec.rule)]


def _by_name(policy: PublishPolicy, slots: Mapping[str, float]) -> dict[ComponentName, int]:
    return {spec.name: int(slots[_setting(spec)]) for spec in policy.specs}

"""Answers say how much of a prompt was cached, and on which tier it lay."""

from agentcache.engine.api import Admitted
from agentcache.stats import CachedTokens
from agentcache.types import FULL, MAMBA, SessionState
from agentcache.web.reply import Json
from agentcache.why import Finding, Why
from agentcache.worker.answers import (
    ChatShape,
    Head,
    TextShape,
    extension,
    tier_details,
    usage,
)
from agentcache.worker.headers import why_not_deeper, why_text
from agentcache.worker.reading import NOTHING_CACHED, Outcome

HEAD = Head("id", "tiny", 7, token_ids=False)
CACHED = CachedTokens(device=32, host=64, external=128)
BY_TIER: Json = {"device": 32, "host": 64, "external": 128}


def outcome(cached: CachedTokens = CACHED) -> Outcome:
    return Outcome("stop", prompt_tokens=300, cached=cached, completion_tokens=5, written_tokens=64)


def test_usage_sums_the_tiers_and_names_each() -> None:
    said = usage(outcome())
    assert said["prompt_tokens_details"] == {
        "cached_tokens": 224,
        "cache_write_tokens": 64,
        "cached_tokens_details": BY_TIER,
    }
    assert said["cached_tokens_details"] == BY_TIER
    assert (said["prompt_tokens"], said["completion_tokens"], said["total_tokens"]) == (300, 5, 305)


def test_nothing_cached_names_every_tier() -> None:
    assert tier_details(NOTHING_CACHED) == {"device": 0, "host": 0, "external": 0}


def test_streams_of_both_apis_end_with_the_same_usage() -> None:
    for shape in (ChatShape(HEAD, lambda: "call"), TextShape(HEAD)):
        (_, _), (_, last) = shape.endings(outcome(), {}, include_usage=True)
        assert (last["usage"], last["choices"]) == (usage(outcome()), [])


def admitted(cached: CachedTokens) -> Admitted:
    return Admitted("r", cached, 256, None, None, 0, SessionState.NONE)


def test_our_own_object_has_the_tiers_too() -> None:
    said = extension(admitted(CACHED), outcome(), "full hit")
    assert (said["cached_tokens"], said["full_tokens"]) == (224, 256)
    assert said["cached_tokens_details"] == BY_TIER


def test_a_hit_on_any_tier_is_a_hit() -> None:
    assert why_not_deeper(admitted(NOTHING_CACHED)) == "prompt too short"
    for cached in (CachedTokens(4, 0, 0), CachedTokens(0, 4, 0), CachedTokens(0, 0, 4)):
        assert why_not_deeper(admitted(cached)) == "full hit"


def test_a_reason_names_the_component_and_the_token() -> None:
    assert why_text(Finding(Why.NO_CHECKPOINT, MAMBA, 4096), 0) == "no_checkpoint MAMBA at 4096"
    assert why_text(Finding(Why.PREFIX_CHANGED, FULL, 50, 50), 48) == "prefix_changed FULL at 50"
    assert why_text(Finding(Why.REUSE_OFF), 0) == "reuse off"

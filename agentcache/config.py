"""Settings in four layers, flag > AGENTCACHE_* > agentcache.toml > default, every value with its origin.

The environment and the file come in by argument; nothing else in the package reads AGENTCACHE_* variables.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from agentcache.errors import CacheError, Kind
from agentcache.resolving import ENV_PREFIX, Program, Resolved, explain, resolve_for

_REDIS_URL = re.compile(r"(rediss?://|unix://).")
_HTTP_URL = re.compile(r"https?://([^/:\s]+|\[[0-9a-fA-F:]+\])(:\d{1,5})?")
_WORKER_ID = re.compile(r"[A-Za-z0-9._:\[\]-]+")
_HOST_PORT = re.compile(r"([^/:\s]+|\[[0-9a-f:]+\]):\d{1,5}$")
_PASSWORD = re.compile(r"(//[^/@]*:)[^/@]*@")


class _Group(BaseModel):
    """Settings are values: unknown keys are refused, nothing changes later."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class ModelSettings(_Group):
    """Which model, and how it is computed."""

    model: str = Field(
        default="tiny-all",
        min_length=1,
        description="tiny-full, tiny-swa, tiny-hybrid or tiny-all (built in), a checkpoint directory, or smollm2",
    )
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        default="float32", description="type of the weights and of what is cached"
    )
    device: str = Field(default="cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="cpu, cuda or cuda:N")
    threads: int = Field(default=0, ge=0, le=1024, description="CPU threads of torch; 0 lets torch choose")
    seed: int = Field(default=0, ge=0, lt=2**32, description="random weights of the built-in models")


class CacheSettings(_Group):
    """The cache's shape and sizes, and its order of eviction."""

    core: Literal["native", "reference"] = Field(
        default="native", description="tree core: in Rust, or the readable one in Python"
    )
    page_tokens: int = Field(
        default=0, ge=0, le=4096, description="tokens of one page; 0: a whole chunk of the grid"
    )
    grid_tokens: int = Field(
        default=128, ge=1, description="prefill chunk and checkpoint grid; multiple of the page"
    )
    full_slots: int = Field(default=512, ge=1, description="device pages of full attention")
    swa_slots: int = Field(default=256, ge=1, description="device pages of each sliding window")
    mamba_slots: int = Field(default=256, ge=1, description="device recurrent states")
    eviction_policy: Literal["lru", "session", "ert"] = Field(default="ert", description="order of eviction")
    eviction_base: Literal["lru", "lfu", "priority"] = Field(
        default="lru", description="what decides between equals in the session order"
    )
    fork_chunks: int = Field(
        default=4, ge=1, description="chunks between the boundaries where another session may fork off"
    )
    prompt_only: bool = Field(
        default=False, description="publish only what a prompt computed, never decoded pages"
    )

    @model_validator(mode="after")
    def _grid_is_whole_pages(self) -> "CacheSettings":
        if self.grid_tokens % self.page:
            raise ValueError(f"grid_tokens must be a multiple of page_tokens ({self.page_tokens})")
        return self

    @model_validator(mode="after")
    def _base_is_of_its_order(self) -> "CacheSettings":
        if self.eviction_base != "lru" and self.eviction_policy != "session":
            raise ValueError("eviction_base is of the session order; say eviction_policy session too")
        return self

    @property
    def page(self) -> int:
        """Tokens of one page."""
        return self.page_tokens or self.grid_tokens


class SessionSettings(_Group):
    """How long sessions and what is left of them are kept."""

    ttl_s: float = Field(
        default=1800.0, gt=0, description="seconds without a request after which a session loses its claim"
    )
    ttl_max_s: float = Field(
        default=3600.0, gt=0, description="the most of these seconds that a request can ask for"
    )
    reopen_after_s: float = Field(
        default=60.0, ge=0, description="seconds after a close from which a request opens the session again"
    )
    tombstones: int = Field(default=8192, ge=0, description="closed sessions remembered")
    tag_ttl_s: float = Field(
        default=120.0, ge=0, description="seconds that a closed session is remembered at least"
    )


class TierSettings(_Group):
    """What lies below the device: host memory, and an external store.

    Objects of the store are loaded to host memory, or straight to the device where there is no host tier (direct).
    """

    host_mib: float | None = Field(
        default=None,
        allow_inf_nan=False,
        description="host memory for the second tier, in MiB; without it there is none",
    )
    write_policy: Literal["write_through", "write_through_selective", "write_back"] = Field(
        default="write_through",
        description="what is copied down a tier, and when: all as it is published, on its second use, at eviction",
    )
    l3: Literal["none", "file", "redis", "mooncake", "memory"] = Field(
        default="none", description="external store, the third tier"
    )
    l3_path: str = Field(
        default="",
        description="folder of the store, or of our own server and its logs; without one ~/.cache/agentcache/BACKEND",
    )
    l3_url: str = Field(
        default="",
        description="redis://HOST:PORT, or HOST:PORT of a Mooncake master; without one a server of our own is started",
    )
    l3_mib: float = Field(
        default=4096.0, gt=0, allow_inf_nan=False, description="what the external store may hold, in MiB"
    )
    l3_deadline_s: float = Field(
        default=2.0,
        gt=0,
        allow_inf_nan=False,
        description="seconds that one call of the external store may take",
    )
    prefetch: Literal["best_effort", "wait_complete", "timeout"] = Field(
        default="timeout",
        description="how long a request waits for the external store: not at all, to the end, a while",
    )
    prefetch_timeout_s: float = Field(
        default=1.0,
        ge=0,
        allow_inf_nan=False,
        description="seconds of that while; a quarter of a second more for each 1,024 tokens",
    )

    @field_validator("host_mib")
    @classmethod
    def _some_memory(cls, value: float | None) -> float | None:
        if value is not None and value <= 0:
            raise ValueError("must be more than 0; for no host tier leave it out")
        return value

    @model_validator(mode="after")
    def _store_is_reachable(self) -> "TierSettings":
        for fault in _store_faults(self):
            raise ValueError(fault)
        return self

    @property
    def l3_folder(self) -> Path:
        """Where an embedded store keeps its files; not made yet."""
        return Path(self.l3_path or f"~/.cache/agentcache/{self.l3}").expanduser()


def _store_faults(tiers: TierSettings) -> Iterator[str]:
    """What was said that the chosen store has no use for. No fault shows the URL: it may hold a password."""
    if not (tiers.l3_path.isprintable() and tiers.l3_url.isprintable()):
        yield "l3_path and l3_url hold printable characters only"
    if not _has_folder(tiers):
        yield "there is no such home folder; name another one in l3_path"
    if tiers.l3_path and tiers.l3 not in ("file", "redis", "mooncake"):
        yield f"l3_path is for l3=file, redis and mooncake, and l3 is {tiers.l3}; leave l3_path out"
    if tiers.l3_url and tiers.l3 not in ("redis", "mooncake"):
        yield f"l3_url is for l3=redis and l3=mooncake, and l3 is {tiers.l3}; leave l3_url out"
    if tiers.l3 == "redis" and tiers.l3_url and tiers.l3_path:
        yield "l3_url names a server that runs already, l3_path is the folder of one of our own; leave one of them out"
    if tiers.l3 == "redis" and tiers.l3_url and not _REDIS_URL.match(tiers.l3_url):
        yield "l3_url for redis must look like redis://HOST:PORT/DB (or rediss://, unix://PATH)"
    if tiers.l3 == "mooncake" and tiers.l3_url and not _HOST_PORT.match(tiers.l3_url):
        yield "l3_url for mooncake must be HOST:PORT of its master"


def _has_folder(tiers: TierSettings) -> bool:
    try:
        tiers.l3_folder.as_posix()
    except RuntimeError:  # what pathlib says of a home that it cannot find
        return False
    return True


class LinkSettings(_Group):
    """How a worker belongs to session routers. Without a store it stands alone."""

    router_dir: str = Field(
        default="",
        description="folder of the router on this machine: its embedded Valkey and the secret are found there",
    )
    redis_url: str = Field(
        default="", description="redis:// or unix:// of the routers' sessions, where the router is elsewhere"
    )
    secret_file: str = Field(
        default="", description="file with the secret that routers sign with; in router_dir it is found"
    )
    worker_id: str = Field(
        default="", max_length=200, description="what routers call this worker; without one HOST:PORT"
    )
    advertise_url: str = Field(
        default="", description="the address at which routers reach it; without one that it listens on"
    )
    role: Literal["both", "prefill", "decode"] = Field(
        default="both",
        description="prefill computes prompts for decode workers, which load them from the external store and answer",
    )
    heartbeat_s: float = Field(
        default=1.0, gt=0, le=60, description="seconds between two signs of life for the routers"
    )
    kv_events: str = Field(
        default="",
        description="ZeroMQ address to publish placement events at, for all (tcp://127.0.0.1:5557); without one "
        "routers alone can read them",
    )
    session_events: str = Field(
        default="",
        description="ZeroMQ address to publish at what happens to sessions, for all (tcp://127.0.0.1:5561); without "
        "one routers alone can read it",
    )

    @model_validator(mode="after")
    def _router_is_named_once(self) -> "LinkSettings":
        for fault in _link_faults(self):
            raise ValueError(fault)
        return self


def _link_faults(link: LinkSettings) -> Iterator[str]:
    """What would leave a worker half tied to its routers."""
    if link.router_dir and link.redis_url:
        yield "router_dir is for a router on this machine, redis_url for one elsewhere; name one of them"
    if link.redis_url and not link.secret_file:
        yield "with redis_url the routers are elsewhere: name the file of the common secret in secret_file"
    if link.secret_file and not link.redis_url:
        yield "secret_file goes with redis_url; with router_dir the secret is in that folder"
    if not (link.router_dir or link.redis_url):
        for name in ("worker_id", "advertise_url"):
            if getattr(link, name):
                yield f"{name} is for routers; name one with router_dir or redis_url, or leave it out"
    if link.advertise_url and not _HTTP_URL.fullmatch(link.advertise_url):
        yield "advertise_url must look like http://HOST:PORT"
    if link.worker_id and not _WORKER_ID.fullmatch(link.worker_id):
        yield "worker_id has letters, digits and . _ : - [ ] only"


class ComputingSettings(_Group):
    """What computes: a model, or nothing at all."""

    engine: Literal["transformers", "accounting"] = Field(
        default="transformers",
        description="transformers computes with the model; accounting computes nothing: the same scheduler and cache "
        "over slots without bytes, answers taken from the requests or made up",
    )
    accounting_prefill_tokens_per_s: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="prompt tokens a second that the accounting engine lets pass for; 0: no time passes",
    )
    accounting_decode_tokens_per_s: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="tokens a second of each answer that it lets pass for, however many run at once; 0: no time passes",
    )


class EngineSettings(ComputingSettings, TierSettings, SessionSettings, CacheSettings, ModelSettings):
    """What an engine is built from."""

    max_running: int = Field(default=8, ge=1, le=1024, description="requests decoded in one batch")
    queue_limit: int = Field(default=64, ge=0, description="requests that may wait; one more gets 429")
    prefill_order: Literal["fcfs", "longest_prefix", "least_uncached"] = Field(
        default="fcfs", description="who begins next: the oldest, or whose prompt is cached best"
    )
    prefill_tokens: int = Field(
        default=512, ge=1, description="prompt tokens computed between two decode steps"
    )

    @model_validator(mode="after")
    def _engine_can(self) -> "EngineSettings":
        for fault in _engine_faults(self):
            raise ValueError(fault)
        return self


def _engine_faults(engine: EngineSettings) -> Iterator[str]:
    """What was said that the chosen engine has no use for."""
    if engine.engine == "accounting":
        if engine.l3 != "none":
            yield f"the accounting engine has no bytes to store, and l3 is {engine.l3}; leave l3 out"
        if engine.device != "cpu":
            yield f"the accounting engine computes on no device, and device is {engine.device}; leave device out"
        return
    for name in ("accounting_prefill_tokens_per_s", "accounting_decode_tokens_per_s"):
        if getattr(engine, name):
            yield f"{name} is for engine=accounting, and engine is {engine.engine}; leave {name} out"


class Settings(LinkSettings, EngineSettings):
    """Everything that a worker is started with."""

    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(default=8100, ge=0, le=65535, description="0 takes a free port")
    body_limit_bytes: int = Field(default=8 * 2**20, ge=1, description="largest request body")
    grace_s: float = Field(default=5.0, ge=0, description="seconds for streams to end after SIGTERM")
    log_format: Literal["text", "json"] = Field(
        default="text", description="one line a request, as text or JSON"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="least level logged"
    )
    otel: bool = Field(
        default=False, description="tell OpenTelemetry of requests, where OTEL_EXPORTER_OTLP_ENDPOINT says"
    )

    @model_validator(mode="after")
    def _role_can_be_played(self) -> "Settings":
        for fault in _role_faults(self):
            raise ValueError(fault)
        return self


def _role_faults(settings: Settings) -> Iterator[str]:
    """What keeps prompts from coming from one worker to another."""
    if settings.role == "both":
        return
    if settings.l3 in ("none", "memory"):
        yield (
            f"role {settings.role} hands prompts from one worker to another through an external store that both share, "
            f"and l3 is {settings.l3}; name one with l3 (file, redis or mooncake), or leave role out"
        )
    if not (settings.router_dir or settings.redis_url):
        yield f"role {settings.role} is for routers; name one with router_dir or redis_url, or leave role out"
    if settings.role == "decode" and settings.prefetch == "best_effort":
        yield "a decode worker waits for what was computed for it; prefetch is timeout or wait_complete there"


def without_password(url: str) -> str:
    """A URL as it may be shown."""
    return _PASSWORD.sub(r"\1***@", url)


WORKER = Program(Settings, others=((f"{ENV_PREFIX}ROUTER_", "router"),))


def resolve(
    flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None = None
) -> Resolved[Settings]:
    """The settings of a worker, as `resolve_for`."""
    return resolve_for(WORKER, flags, environ, file)


def other_store(
    tiers: TierSettings, changes: Mapping[str, object], origins: Mapping[str, str]
) -> TierSettings:
    """The same tiers with another external store, as a request asks for it at run time.

    Caller  `origins` says for every changed field where its value came from
    Errors  CacheError(BAD_CONFIG), as in `resolve`
    """
    kept = {name: getattr(tiers, name) for name in TierSettings.model_fields if name not in _OF_STORE}
    try:
        return TierSettings(**{**kept, **changes})
    except ValidationError as error:
        raise CacheError(Kind.BAD_CONFIG, explain(error, origins)) from None


_OF_STORE = frozenset({"l3", "l3_path", "l3_url", "l3_mib"})

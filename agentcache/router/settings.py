"""Settings of a router: flag > AGENTCACHE_ROUTER_* > the table [router] of agentcache.toml > default."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from agentcache.resolving import ENV_PREFIX, Program

UpstreamKind = Literal["openai", "sglang", "vllm"]
UPSTREAM_KINDS: tuple[UpstreamKind, ...] = ("openai", "sglang", "vllm")
DEFAULT_DIR = "~/.cache/agentcache/router"
_HTTP = re.compile(r"https?://[^/\s?#]+(/[^\s?#]*)?$")
_REDIS = re.compile(r"(rediss?(\+cluster)?://|unix://).")


class PlainUpstream(NamedTuple):
    """An OpenAI-compatible server that is no worker of ours. `url` has no slash at its end."""

    kind: UpstreamKind
    url: str


class _Group(BaseModel):
    """Settings are values: unknown keys are refused, nothing changes later."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class ServerSettings(_Group):
    """Where a router listens, and how it ends."""

    host: str = Field(default="127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65535, description="0 takes a free port")
    workers: int = Field(default=1, ge=1, le=256, description="processes that share the port")
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


class StoreSettings(_Group):
    """Where sessions are kept, and how long."""

    router_dir: str = Field(
        default="", description=f"folder of the embedded Valkey and the secret; without one {DEFAULT_DIR}"
    )
    redis_url: str = Field(
        default="",
        description="redis://, unix:// or redis+cluster:// for the sessions; without one a Valkey of our own",
    )
    secret_file: str = Field(
        default="", description="file with the secret that tags are signed with; in router_dir it is made"
    )
    without_store: Literal["serve", "refuse"] = Field(
        default="serve",
        description="requests while the session store is down: serve them without sessions, or answer 503",
    )
    bindings_s: float = Field(
        default=300.0,
        ge=0,
        description="seconds that a router itself remembers a session's worker, for when the store is down",
    )
    close_wait_s: float = Field(
        default=2.0,
        ge=0,
        le=30,
        description="seconds that a close waits for the workers to say what they released",
    )
    ttl_s: float = Field(
        default=1800.0, gt=0, description="seconds without a request after which a session loses its claim"
    )
    ttl_max_s: float = Field(
        default=3600.0, gt=0, description="the most of these seconds that a request can ask for"
    )
    reopen_after_s: float = Field(
        default=60.0, ge=0, description="seconds after a close from which a request opens the session again"
    )
    worker_s: float = Field(
        default=5.0, gt=0, description="seconds without a heartbeat after which a worker is not alive"
    )
    refresh_s: float = Field(default=0.5, gt=0, le=60, description="seconds between two looks at the workers")
    sweep_s: float = Field(
        default=0.5, gt=0, le=60, description="seconds between two looks for idle sessions"
    )


class PrefillSettings(_Group):
    """Prompts that prefill workers compute for decode workers."""

    prefill_min_tokens: int = Field(
        default=1024,
        ge=1,
        description="tokens of a prompt that a decode worker does not have, from which a prefill worker is asked",
    )
    prefill_timeout_s: float = Field(
        default=30.0, gt=0, le=3600, description="seconds that a request waits for a prefill worker"
    )


class RouterSettings(PrefillSettings, StoreSettings, ServerSettings):
    """Everything that a router is started with."""

    upstream: tuple[str, ...] = Field(
        default=(),
        description="KIND=URL of a server that is no worker of ours, several by commas; KIND: openai, sglang, vllm",
    )
    forward_keys: bool = Field(
        default=False, description="send the client's own API key on to servers that are no workers of ours"
    )
    tenants_file: str = Field(
        default="", description="file with the tenants' API keys; without one everybody is one tenant"
    )
    admin_key_file: str = Field(
        default="", description="file with the key for /v1/workers; without tenants none is needed"
    )
    attempts: int = Field(
        default=3, ge=1, le=16, description="workers tried for one request before its first byte"
    )
    learn_waits: bool = Field(
        default=True,
        description="learn how long tools take, and tell the workers when sessions are expected back",
    )

    @field_validator("upstream", mode="before")
    @classmethod
    def _several(cls, value: object) -> object:
        """One text names several, parted by commas or blanks."""
        return tuple(part for part in re.split(r"[,\s]+", value) if part) if isinstance(value, str) else value

    @field_validator("upstream")
    @classmethod
    def _upstreams_are_urls(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for named in value:
            kind, _, url = named.partition("=")
            if kind not in UPSTREAM_KINDS or not _HTTP.match(url):
                raise ValueError(f"must be KIND=URL, KIND one of {', '.join(UPSTREAM_KINDS)}, URL http://…")
        return value

    @model_validator(mode="after")
    def _places_are_told_once(self) -> "RouterSettings":
        for fault in _faults(self):
            raise ValueError(fault)
        return self

    @property
    def folder(self) -> Path:
        """Where the embedded Valkey and the secret are; not made yet."""
        return Path(self.router_dir or DEFAULT_DIR).expanduser()

    @property
    def upstreams(self) -> tuple[PlainUpstream, ...]:
        """The servers that are no workers of ours."""
        return tuple(_plain(named) for named in self.upstream)


ROUTER = Program(RouterSettings, f"{ENV_PREFIX}ROUTER_", table="router")
"""`router_dir` is AGENTCACHE_ROUTER_DIR here too: workers and routers of one machine share the variable."""


def _plain(named: str) -> PlainUpstream:
    kind, _, url = named.partition("=")
    (known,) = (known for known in UPSTREAM_KINDS if known == kind)
    return PlainUpstream(known, url.rstrip("/"))


def _faults(settings: RouterSettings) -> Iterator[str]:
    """What was said that does not go together. No fault shows the URL: it may hold a password."""
    if settings.redis_url and not _REDIS.match(settings.redis_url):
        yield "redis_url must look like redis://HOST:PORT/DB (or rediss://, unix://PATH, redis+cluster://)"
    if settings.redis_url and not settings.secret_file:
        yield "with redis_url the workers are elsewhere: name the file of the common secret in secret_file"
    if settings.secret_file and not settings.redis_url:
        yield "secret_file goes with redis_url; with router_dir the secret is in that folder"

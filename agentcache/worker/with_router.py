"""`agentcache serve --with-router`: a router of our own beside the worker, which ends when the worker does."""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from agentcache.config import Settings
from agentcache.embedded import STOP_S, GuardedProcess
from agentcache.errors import CacheError, Kind
from agentcache.resolving import resolve_for
from agentcache.router.settings import ROUTER
from agentcache.web.listening import bind
from agentcache.worker.serve import serve

START_S: Final = 30.0
LOOK_S: Final = 0.05
MARGIN_S: Final = 5.0


def serve_with_router(
    settings: Settings,
    router_port: int,
    file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    run: Callable[[Settings], int] = serve,
) -> int:
    """Start a router, join it, serve; the exit code is the worker's.

    The router's own settings come from its variables and its table in the settings `file`, but for its port, and for
    where the sessions are, which both share: as the worker's settings say, else as the router's.

    Errors   CacheError(BAD_CONFIG): a router that does not start says why on stderr; as `serve`
    """
    with bind(settings.host, router_port) as free:
        port = free.getsockname()[1]
    joined = settings.model_copy(update=_place(settings, file, environ))
    command = [sys.executable, "-m", "agentcache.router.command", "--port", str(port)]
    command += ["--config", str(file)] if file else []
    command += ["--otel"] if settings.otel else []
    command += [
        "--host",
        settings.host,
        "--log-format",
        settings.log_format,
        "--log-level",
        settings.log_level,
    ]
    router = GuardedProcess(
        command, None, environ={**environ, **_told(joined)}, stop_s=max(STOP_S, settings.grace_s + MARGIN_S)
    )
    try:
        url = _until_it_answers(router, settings.host, port)
        threading.Thread(target=_tell_when_ready, args=(router, url), daemon=True).start()
        return run(joined)
    finally:
        router.stop()


def _place(settings: Settings, file: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    """What the worker's settings leave open about where the sessions are. Errors: BAD_CONFIG."""
    if settings.redis_url or settings.router_dir:
        return {}
    router = resolve_for(ROUTER, {}, environ, file).settings
    if router.redis_url:
        return {"redis_url": router.redis_url, "secret_file": router.secret_file}
    return {"router_dir": str(router.folder)}


def _told(settings: Settings) -> dict[str, str]:
    """Where the sessions are, told in the environment: a URL may hold a password. "" overrules a settings file."""
    return {
        "AGENTCACHE_ROUTER_DIR": settings.router_dir,
        "AGENTCACHE_ROUTER_REDIS_URL": settings.redis_url,
        "AGENTCACHE_ROUTER_SECRET_FILE": settings.secret_file,
    }


def _until_it_answers(router: GuardedProcess, host: str, port: int) -> str:
    """The router's URL, once it serves."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    url = f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
    for _ in range(round(START_S / LOOK_S)):
        if not router.alive:
            break
        if _answers(f"{url}/health"):
            return url
        time.sleep(LOOK_S)
    raise CacheError(
        Kind.BAD_CONFIG,
        f"the router on port {port} did not start; it says why above. Choose another with --router-port",
    )


def _tell_when_ready(router: GuardedProcess, url: str) -> None:
    """The line that says where clients go, once the router has found the worker."""
    while router.alive:
        if _answers(f"{url}/ready"):
            print(f"router listening on {url}", flush=True)
            return
        time.sleep(LOOK_S)


def _answers(url: str) -> bool:
    try:
        urlopen(url, timeout=1).close()
    except OSError:
        return False
    return True

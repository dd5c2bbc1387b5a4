"""What a router says when it starts."""

from agentcache.resolving import ENV_PREFIX
from agentcache.router.settings import RouterSettings


def banner(settings: RouterSettings, url: str, place: str) -> str:
    """Where sessions are, who else is asked, how a worker joins, and what a client sets.

    Shapes  `place`: the store as it may be shown. Ends with the parsable `listening on URL`.
    """
    rows = {
        "sessions": f"{place}; without it requests are {_WITHOUT[settings.without_store]}",
        "upstreams": ", ".join(f"{plain.kind} {plain.url}" for plain in settings.upstreams),
        "processes": str(settings.workers) if settings.workers > 1 else "",
        "workers": _joining(settings),
        "clients": f"export OPENAI_BASE_URL={url}/v1   (ANTHROPIC_BASE_URL={url})",
        "sessions by": "the header x-agentcache-session, or what agent tools send by themselves",
    }
    lines = [f"  {name:<11} {text}" for name, text in rows.items() if text]
    return "\n".join(["agentcache router", *lines, f"listening on {url}"])


_WITHOUT = {"serve": "served without sessions", "refuse": "refused"}


def _joining(settings: RouterSettings) -> str:
    if settings.redis_url:
        return f"agentcache serve --redis-url … --secret-file {settings.secret_file}"
    return f"agentcache serve --router-dir {settings.folder}   (or {ENV_PREFIX}ROUTER_DIR)"

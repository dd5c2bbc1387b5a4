"""Paths and query strings, read strictly."""

from urllib.parse import parse_qsl

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request

from agentcache.errors import CacheError, Kind
from agentcache.web.status import refuse


class AnyPath(PathConvertor):
    """The rest of a path with its line breaks, so that `a%0A` is a malformed id and not the session `a`."""

    regex = "(?s:.*)"


register_url_convertor("any", AnyPath())


def read_query(request: Request) -> dict[str, str]:
    """The query's values. Errors: CacheError(BAD_REQUEST) for one that is sent twice or is not UTF-8."""
    try:
        pairs = parse_qsl(
            request.scope["query_string"].decode("ascii"), keep_blank_values=True, errors="strict"
        )
    except UnicodeError:
        raise CacheError(Kind.BAD_REQUEST, "the query is not valid UTF-8") from None
    values: dict[str, str] = {}
    for name, value in pairs:
        if values.setdefault(name, value) != value:
            raise refuse(f"{name} is sent more than once with different values", name)
    return values


def query_flag(query: dict[str, str], name: str) -> bool:
    """A flag of a query, false when absent. Errors: CacheError(BAD_REQUEST)."""
    value = query.get(name, "0").lower()
    if value not in ("0", "1", "true", "false"):
        raise refuse(f"{name} must be true or false", name)
    return value in ("1", "true")

"""Which methods a path takes, for the answer to another one."""

from starlette.requests import Request
from starlette.routing import Match, Route


def allowed_methods(request: Request) -> str:
    """The header `Allow`: the methods of all routes of this path, and not just of the first one."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    found = (route.methods for route in routes if route.matches(request.scope)[0] is not Match.NONE)
    return ", ".join(sorted({method for methods in found for method in methods or ()}))

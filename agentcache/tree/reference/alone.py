"""One call at a time: a core refuses a call while another one runs."""

import threading
from collections.abc import Callable
from functools import wraps
from inspect import isfunction
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from agentcache.errors import CacheError, Kind


class Occupied(Protocol):
    """Something that is `running` while one of its calls is."""

    running: threading.Lock


Core = TypeVar("Core", bound=Occupied)
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def alone(core: type[Core]) -> type[Core]:
    """Decorate a class: each public method is refused with IN_USE while any of them runs on the same object.

    A second thread is refused, and so is code of an argument that calls back. Nobody waits, nothing is half done.
    """
    for name, method in list(vars(core).items()):
        if isfunction(method) and not name.startswith("_"):
            setattr(core, name, _guarded(method))
    return core


def _guarded(
    method: Callable[Concatenate[Core, Given], Answer],
) -> Callable[Concatenate[Core, Given], Answer]:
    @wraps(method)
    def guarded(self: Core, /, *args: Given.args, **named: Given.kwargs) -> Answer:
        if not self.running.acquire(blocking=False):
            raise CacheError(
                Kind.IN_USE,
                "another call of this core is running; call it from one thread",
                call=method.__name__,
            )
        try:
            return method(self, *args, **named)
        finally:
            self.running.release()

    return guarded

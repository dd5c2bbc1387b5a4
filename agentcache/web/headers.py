"""Request headers, read strictly: a name that is sent twice says the same twice, flags are 0 or 1."""

from agentcache.web.status import refuse

RawHeaders = list[tuple[bytes, bytes]]


class RequestHeaders:
    """The headers of one request, by lower-case name; a name that is sent twice must say the same twice."""

    def __init__(self, raw: RawHeaders) -> None:
        self._values: dict[str, set[bytes]] = {}
        for name, value in raw:
            self._values.setdefault(name.decode("latin-1").lower(), set()).add(value.strip())

    def has(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str:
        """The value, "" when absent.

        Errors   CacheError(BAD_REQUEST) for contradictions and bytes that are not UTF-8
        """
        values = self._values.get(name, set())
        if len(values) > 1:
            raise refuse(f"the header {name} is sent more than once with different values", name)
        try:
            return "".join(value.decode("utf-8") for value in values)
        except UnicodeDecodeError:
            raise refuse(f"the header {name} is not valid UTF-8", name) from None

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name).lower()
        if value in ("1", "true"):
            return True
        if value in ("0", "false"):
            return False
        if value:
            raise refuse(f"the header {name} must be 0 or 1", name)
        return default

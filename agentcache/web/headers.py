"""Request headers, read strictly: a name that is sent twice says the same twice, flags are 0 or 1."""

from collections.abc import Set

from agentcache.web.status import refuse

RawHeaders = list[tuple[bytes, bytes]]


class RequestHeaders:
    """The headers of one request, by lower-case name; a name that is sent twice must say the same twice."""

    def __init__(self, raw: RawHeaders) -> None:
        self._values: dict[str, bytes] = {}
        self._contradicted: set[str] = set()
        for raw_name, raw_value in raw:
            name, value = raw_name.decode("latin-1").lower(), raw_value.strip()
            if self._values.setdefault(name, value) != value:
                self._contradicted.add(name)

    @property
    def names(self) -> Set[str]:
        return self._values.keys()

    def has(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str:
        """The value, "" when absent.

        Errors   CacheError(BAD_REQUEST) for contradictions and bytes that are not UTF-8
        """
        if name in self._contradicted:
            raise refuse(f"the header {name} is sent more than once with different values", name)
        try:
            return self._values.get(name, b"").decode("utf-8")
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

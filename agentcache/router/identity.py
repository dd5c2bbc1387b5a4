"""Which session a request belongs to, by every header and field that agent tools already send.

    our own header ─┐
    TABLE, in order ┴► session ─► agents of it (Claude Code) ─► parent, hints

Our own names are read strictly: what is malformed or contradicts itself is the client's fault. Names of others are
forgiven: what cannot be an id is left out, and named in `ignored`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agentcache import wire
from agentcache.errors import CacheError
from agentcache.ids import checked_id
from agentcache.router.sender_names import BODY_SESSION, TABLE, Place, Role, Row, sent, spellings
from agentcache.web.fields import Fields
from agentcache.web.headers import RequestHeaders
from agentcache.web.naming import named_id, read_expected, read_generation
from agentcache.web.status import refuse

_WITH_AGENTS: Final = frozenset(row.group for row in TABLE if row.role is Role.AGENT)


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a request speaks for. `session` "" is a request without one; `source` says which names gave it.

    `final`: it is the session's last request. `fork`: it inherits its parent's path. `family`: requests that share a
    prefix, for placement only, never for a close. `expected_s`: seconds until the session is back, 0 when unknown.
    `ttl_s`: the idle lease that it has from now on, 0 as before. `ignored`: names of others that were sent and make no
    sense, with the reason.
    """

    session: str = ""
    parent: str = ""
    parent_bad: bool = False
    source: str = ""
    fence: int | None = None
    strict: bool = False
    superseded: bool = False
    final: bool = False
    fork: bool = False
    family: str = ""
    expected_s: float = 0.0
    ttl_s: float = 0.0
    ignored: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """Source and what was ignored, in a few words: `id from x-session-id; ignored thread-id (over 256 bytes)`."""
        source = f"id from {self.source}" if self.source else "no session id"
        return "; ".join([source, *(f"ignored {name}" for name in self.ignored)])


@dataclass(frozen=True, slots=True)
class _Claim:
    """A session that a row names."""

    row: Row
    session: str


def identify(headers: RequestHeaders, fields: Fields) -> Identity:
    """The identity of a request.

    Errors   CacheError(BAD_REQUEST): our own names contradict each other, or a fence comes without a session;
             CacheError(BAD_SESSION_ID): one of our own names carries what is no id
    Cost     microseconds, and more only for names of the table that are sent
    """
    reading = _Reading(headers, fields)
    own = _own_session(headers, fields)
    claims = tuple(reading.claims())
    if own:
        session, source, above = own, wire.SESSION, ""
    else:
        session, source, above = reading.taken(claims)
    others = _others(session, claims)
    parent, parent_bad = reading.parent(session, above, others)
    return Identity(
        session=session,
        parent=parent,
        parent_bad=parent_bad,
        source=source,
        fence=_fence(headers, session),
        strict=headers.flag(wire.STRICT, default=False),
        superseded=headers.flag(
            wire.SUPERSEDED, default=any(map(reading.says, reading.rows(Role.SUPERSEDED)))
        ),
        fork=headers.flag(wire.FORK, default=False),
        final=bool(session) and any(map(reading.affirms, reading.rows(Role.FINAL, others))),
        family=reading.family(),
        expected_s=read_expected(headers.text(wire.EXPECTED), wire.EXPECTED),
        ignored=tuple(reading.ignored),
    )


def _own_session(headers: RequestHeaders, fields: Fields) -> str:
    """The session of our own header, checked against the body's; "" if there is no such header."""
    named, in_body = headers.text(wire.SESSION), fields.text(BODY_SESSION)
    if fields.has(BODY_SESSION):
        named_id(in_body, BODY_SESSION)
    if not headers.has(wire.SESSION):
        return ""
    if in_body and named != in_body:
        raise refuse(
            f"{BODY_SESSION} and the header {wire.SESSION} name different sessions; send one", BODY_SESSION
        )
    return named_id(named, wire.SESSION)


def _fence(headers: RequestHeaders, session: str) -> int | None:
    fence = read_generation(headers.text(wire.GENERATION), wire.GENERATION)
    if not session and fence is not None:
        raise refuse(f"{wire.GENERATION} needs a session: name one in {wire.SESSION}", wire.GENERATION)
    return fence


def _others(session: str, claims: tuple[_Claim, ...]) -> frozenset[str]:
    """The groups that speak of another session than the one that was taken; those that name none do not."""
    agreeing = {claim.row.group for claim in claims if claim.session == session}
    return frozenset(claim.row.group for claim in claims) - agreeing


class _Reading:
    """The values of one request by row, read forgivingly, and what had to be ignored."""

    def __init__(self, headers: RequestHeaders, fields: Fields) -> None:
        self._headers = headers
        self._fields = fields
        self._sent = sent(headers, fields)
        self.ignored: list[str] = []

    def rows(self, role: Role, without: frozenset[str] = frozenset()) -> Sequence[Row]:
        """What is sent of a role, first one first, but for some groups."""
        return [row for row in self._sent.get(role, ()) if row.group not in without]

    def claims(self) -> Iterator[_Claim]:
        """Every session that is named, first one first."""
        for row in self.rows(Role.SESSION):
            session = self.id(row)
            if session:
                yield _Claim(row, session)

    def taken(self, claims: tuple[_Claim, ...]) -> tuple[str, str, str]:
        """Session, source and the parent that comes with a sub-agent ("" for none).

        A sub-agent's session is `session/agent`, its parent `session/parent agent`, or the session itself. Neither
        part of a group with agents has a slash, so no two sub-agents are one; by that name the API reaches it.
        """
        agents = [row for row in self.rows(Role.AGENT) if self.id(row)]
        if not claims:
            for row in agents:
                self._ignore(row, "without a session")
            return "", "", ""
        first = claims[0]
        for row in agents:
            if any(claim.row.group == row.group and claim.session == first.session for claim in claims):
                return self._composed(first, row)
        return first.session, first.row.name, ""

    def _composed(self, claim: _Claim, row: Row) -> tuple[str, str, str]:
        session = f"{claim.session}/{self.id(row)}"
        if _fault(session):
            self._ignore(row, "too long behind its session")
            return claim.session, claim.row.name, ""
        above = [self.id(other) for other in self.rows(Role.PARENT_AGENT) if other.group == row.group]
        parent = "/".join([claim.session, *filter(None, above)])
        return session, f"{claim.row.name} + {row.name}", parent

    def parent(self, session: str, above: str, others: frozenset[str]) -> tuple[str, bool]:
        """The parent, and whether one was named that cannot be: ours first, then the sub-agent's, then others'."""
        if not session:
            return "", False
        if self._headers.has(wire.PARENT):
            named, fault = self._text(Row(Role.PARENT, Place.HEADER, wire.PARENT, "", ""))
            return _unlike(session, "" if fault or _fault(named) else named, True)
        ignored = len(self.ignored)
        named = above or next(filter(None, map(self.id, self.rows(Role.PARENT, others))), "")
        return _unlike(session, named, len(self.ignored) > ignored or bool(named))

    def family(self) -> str:
        return next(filter(None, map(self.id, self.rows(Role.FAMILY))), "")

    def says(self, row: Row) -> bool:
        """Whether something is said to be so: anything but 0, false, none and nothing."""
        return self._text(row)[0].lower() not in ("", "0", "false", "none", "null")

    def affirms(self, row: Row) -> bool:
        """Whether a flag is set, by no other word than 1 or true: a session ends by it."""
        return self._text(row)[0].lower() in ("1", "true")

    def id(self, row: Row) -> str:
        """The id that a row carries; "" when it is not sent, blank or ignored."""
        text, fault = self._text(row)
        if text and not fault:
            fault = _fault(text)
        if not fault and row.group in _WITH_AGENTS and "/" in text:
            fault = "has a slash"
        if fault:
            self._ignore(row, fault)
        return "" if fault else text

    def _text(self, row: Row) -> tuple[str, str]:
        """The value without blanks around it, and what is wrong with how it was sent."""
        if row.place is Place.BODY:
            return _body_text(self._fields.values, row.name)
        spelled = filter(self._headers.has, spellings(row))
        try:
            texts = set(map(self._headers.text, spelled)) - {""}
        except CacheError:
            return "", "sent twice, or not UTF-8"
        if len(texts) > 1:
            return "", "sent twice with different values"
        return "".join(texts).strip(), ""

    def _ignore(self, row: Row, fault: str) -> None:
        said = f"{row.name} ({fault})"
        if said not in self.ignored:
            self.ignored.append(said)


def _unlike(session: str, parent: str, named: bool) -> tuple[str, bool]:
    """A parent other than the session itself, and whether one was named in vain."""
    if not parent or parent == session:
        return "", named
    return parent, False


def _fault(text: str) -> str:
    """What keeps a text from being an id; "" if nothing does."""
    try:
        checked_id(text)
    except CacheError as error:
        return error.message.replace("a session id", "an id", 1)
    return ""


def _body_text(values: object, path: str) -> tuple[str, str]:
    """A value of the body by its path, as text, and what is wrong with its type."""
    for name in path.split("."):
        values = values.get(name) if isinstance(values, Mapping) else None
        if values is None:
            return "", ""
    if isinstance(values, str):
        return values.strip(), ""
    if isinstance(values, bool):
        return str(values).lower(), "is no string"
    return "", "" if not values else "is no string"

"""Parents: whom a session may name, and the one that it has."""

from agentcache.errors import CacheError, Kind
from agentcache.ids import MAX_DEPTH, MAX_SCOPED_BYTES, checked_id
from agentcache.records import SessionRecord, SessionRecords
from agentcache.types import SessionId, SessionState, SessionTag


def adopt(records: SessionRecords, record: SessionRecord, tag: SessionTag) -> bool:
    """Take the parent that a tag names, once. False: ignored."""
    parent = tag.parent or ""
    if tag.issued:
        return _adopt_issued(records, record, SessionId(parent))
    if record.state is not SessionState.OPEN or record.parent is not None:
        return record.parent == parent
    try:
        records.link(record, checked_parent(records, record.session, parent))
    except CacheError:
        return False
    return True


def checked_parent(records: SessionRecords, session: SessionId, named: str) -> SessionId:
    """The parent that a session may have.

    Errors  BAD_SESSION_ID; SESSION_UNKNOWN, SESSION_CLOSED; BAD_REQUEST where it is the session itself, or below it, or
            too deep
    """
    parent = records.find(checked_id(named, MAX_SCOPED_BYTES))
    if not parent.known and parent.session != session:
        raise CacheError(
            Kind.SESSION_UNKNOWN, "no session has the parent's id here; open it first", parent=named
        )
    if parent.state is SessionState.CLOSED:
        raise CacheError(Kind.SESSION_CLOSED, "the parent is closed; open it again first", parent=named)
    above = tuple(records.ancestors(parent.session))
    if session in above:
        raise CacheError(
            Kind.BAD_REQUEST,
            "the parent is the session itself, or descends from it",
            session=session,
            parent=named,
        )
    if len(above) > MAX_DEPTH:
        said = f"a session has at most {MAX_DEPTH} sessions above it: name a parent higher up"
        raise CacheError(Kind.BAD_REQUEST, said, session=session, parent=named)
    return parent.session


def _adopt_issued(records: SessionRecords, record: SessionRecord, parent: SessionId) -> bool:
    """Take the parent that a router names, known here or not: it may be with another worker. False: a cycle."""
    if record.state is not SessionState.OPEN or record.parent == parent:
        return True
    if record.session in records.ancestors(parent):
        return False
    records.link(record, parent)
    return True

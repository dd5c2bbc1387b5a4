"""Sessions as the API shows them: the worker's shapes, and beside them worker, holders and what each of these said."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from agentcache.router.closing import CloseAnswer, ClosedSession, Told
from agentcache.router.holders import Asked
from agentcache.store.api import Opened, OpenVerdict, SessionRecord
from agentcache.types import SessionState
from agentcache.web.reply import Json
from agentcache.wire import HeldPart

MAX_CHILDREN: Final = 1000
"""Descendants that the answer to a close names."""
NAMED_CHILDREN: Final = 100
"""Open children that a session shows."""
MAX_TURNS: Final = 32


def opened_json(session: str, opened: Opened) -> Json:
    return {
        "object": "session",
        "session_id": session,
        "generation": opened.generation,
        "created": opened.verdict is OpenVerdict.CREATED,
        "worker": opened.worker or None,
        "open_sessions": opened.open_sessions,
    }


def record_json(record: SessionRecord) -> Json:
    """A session as the store knows it. Times in seconds."""
    closed = record.state == SessionState.CLOSED
    return {
        "object": "session",
        "session_id": record.ref.session,
        "state": record.state,
        "generation": record.generation,
        "closed_through": record.generation if closed else 0,
        "parent": record.parent or None,
        "children": record.children,
        "in_flight": record.in_flight,
        "idle_s": record.idle_s,
        "ttl_s": record.ttl_s,
        "on_close": record.on_close,
        "worker": record.worker or None,
        "holders": list(record.holders),
        "paused": {"tool": record.paused, "expected_s": record.expected_s} if record.paused else None,
    }


def view_json(record: SessionRecord, asked: tuple[Asked, ...]) -> Json:
    """A session with what its holders have of it, together and each.

    `child_sessions` are the children that the record names. The wait is the one that its own worker tells of; turns of
    all, newest first.
    """
    held = parts_json(together(part for one in asked for part in one.view.held))
    markers = sum(one.view.markers for one in asked)
    waits = {one.worker: one.view.wait for one in asked}
    return {
        **record_json(record),
        "child_sessions": list(record.child_names),
        "queued": sum(one.view.queued for one in asked),
        "running": sum(one.view.running for one in asked),
        "markers": markers,
        "held": held,
        "closing": {"mode": record.on_close, "markers": markers, "released": held},
        "wait": msgspec.to_builtins(waits.get(record.worker)),
        "turns": _turns(asked),
        "workers": [
            _worded(
                {
                    "worker": one.worker,
                    "state": one.view.state,
                    "markers": one.view.markers,
                    "held": parts_json(one.view.held),
                },
                one.said,
            )
            for one in asked
        ],
    }


def _turns(asked: Iterable[Asked]) -> list[Json]:
    """The last turns at any worker; their clocks decide what came first."""
    told = ({**msgspec.to_builtins(turn), "worker": one.worker} for one in asked for turn in one.view.turns)
    return sorted(told, key=lambda turn: -turn["at"])[:MAX_TURNS]


def closed_json(session: str, answer: CloseAnswer, mode: str) -> Json:
    """The answer to a close. `mode` is what was asked, "" for each session's own; workers say what they did."""
    own = next((one for one in answer.sessions if one.session == session), ClosedSession(session, 0))
    children = [one for one in answer.sessions if one.session != session]
    return {
        **_closed_one(ClosedSession(session, answer.generation, own.told), mode),
        "children": [_closed_one(one, mode) for one in children[:MAX_CHILDREN]],
        "more": answer.more or len(children) > MAX_CHILDREN,
    }


def preview_json(record: SessionRecord, asked: tuple[Asked, ...]) -> Json:
    """What a close would let go of, by what the holders have now."""
    told = tuple(
        Told(
            one.worker,
            "failed" if one.said else "preview",
            "preview",
            one.view.markers,
            one.view.held,
            one.said,
        )
        for one in asked
    )
    said = _closed_one(ClosedSession(record.ref.session, record.generation, told), "preview")
    return {**said, "state": record.state}


def parts_json(parts: Iterable[HeldPart]) -> list[Json]:
    """Tokens, slots and bytes by component and tier, and how many slots other sessions reference, too."""
    return [msgspec.structs.asdict(part) for part in parts]


def together(parts: Iterable[HeldPart]) -> Iterator[HeldPart]:
    """The same parts of several workers as one, by component and tier."""
    total: dict[tuple[str, str], HeldPart] = {}
    for part in parts:
        kind = (part.component, part.tier)
        total[kind] = _sum(total[kind], part) if kind in total else part
    return iter(total.values())


def _sum(one: HeldPart, other: HeldPart) -> HeldPart:
    return HeldPart(
        one.component,
        one.tier,
        one.tokens + other.tokens,
        one.slots + other.slots,
        one.bytes + other.bytes,
        one.shared_slots + other.shared_slots,
    )


def _closed_one(one: ClosedSession, mode: str) -> Json:
    done = sorted({told.mode for told in one.told if told.mode})
    return {
        "object": "session.closed",
        "session_id": one.session,
        "state": str(SessionState.CLOSED),
        "generation": one.generation,
        "mode": ", ".join(done) or mode or "on_close",
        "markers": sum(told.markers for told in one.told),
        "released": parts_json(together(part for told in one.told for part in told.released)),
        "workers": [_told_json(told) for told in one.told],
    }


def _told_json(told: Told) -> Json:
    return _worded(
        {
            "worker": told.worker,
            "outcome": told.outcome,
            "mode": told.mode or None,
            "markers": told.markers,
            "released": parts_json(told.released),
        },
        told.said,
    )


def _worded(said: Json, why: str) -> Json:
    return {**said, "said": why} if why else said

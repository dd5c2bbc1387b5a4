"""`kv_hints`, the envelope of vLLM and SGLang: what an orchestrator asks of a cache beside a request.

    {protocol_version, message_id, actions: [{action_id, action_type, action_version, payload}]}

No action holds anything. From whoever may not send hints, the envelope is not even read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from agentcache.web.fields import Fields
from agentcache.web.session_fields import MAX_S, MIN_TTL_S
from agentcache.web.status import refuse

KV_HINTS: Final = "kv_hints"
MAX_ACTIONS: Final = 16
NOT_ALLOWED: Final = "not allowed"
_WORDS: Final = ("protocol_version", "message_id")
_ACTION_WORDS: Final = ("action_id", "action_version")


@dataclass(slots=True)
class Hints:
    """The actions of an envelope, each by its place: `kv_hints.actions[0]`.

    `leases`: seconds that the session may idle; `expecting` are those that say when it is back, `expected_s` from its
    turn's end; `ignored` says why.
    """

    leases: dict[str, float] = field(default_factory=dict)
    expected_s: float = 0.0
    expecting: tuple[str, ...] = ()
    ignored: list[tuple[str, str]] = field(default_factory=list)


def read_hints(fields: Fields, allowed: bool) -> Hints:
    """The hints of a request that has some.

    Errors   CacheError(BAD_REQUEST) with the field's name, only for whoever is `allowed`
    """
    hints = Hints()
    if not allowed:
        hints.ignored.append((KV_HINTS, NOT_ALLOWED))
        return hints
    envelope = fields.inner(KV_HINTS)
    for word in _WORDS:
        envelope.text(word)
    if len(envelope.array("actions")) > MAX_ACTIONS:
        raise refuse(f"{KV_HINTS}.actions has at most {MAX_ACTIONS} actions", f"{KV_HINTS}.actions")
    for action in envelope.objects("actions"):
        for word in _ACTION_WORDS:
            action.text(word)
        if not action.text("action_type"):
            raise action.wrong("action_type", "the name of an action")
        _READERS.get(_verb(action), _unknown)(action, hints)
    return hints


def _verb(action: Fields) -> str:
    """`kv.Retain@1.0` is `retain`."""
    return action.text("action_type").partition("@")[0].rpartition(".")[2].lower()


def _retain(action: Fields, hints: Hints) -> None:
    payload = action.inner("payload")
    if payload.has("ttl_s"):
        hints.leases[action.place] = payload.number("ttl_s", 0.0, MIN_TTL_S, MAX_S)
    else:
        hints.ignored.append((action.place, "retain without ttl_s: what a turn computes is kept anyway"))


def _prefetch(action: Fields, hints: Hints) -> None:
    payload = action.inner("payload")
    if payload.has("expected_s"):
        hints.expected_s = payload.number("expected_s", 0.0, MIN_TTL_S, MAX_S)
        hints.expecting = (action.place,)
    else:
        hints.ignored.append(
            (action.place, "prefetch without expected_s: a prompt is looked for on every tier")
        )


def _demote(action: Fields, hints: Hints) -> None:
    hints.ignored.append((action.place, "demote: close the session with mode=demote"))


def _pin(action: Fields, hints: Hints) -> None:
    hints.ignored.append((action.place, "pin: nothing is ever pinned"))


def _unknown(action: Fields, hints: Hints) -> None:
    hints.ignored.append((action.place, "unknown action"))


_READERS: Final[Mapping[str, Callable[[Fields, Hints], None]]] = {
    "retain": _retain,
    "prefetch": _prefetch,
    "demote": _demote,
    "pin": _pin,
}

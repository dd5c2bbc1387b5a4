"""What becomes of a request's wishes for its prompt: into the session's tag, and into the answer."""

from collections.abc import Iterator
from dataclasses import replace

from agentcache.engine.api import Admitted
from agentcache.types import SessionId, SessionState, SessionTag
from agentcache.web.reply import Json
from agentcache.web.retention import NO_SESSION, Leases, Outcome, Retention, Verdict
from agentcache.worker.headers import Identity
from agentcache.worker.prompts import Prompted

_HELD = (SessionState.OPEN, SessionState.EXPIRED)


def wishing(identity: Identity, retention: Retention, leases: Leases) -> Identity:
    """The identity with the lease that its session gets, and when it is back. A router's tag says both itself."""
    tag = identity.tag
    if not tag or tag.issued:
        return identity
    ttl_s, expected_s = leases.grant(retention.leases), tag.expected_s or retention.expected_s
    return replace(identity, tag=replace(tag, ttl_s=ttl_s, expected_s=expected_s))


def verdicts(
    retention: Retention, identity: Identity, admitted: Admitted, prompted: Prompted, grid_tokens: int
) -> tuple[Verdict, ...]:
    """What became of each wish, for the answer."""
    tag = identity.tag or SessionTag(SessionId(""))
    why_not = "" if identity.tag else NO_SESSION
    if identity.tag and admitted.state not in _HELD:
        why_not = f"the session is {admitted.state}"
    kept = retention.verdicts(tag.ttl_s, tag.expected_s, why_not)
    return (*kept, *_marks(retention, admitted, prompted, grid_tokens))


def verdicts_json(said: tuple[Verdict, ...]) -> Json:
    """`agentcache.retention`, by field."""
    return {one.name: {"outcome": str(one.outcome), "said": one.said} for one in said}


def _marks(
    retention: Retention, admitted: Admitted, prompted: Prompted, grid_tokens: int
) -> Iterator[Verdict]:
    """A mark is kept where a boundary is published at most a chunk before it, or is there already."""
    for name in retention.marked:
        ends = [end for named, end in prompted.marks if named == name]
        floors = [end - end % grid_tokens for end in ends]
        kept = [at for at in floors if at in admitted.boundaries]
        if not kept:
            yield Verdict(name, Outcome.IGNORED, f"no boundary within {grid_tokens} tokens before it")
        elif len(kept) < len(ends):
            yield Verdict(name, Outcome.CLIPPED, f"{len(kept)} of {len(ends)} at a boundary")
        else:
            yield Verdict(name, Outcome.ACCEPTED, f"{len(kept)} at a boundary")

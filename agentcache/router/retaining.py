"""How long a request wants its prompt kept, at the router: the session's lease is here, all else is the worker's."""

from dataclasses import dataclass, replace

from agentcache.errors import CacheError
from agentcache.router.identity import Identity
from agentcache.router.settings import RouterSettings
from agentcache.router.standing import Standing
from agentcache.router.tenants import Tenant
from agentcache.web.fields import Fields
from agentcache.web.retention import (
    NO_SESSION,
    NOTHING_ASKED,
    WORDS,
    Leases,
    Outcome,
    Retention,
    Verdict,
    header_text,
    read_retention,
)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What requests may ask for at this router."""

    leases: Leases

    def read(
        self, identity: Identity, fields: Fields, body: bytes, tenant: Tenant
    ) -> tuple[Identity, Retention]:
        """The identity with the lease that its session gets, and what was asked for in a body.

        What makes no sense is left to whoever serves the request: other servers than ours may know more words.
        """
        if not any(word in body for word in WORDS):
            return identity, NOTHING_ASKED
        try:
            asked = read_retention(fields, tenant.kv_hints)
        except CacheError:
            return identity, NOTHING_ASKED
        ttl_s, expected_s = self.leases.grant(asked.leases), identity.expected_s or asked.expected_s
        return replace(identity, ttl_s=ttl_s, expected_s=expected_s), asked


def wishes(settings: RouterSettings) -> Wishes:
    """As the settings allow; nobody is refused the lease that all have."""
    return Wishes(Leases(settings.ttl_s, max(settings.ttl_s, settings.ttl_max_s)))


def plainly_kept(asked: Retention, standing: Standing) -> str:
    """What became of it at a server that is none of ours, as a header; "" where nothing was asked."""
    why_not = "" if standing.referenced else NO_SESSION
    passed = [Verdict(name, Outcome.IGNORED, "passed on as it is") for name in asked.marked]
    return header_text((*asked.verdicts(standing.tagged.ttl_s, 0.0, why_not), *passed))

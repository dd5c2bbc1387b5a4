"""The page as bytes: what was seen, put into the templates. Every value is escaped there."""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final
from urllib.parse import urlencode

import jinja2

from agentcache.router.dashboard import words
from agentcache.router.dashboard.answers import Turn
from agentcache.router.dashboard.drawing import (
    CHART_PX,
    COLUMNS,
    pool_bars,
    rate_blocks,
    tree_picture,
    turn_bars,
)
from agentcache.router.dashboard.rates import TIERS, Moment, columns
from agentcache.router.dashboard.sight import FRESH_S, Overview, SessionSight, TreeSight
from agentcache.store.api import SessionRecord, SessionRef
from agentcache.types import TierName

FOLDER: Final = "agentcache.router.dashboard"
DEEPEST: Final = 8
"""Levels that are set in; what is deeper stands below its parent without."""
TURNS: Final = 40
"""The last turns of a session that are shown."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What somebody looks at: a session of a tenant and a worker, each "" where nothing was chosen."""

    tenant: str = ""
    session: str = ""
    worker: str = ""

    @property
    def ref(self) -> SessionRef:
        return SessionRef(self.tenant, self.session)

    def with_session(self, ref: SessionRef) -> str:
        """The query of the page with this session."""
        return _query(ref.tenant, ref.session, self.worker)

    def closed(self) -> str:
        """With no session."""
        return _query("", "", self.worker)

    def with_worker(self, worker: str) -> str:
        return _query(self.tenant, self.session, worker)


@dataclass(frozen=True, slots=True)
class Seen:
    """All that one page shows; `session` where one was chosen."""

    overview: Overview
    tree: TreeSight
    session: SessionSight | None = None


def fragment(seen: Seen, chosen: Chosen) -> bytes:
    """What changes: all but style and script."""
    return _template("fragment.html").render(_told(seen, chosen)).encode()


def page(inner: bytes) -> bytes:
    """The whole document around a fragment."""
    style, script = _text("page.css"), _text("page.js")
    told = {"style": style, "script": script, "inner": inner.decode(), "every_ms": round(FRESH_S * 1000)}
    return _template("page.html").render(told).encode()


@cache
def headers() -> Mapping[str, str]:
    """Nothing comes from elsewhere, nothing but our own script runs, no other page frames it, nothing is kept."""
    allowed = (
        "default-src 'none'",
        f"style-src '{_digest(_text('page.css'))}'",
        f"script-src '{_digest(_text('page.js'))}'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": "; ".join(allowed),
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }


def _told(seen: Seen, chosen: Chosen) -> dict[str, object]:
    overview = seen.overview
    moments = overview.moments
    shares = columns(moments, COLUMNS)
    page_tokens = {one.view.id: one.cache.page_tokens for one in overview.workers}.get(seen.tree.worker, 1)
    turns = _turns(seen.session) if seen.session else []
    longest = max((turn.prompt_tokens for turn, _ in turns), default=1)
    return {
        "seen": seen,
        "chosen": chosen,
        "overview": overview,
        "families": overview.families,
        "several_tenants": len({row.record.ref.tenant for row in overview.families.rows}) > 1,
        "alive": sum(one.view.alive for one in overview.workers),
        "blocks": rate_blocks(shares),
        "rates_key": [(str(tier), f"{tier} {words.percent(*lately)}") for tier, lately in _lately(moments)],
        "looked_s": moments[-1].at_s - moments[0].at_s if moments else 0.0,
        "picture": tree_picture(seen.tree.tree.branches, page_tokens),
        "turns": [(turn, ago_s, turn_bars(turn, longest)) for turn, ago_s in turns],
    }


def _own_name(record: SessionRecord) -> str:
    """Without its parent's name, where it begins with that."""
    return record.ref.session.removeprefix(f"{record.parent}/") if record.parent else record.ref.session


def _turns(session: SessionSight) -> list[tuple[Turn, float]]:
    """The last turns at any worker, newest first, each with how long ago it began."""
    told = sorted((turn for held in session.held for turn in held.session.turns), key=lambda turn: -turn.at)
    return [(turn, max(0.0, session.now_s - turn.at)) for turn in told[:TURNS]]


def _lately(moments: Sequence[Moment]) -> Iterator[tuple[TierName, tuple[float, float]]]:
    """Of each tier the tokens that came from it since somebody first looked, and the prompts' tokens."""
    last = moments[-1] if moments else Moment(0.0, 0.0, (0.0,) * len(TIERS))
    return ((tier, (cached, last.prompt)) for tier, cached in zip(TIERS, last.cached, strict=True))


@cache
def _template(name: str) -> jinja2.Template:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {
        "pool_bars": pool_bars,
        "chart_px": CHART_PX,
        "deepest": DEEPEST,
        "own_name": _own_name,
        "min": min,
    }
    made.filters |= {name: getattr(words, name) for name in ("span", "count", "tick", "size", "percent")}
    return made.get_template(name)


@cache
def _text(name: str) -> str:
    return files(FOLDER).joinpath("templates", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """As a content security policy names a style or a script that stands in the page."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _query(tenant: str, session: str, worker: str) -> str:
    told = {"tenant": tenant, "session": session, "worker": worker}
    return "?" + urlencode({name: value for name, value in told.items() if value})

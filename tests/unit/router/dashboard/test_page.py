"""The page as text: whole, escaped, and with nothing from elsewhere."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from agentcache.router.dashboard.answers import (
    NO_CACHE,
    Branch,
    Cache,
    External,
    Part,
    Pool,
    Session,
    Slots,
    Tree,
    Turn,
    Wait,
)
from agentcache.router.dashboard.families import Families, families
from agentcache.router.dashboard.page import TURNS, Chosen, Seen, fragment, headers, page
from agentcache.router.dashboard.rates import Counted, Rates
from agentcache.router.dashboard.sight import Held, Overview, SessionSight, TreeSight, WorkerSight
from agentcache.router.fleet import WorkerView
from agentcache.store.api import SessionRecord, SessionRef
from agentcache.wire import WorkerLoad

EVIL = "<script>alert(1)</script>\"'&"
NOW_MS = 1_700_000_000_000
EMPTY = Seen(Overview(Families(), (), 0, (), True), TreeSight())


def everything(said: str, sessions: int = 3, turns: int = 3) -> Seen:
    """All that can be shown, each text being `said`."""
    ref = SessionRef("default", said)
    record = SessionRecord(
        ref,
        "open",
        generation=NOW_MS * 1000,
        worker=said,
        holders=(said,),
        parent=said + "above",
        children=2,
        idle_s=5.0,
        paused=said,
        expected_s=30.0,
    )
    others = [
        SessionRecord(SessionRef("other", f"s{number}"), "open", NOW_MS * 1000, parent=f"s{number - 1}")
        for number in range(sessions)
    ]
    cache = Cache(
        tiers={said: {said: Pool(Slots(8, 2, 4, 1, 1, 2, 2), 4)}},
        external=External(said, said, 5, 10),
        prompt_tokens=9,
    )
    seen = (
        WorkerSight(WorkerView(said, said, told=WorkerLoad(running=1)), cache, said, 2.0),
        WorkerSight(WorkerView("dead", "", alive=False), NO_CACHE, said),
    )
    branches = (
        Branch(None, 0, 64, 32, 2, 1, 1, 0.5, {said: {said: 4}}),
        Branch(0, 64, 96, 96, resident={}),
        Branch(0, 64, 80, 64),
        Branch(0, 64, 64),
    )
    rates = Rates()
    for at_s in (0.0, 2.0, 4.0):
        rates.add(at_s, {"w": Counted(int(at_s * 10), (int(at_s), 1, 0))})
    told = tuple(Turn(1_000.0 + n, 40 + n, {"device": 16, said: 3}, said, n or None) for n in range(turns))
    part, wait = Part(said, said, 1), Wait("idle", said, 1.0, 2.0)
    held = Held(said, Session("open", 2, (part,), wait, told))
    overview = Overview(families([record, *others], 1, NOW_MS, said), seen, 3, rates.moments(), False)
    return Seen(
        overview,
        TreeSight(said, Tree(branches, True)),
        SessionSight(record, 2_000.0, (held, Held("w", said=said))),
    )


class Reader(HTMLParser):
    """Elements, attributes and texts of a document; every element is closed where it must be."""

    VOID = frozenset({"meta", "rect", "line"})
    OPTIONAL = frozenset({"tr", "td", "th", "dt", "dd", "p", "tbody", "thead"})

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(document)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in self.VOID | self.OPTIONAL:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.OPTIONAL:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


CHOSEN = Chosen("default", EVIL, EVIL)


@pytest.mark.parametrize("seen", [EMPTY, everything("said"), everything(EVIL)], ids=["empty", "all", "evil"])
def test_a_page_is_whole_and_runs_nothing_but_its_own_script(seen: Seen) -> None:
    document = Reader(page(fragment(seen, CHOSEN)).decode())
    assert document.tags.count("script") == 1
    assert document.tags.count("style") == 1
    assert not {
        name for _, name, _ in document.attributes if name.startswith("on") or name in ("style", "src")
    }


def test_whatever_is_said_is_text() -> None:
    said = "".join(Reader(fragment(everything(EVIL), CHOSEN).decode()).texts)
    assert said.count(EVIL) >= 20


def test_links_name_what_they_choose() -> None:
    document = Reader(fragment(everything("a b/ü&c"), Chosen(worker="w 1")).decode())
    links = {value for tag, name, value in document.attributes if (tag, name) == ("a", "href")}
    assert "?tenant=default&session=a+b%2F%C3%BC%26c&worker=w+1" in links
    assert "?worker=a+b%2F%C3%BC%26c" in links
    assert all(link.startswith("?") for link in links)


def test_nothing_comes_from_elsewhere() -> None:
    document = page(fragment(everything("said"), CHOSEN)).decode()
    assert not re.search(r"https?:|@import|//\w|<link|<img", document)


@pytest.mark.parametrize("tag", ["style", "script"])
def test_the_policy_names_the_style_and_the_script_of_the_page(tag: str) -> None:
    document = page(fragment(EMPTY, Chosen())).decode()
    inside = document.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
    assert f"{tag}-src 'sha256-{digest}'" in headers()["content-security-policy"]
    assert "default-src 'none'" in headers()["content-security-policy"]
    assert "unsafe" not in headers()["content-security-policy"]


def test_the_script_is_short() -> None:
    document = page(b"").decode()
    assert document.partition("<script>")[2].count("\n") <= 70


def test_a_large_house_is_a_page_that_a_browser_takes_in_its_stride() -> None:
    seen = everything("said", sessions=1000, turns=1000)
    drawn = fragment(seen, Chosen())
    assert len(drawn) < 200_000
    assert "200 of 1002 open sessions are shown" in drawn.decode()
    rows = drawn.decode().partition("why not more")[2].partition("</table>")[0]
    assert rows.count("<tr>") == TURNS
    assert '<td class="n">1.04 k<' in rows


def test_what_is_not_told_of_a_session_is_left_out() -> None:
    record = SessionRecord(SessionRef("default", "a"), "open")
    seen = Seen(EMPTY.overview, TreeSight(), SessionSight(record, 0.0, (Held("w"),)))
    assert "Its workers tell no turns." in fragment(seen, Chosen()).decode()
    gone = Seen(EMPTY.overview, TreeSight(), SessionSight(SessionRecord(record.ref, "none")))
    assert "No session has this id now." in fragment(gone, Chosen()).decode()

"""The router's dashboard as a person sees it: in Debian's Chromium, driven by playwright."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from agentcache.router.dashboard.sight import FRESH_S
from agentcache.router.tenants import Tenants, load_tenants
from tests.routing import Call, Routed, routed_to

pytestmark = [pytest.mark.asyncio, pytest.mark.system, pytest.mark.timeout(300)]
EVIL = "<script>alert(1)</script>"
FETCHED = "Failed to load resource: the server responded with a status of 503"
"""What a browser says of itself when the page is told to come later."""
PICTURES = "DASHBOARD_PICTURES"
"""The variable that names a folder for screenshots."""
CACHE = {
    "page_tokens": 16,
    "tiers": {
        "device": {
            "FULL": {
                "slots": {
                    "size": 64,
                    "free": 16,
                    "cached": 40,
                    "leased": 8,
                    "referenced": 20,
                    "protected": 12,
                }
            }
        }
    },
    "prompt_tokens": 100,
    "cached_tokens": {"device": 60},
}
BRANCHES = [
    {"start": 0, "end": 256, "reusable": 256, "referenced_pages": 16, "running_pages": 4},
    {"parent": 0, "start": 256, "end": 512, "reusable": 512, "referenced_pages": 16},
    {"parent": 0, "start": 256, "end": 640, "reusable": 480},
]


async def shows(call: Call) -> None:
    said = {"branches": BRANCHES} if "tree" in call.target else CACHE
    await call.whole(200, json.dumps(said).encode())


@asynccontextmanager
async def browsing(tenants: Tenants | None = None, **more: Any) -> AsyncIterator[tuple[Routed, Any]]:
    """A router with one worker, and a page of a browser; what the page complains about fails the test."""
    from playwright.async_api import async_playwright  # an extra: whoever leaves these tests out needs it not

    chromium = which("chromium")
    assert chromium, "missing: chromium (Debian: apt-get install chromium)"
    complaints: list[str] = []
    async with routed_to(shows, tenants=tenants) as (routed, _), async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"], handle_sigint=False
        )
        context = await browser.new_context(viewport={"width": 1440, "height": 900}, **more)
        context.set_default_timeout(60_000)
        page = await context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
        try:
            yield routed, page
        finally:
            await browser.close()
    assert [one for one in complaints if not one.startswith(FETCHED)] == []


async def opened(routed: Routed, *names: str, **more: str) -> None:
    for name in names:
        answer = await routed.http.post("/v1/sessions", json={"session_id": name, **more})
        assert answer.status_code == 201, answer.text


async def looks_again(routed: Routed, page: Any) -> None:
    """Let the time pass after which the page asks again, and wait until it did."""
    routed.clock.advance(round(FRESH_S * 1e9))
    async with page.expect_response("**/dashboard/fragment*"):
        await page.clock.run_for(round(FRESH_S * 1e3))


async def shot(page: Any, name: str) -> None:
    folder = os.environ.get(PICTURES)
    if folder:
        await page.screenshot(path=Path(folder) / f"{name}.png")


async def test_the_page_shows_what_was_opened_meanwhile_and_text_stays_text() -> None:
    async with browsing() as (routed, page):
        await page.clock.install()
        await page.goto(f"{routed.url}/dashboard")
        assert await page.get_by_text("No session is open.").is_visible()
        await opened(routed, "agent-1", EVIL)
        await routed.http.post("/v1/sessions/agent-1/pause", json={"tool": EVIL, "expected_s": 30})
        await looks_again(routed, page)
        await page.get_by_role("link", name=EVIL).wait_for()
        assert await page.get_by_text(EVIL).count() == 2
        assert await page.locator("script").count() == 1
        await shot(page, "small")


async def test_a_session_and_a_worker_are_chosen_by_a_click_and_stay_chosen() -> None:
    async with browsing() as (routed, page):
        await page.clock.install()
        await opened(routed, "a b/ü&c", "other")
        await page.goto(f"{routed.url}/dashboard")
        await page.get_by_role("link", name="a b/ü&c").click()
        await page.get_by_role("heading", name="a b/ü&c").wait_for()
        await page.get_by_label("workers", exact=True).get_by_role("link", name="w1").click()
        await looks_again(routed, page)
        assert await page.get_by_role("heading", name="a b/ü&c").is_visible()
        assert await page.locator("tr.chosen").count() == 1
        await page.get_by_role("link", name="close").click()
        await page.get_by_role("heading", name="a b/ü&c").wait_for(state="detached")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_five_hundred_sessions_are_readable(scheme: str) -> None:
    async with browsing(color_scheme=scheme) as (routed, page):
        await page.clock.install()
        for number in range(0, 500, 5):
            await opened(routed, f"agent-{number}")
            await opened(routed, *(f"agent-{number}/{child}" for child in range(4)), parent=f"agent-{number}")
        await page.goto(f"{routed.url}/dashboard")
        assert await page.get_by_text("200 of 500 open sessions are shown").is_visible()
        assert await page.locator(".sessions tbody tr").count() == 200
        room = page.locator("[data-scroll=sessions]")
        await room.evaluate("room => { room.scrollTop = 700 }")
        await looks_again(routed, page)
        await page.wait_for_function("document.querySelector('[data-scroll=sessions]').scrollTop === 700")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await shot(page, f"many-{scheme}")


async def test_a_hidden_page_asks_nothing() -> None:
    async with browsing() as (routed, page):
        await page.clock.install(time=0)
        await page.clock.pause_at(1000)  # else it may be time to ask again before the page is hidden
        await page.goto(f"{routed.url}/dashboard")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.evaluate(
            "Object.defineProperty(document, 'hidden', {get: () => window.away, configurable: true});"
            "window.away = true; document.dispatchEvent(new Event('visibilitychange'))"
        )
        await page.clock.run_for(20_000)
        assert not asked
        async with page.expect_response("**/dashboard/fragment*"):
            await page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")


async def test_the_operator_looks_with_the_key_as_password(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("operator-key")
    tenants = load_tenants("", "default=sk-acme-0001", str(tmp_path / "key"))
    who = {"username": "anybody", "password": "operator-key"}
    async with browsing(tenants, http_credentials=who) as (routed, page):
        await page.clock.install()
        await page.goto(f"{routed.url}/dashboard")
        assert await page.get_by_role("heading", name="Sessions").is_visible()
        await looks_again(routed, page)
        assert await page.locator("#said").inner_text() == ""


async def test_a_router_that_goes_away_is_said_to_be_away() -> None:
    async with browsing() as (routed, page):
        await page.clock.install()
        await page.goto(f"{routed.url}/dashboard")
        await page.route("**/dashboard/fragment*", lambda route: route.fulfill(status=503, body="no"))
        await asyncio.gather(page.clock.run_for(2_000), page.get_by_text("Not up to date").wait_for())
        await page.unroute("**/dashboard/fragment*")
        await looks_again(routed, page)
        await page.wait_for_function("document.getElementById('said').textContent === ''")

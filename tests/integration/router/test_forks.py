"""Sub-agents at the router over HTTP: forks by field and by header, and answers about large families."""

from typing import Any

import httpx2
import pytest

from agentcache import wire
from agentcache.store.api import Opening, SessionRef
from tests.routing import Routed, plain_answer, routed_to, routing

pytestmark = pytest.mark.asyncio


async def opened(routed: Routed, **body: Any) -> httpx2.Response:
    return await routed.http.post("/v1/sessions", json=body)


async def test_a_fork_is_opened_where_its_parent_is() -> None:
    async with routed_to(plain_answer, plain_answer) as (routed, workers):
        await routed.post(x_agentcache_session="parent")
        where = (await routed.store.look(SessionRef("default", "parent"))).worker
        cursor = (await routed.store.mail(where, 0, "", 0)).cursor
        answer = await opened(routed, session_id="child", parent_session_id="parent", fork=True)
        assert answer.status_code == 201, answer.text
        assert answer.json()["worker"] == where
        (notice,) = (await routed.store.mail(where, 0, cursor, 0)).notices
        assert (notice.order, notice.session, notice.parent) == (wire.Order.FORK, "child", "parent")
        answer = await routed.post(x_agentcache_session="child")
        assert answer.headers["x-agentcache-worker"] == where
        assert answer.headers["x-agentcache-routed"].startswith("by sticky;")
        assert sum(len(worker.heard) for worker in workers) == 2


async def test_a_fork_of_a_parent_that_is_nowhere_yet_is_told_so() -> None:
    async with routing() as routed:
        await opened(routed, session_id="parent")
        answer = await opened(routed, session_id="child", parent_session_id="parent", fork=True)
        assert (answer.status_code, answer.json()["worker"]) == (201, None)


@pytest.mark.parametrize(("said", "forks"), [("1", True), ("0", False), ("", False)])
async def test_a_request_that_forks_says_so_to_its_worker(said: str, forks: bool) -> None:
    async with routed_to(plain_answer) as (routed, (worker,)):
        await routed.post(x_agentcache_session="parent")
        headers = {wire.SESSION: "child", wire.PARENT: "parent", **({wire.FORK: said} if said else {})}
        await routed.http.post("/v1/completions", json={"prompt": "hi"}, headers=headers)
        tag = worker.heard[-1].tag("w1")
        assert (tag.session, tag.parent, tag.hints.fork) == ("child", "parent", forks)
        assert wire.FORK not in worker.heard[-1].headers


async def test_a_fork_that_is_no_flag_or_has_no_parent_is_refused() -> None:
    async with routed_to(plain_answer) as (routed, _):
        for body in ({"fork": True}, {"fork": "yes", "parent": "p"}, {"fork": 1, "parent": "p"}):
            answer = await opened(routed, session_id="child", **body)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "fork"), body
        by_header = await routed.post(x_agentcache_session="child", x_agentcache_fork="perhaps")
        assert by_header.status_code == 400


async def test_thousands_of_children_are_closed_by_one_call_with_a_bounded_answer() -> None:
    async with routing() as routed:
        for number in range(5000):
            parent = "" if not number else "root"
            ref = SessionRef("default", f"c{number}" if number else "root")
            await routed.store.open(ref, Opening(parent=parent))
        preview = (await routed.http.delete("/v1/sessions/root", params={"mode": "preview"})).json()
        assert (len(preview["children"]), preview["more"]) == (999, True)
        closed = (await routed.http.delete("/v1/sessions/root")).json()
        assert (closed["state"], len(closed["children"]), closed["more"]) == ("closed", 1000, True)
        assert (await routed.http.get("/v1/sessions")).json()["open_sessions"] == 0
        again = (await routed.http.delete("/v1/sessions/root")).json()
        assert (again["state"], again["children"], again["more"]) == ("closed", [], False)

"""Forks of a worker without a router, over HTTP: by field and by header."""

import itertools
from typing import Any

import httpx2
import pytest

pytestmark = pytest.mark.asyncio
TASK: dict[str, Any] = {"prompt": "one two three four five six seven eight " * 10, "max_tokens": 1}


NAMES = itertools.count()


@pytest.fixture
def parent() -> str:
    """A name of its own: the worker is shared, and remembers whom it closed."""
    return f"parent-{next(NAMES)}"


async def turn(client: httpx2.AsyncClient, session: str, **headers: str) -> httpx2.Response:
    named = {"x-agentcache-session": session, **{f"x-agentcache-{k}": v for k, v in headers.items()}}
    return await client.post("/v1/completions", json=TASK, headers=named)


async def looked(client: httpx2.AsyncClient, session: str) -> dict[str, Any]:
    return dict((await client.get(f"/v1/sessions/{session}")).json())


@pytest.mark.parametrize("fork", [True, False])
async def test_a_child_that_is_opened_as_a_fork_holds_its_parents_path(
    client: httpx2.AsyncClient, parent: str, fork: bool
) -> None:
    await turn(client, parent)
    body = {"session_id": f"{parent}/child", "parent_session_id": parent, "fork": fork}
    assert (await client.post("/v1/sessions", json=body)).status_code == 201
    child, above = await looked(client, f"{parent}/child"), await looked(client, parent)
    assert above["held"]
    assert (child["markers"], child["held"]) == ((1, above["held"]) if fork else (0, []))
    await client.delete(f"/v1/sessions/{parent}")
    assert (await looked(client, f"{parent}/child"))["markers"] == int(fork)


async def test_a_request_forks_by_header(client: httpx2.AsyncClient, parent: str) -> None:
    await turn(client, parent)
    answer = await turn(client, f"{parent}/child", parent=parent, fork="1")
    assert answer.status_code == 200
    assert int(answer.headers["x-agentcache-cached-tokens"]) > 0
    assert (await looked(client, f"{parent}/child"))["markers"] == 1


@pytest.mark.parametrize("body", [{"fork": True}, {"fork": "yes", "parent": "another"}])
async def test_a_fork_that_is_no_flag_or_has_no_parent_is_refused(
    client: httpx2.AsyncClient, parent: str, body: dict[str, Any]
) -> None:
    answer = await client.post("/v1/sessions", json={"session_id": parent, **body})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "fork")
    assert (await client.get(f"/v1/sessions/{parent}")).status_code == 404


async def test_a_header_that_is_no_flag_is_refused(client: httpx2.AsyncClient, parent: str) -> None:
    assert (await turn(client, f"{parent}/child", parent=parent, fork="perhaps")).status_code == 400


async def test_a_large_family_is_closed_by_one_call_with_a_bounded_answer(
    client: httpx2.AsyncClient, parent: str
) -> None:
    await turn(client, parent)
    for number in range(1001):
        body = {"session_id": f"{parent}/{number}", "parent_session_id": parent, "fork": True}
        assert (await client.post("/v1/sessions", json=body)).status_code == 201
    closed = (await client.delete(f"/v1/sessions/{parent}", params={"subtree": "1"})).json()
    assert (len(closed["children"]), closed["more"]) == (1000, True)
    assert (await client.get("/v1/sessions")).json()["open_references"] == 0

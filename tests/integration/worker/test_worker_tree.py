"""`/v1/cache/tree`: the branches of the radix tree as a drawing needs them."""

from pathlib import Path

import httpx2
import pytest

from tests.serving import client_of, own_worker

pytestmark = pytest.mark.asyncio
TREE = "/v1/cache/tree"


async def said(client: httpx2.AsyncClient, prompt: list[int], session: str) -> None:
    body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
    headers = {"x-agentcache-session": session}
    assert (await client.post("/v1/completions", json=body, headers=headers)).status_code == 200


async def test_branches_of_two_sessions_with_one_head(checkpoint: Path) -> None:
    """The head is there once, with a branch for each session below it; who closes leaves no reference."""
    head = [1 + at % 50 for at in range(64)]
    async with own_worker(checkpoint) as worker, client_of(worker) as client:
        for session, token in (("one", 60), ("two", 70)):
            await said(client, [*head, *[token] * 64], session)
        tree = (await client.get(TREE)).json()
        top, *below = tree["branches"]
        assert (tree["object"], tree["more"]) == ("cache.tree", False)
        assert (top["parent"], top["start"], top["end"]) == (None, 0, 64)
        assert [(branch["parent"], branch["start"], branch["markers"]) for branch in below] == [
            (0, 64, 1)
        ] * 2
        assert all(branch["referenced_pages"] > 0 and branch["running_pages"] == 0 for branch in below)
        assert all(branch["reusable"] == branch["end"] for branch in below)
        assert set(top["resident"]) == {"device"}
        assert top["resident"]["device"]["FULL"] * 4 == 64
        await client.delete("/v1/sessions/two")
        newest = (await client.get(TREE)).json()["branches"][1]
        assert newest["referenced_pages"] == 0, "two's, which was used last"


async def test_a_limit_shortens_it_and_an_absurd_one_is_refused(client: httpx2.AsyncClient) -> None:
    for token in (5, 6):
        await said(client, [token] * 64, f"of {token}")
    tree = (await client.get(TREE, params={"limit": 1})).json()
    assert (len(tree["branches"]), tree["more"]) == (1, True)
    for limit in ("0", "-1", "1001", "many", "1e2", "", "9" * 5000):
        answer = await client.get(TREE, params={"limit": limit})
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == "limit is a number from 1 to 1000"

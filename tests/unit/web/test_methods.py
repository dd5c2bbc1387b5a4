"""Which methods a path takes: those of all its routes."""

import pytest

from tests.routing import routing

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/sessions/a/b", "DELETE, GET, HEAD"),
        ("/v1/sessions", "GET, HEAD, POST"),
        ("/v1/completions", "POST"),
        ("/v1/workers", "GET, HEAD"),
    ],
)
async def test_a_method_that_is_not_there_is_answered_with_those_that_are(path: str, allowed: str) -> None:
    async with routing() as routed:
        answer = await routed.http.put(path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
        assert "allow" not in (await routed.http.put("/nothing")).headers

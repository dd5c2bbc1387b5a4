"""Servers that are no workers of ours: what they are told, what they are not, and what of theirs is not believed."""

from contextlib import AsyncExitStack

import pytest

from agentcache import wire
from agentcache.router.sender_names import TABLE, Place, Role, Row, spellings
from agentcache.router.settings import RouterSettings
from agentcache.router.tenants import load_tenants
from agentcache.store.api import SessionRef
from tests.routing import SIGNER, Call, Upstream, plain_answer, routing

pytestmark = pytest.mark.asyncio
S = SessionRef("default", "s")


def settings(kind: str, *upstreams: Upstream, **more: object) -> RouterSettings:
    named = tuple(f"{kind}={upstream.url}" for upstream in upstreams)
    return RouterSettings(upstream=named, refresh_s=30, close_wait_s=0, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "sent", "heard"),
    [
        ("openai", {"prompt": "hi"}, {"prompt": "hi"}),
        ("openai", {"prompt": "hi", "session_id": "s"}, {"prompt": "hi"}),
        ("openai", {"prompt": "hi", "cache_salt": "x"}, {"prompt": "hi", "cache_salt": "SALT x"}),
        ("vllm", {"prompt": "hi", "session_id": "s"}, {"prompt": "hi", "cache_salt": "SALT "}),
        ("sglang", {"prompt": "hi"}, {"prompt": "hi", "cache_salt": "SALT ", "session_id": "default/s"}),
        ("sglang", {"session_id": "s"}, {"cache_salt": "SALT ", "session_id": "default/s"}),
    ],
)
async def test_a_body_names_the_session_and_the_salt_that_the_server_may_know(
    kind: str, sent: dict[str, object], heard: dict[str, object]
) -> None:
    """R189: a session's name goes only where it means something; R027: the salt is never the client's."""
    async with Upstream().serving() as upstream, routing(settings(kind, upstream)) as routed:
        answer = await routed.post(body=sent, x_agentcache_session="s")
        assert answer.status_code == 200
        fields = upstream.heard[0].fields
    wanted = {
        name: SIGNER.derive("salt", "default", value.removeprefix("SALT "))
        if isinstance(value, str) and value.startswith("SALT ")
        else value
        for name, value in heard.items()
    }
    assert fields == wanted


async def test_nothing_of_ours_goes_there_and_the_clients_key_only_if_told_to() -> None:
    for forwards in (False, True):
        async with (
            Upstream().serving() as upstream,
            routing(settings("openai", upstream, forward_keys=forwards)) as routed,
        ):
            body = {"prompt": "hi", "a": 1e3}
            answer = await routed.post(
                body=body, x_agentcache_session="s", authorization="Bearer k", x_api_key="k", x_other="1"
            )
            headers, sent = upstream.heard[0].headers, upstream.heard[0].body
        assert not [name for name in headers if name.startswith(wire.PREFIX)]
        assert ("authorization" in headers, "x-api-key" in headers) == (forwards, forwards)
        assert headers["x-other"] == "1"
        assert sent == answer.request.content


async def test_what_it_says_in_our_names_is_not_believed() -> None:
    async def lying(call: Call) -> None:
        told = {wire.STATE: "closed", wire.SESSION: "other", wire.CACHED: "999", wire.WORKER: "w9"}
        await call.whole(200, b"{}", told)

    async with Upstream(lying).serving() as upstream, routing(settings("openai", upstream)) as routed:
        named = await routed.post(x_session_id="s")
        alone = await routed.post()
        await routed.settled()
        record = await routed.store.look(S)
    assert (named.headers[wire.STATE], named.headers[wire.SESSION]) == ("open", "s")
    assert named.headers[wire.WORKER] == upstream.url.removeprefix("http://")
    assert (alone.headers[wire.STATE], wire.SESSION in alone.headers) == ("none", False)
    assert wire.CACHED not in named.headers
    assert (record.worker, record.in_flight) == (named.headers[wire.WORKER], 0)


async def test_a_session_stays_at_its_server_and_a_last_request_closes_it_there() -> None:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(Upstream().serving()) for _ in range(3)]
        routed = await stack.enter_async_context(routing(settings("sglang", *servers)))
        for _ in range(4):
            await routed.post(x_dynamo_session_id="s")
        await routed.post(x_dynamo_session_id="s", x_dynamo_session_final="true")
        await routed.settled()
        (home,) = [server for server in servers if server.heard]
        closing = await home.hears(6)
    assert (closing.target, closing.fields) == ("/close_session", {"session_id": "default/s"})


async def test_an_answer_that_may_be_stored_is_not_asked_for_twice() -> None:
    async def hanging_up(call: Call) -> None:
        call.writer.close()

    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(Upstream(hanging_up).serving()) for _ in range(2)]
        routed = await stack.enter_async_context(routing(settings("openai", *servers)))
        stored = await routed.post("/v1/responses")
        assert (stored.status_code, stored.json()["error"]["code"]) == (502, "upstream_failed")
        assert sum(len(server.heard) for server in servers) == 1
        plain = await routed.post("/v1/completions")
        assert plain.status_code == 503
        assert sum(len(server.heard) for server in servers) > 2


async def test_a_server_with_a_path_of_its_own_keeps_it() -> None:
    async with Upstream().serving() as upstream:
        placed = RouterSettings(upstream=(f"openai={upstream.url}/base/",), refresh_s=30)
        async with routing(placed) as routed:
            await routed.look()
            answer = await routed.post()
    assert answer.status_code == 200
    assert upstream.heard[-1].target == "/base/v1/completions"


async def test_tenants_of_one_server_have_salts_and_sessions_of_their_own() -> None:
    tenants = load_tenants("", "a=key-of-tenant-a;b=key-of-tenant-b")
    async with (
        Upstream(plain_answer).serving() as upstream,
        routing(settings("sglang", upstream), tenants=tenants) as routed,
    ):
        for key in ("a", "b", "a"):
            await routed.post(x_session_id="s", authorization=f"Bearer key-of-tenant-{key}")
        said = [(call.fields["session_id"], call.fields["cache_salt"]) for call in upstream.heard]
    assert said[0] == said[2]
    assert said[0][0] == "a/s"
    assert said[1][0] == "b/s"
    assert said[0][1] != said[1][1]


NAMING = [row for row in TABLE if row.role in (Role.SESSION, Role.PARENT, Role.AGENT, Role.PARENT_AGENT)]


@pytest.mark.parametrize("kind", ["openai", "sglang", "vllm"])
@pytest.mark.parametrize("row", NAMING, ids=[row.name for row in NAMING])
async def test_no_tenant_reaches_anothers_session_by_any_name(kind: str, row: Row) -> None:
    """Tenant b sends what tenant a's session is called at the server; no two of them may be one there."""
    tenants = load_tenants("", "a=key-of-tenant-a;b=key-of-tenant-b")
    async with (
        Upstream(plain_answer).serving() as upstream,
        routing(settings(kind, upstream), tenants=tenants) as routed,
    ):
        for key, named in (("a", "s"), ("b", "s"), ("b", "a/s")):
            for spelling in spellings(row) if row.place is Place.HEADER else ("",):
                headers = {spelling: named} if spelling else {}
                body = {"prompt": "hi", **({} if spelling else nested(row.name, named))}
                headers["authorization"] = f"Bearer key-of-tenant-{key}"
                answer = await routed.http.post("/v1/completions", json=body, headers=headers)
                assert answer.status_code == 200
        heard = [(call.fields["prompt"], called(call, row)) for call in upstream.heard]
    names, whose = [name for _, name in heard], sorted("abb" * (len(heard) // 3))
    assert {prompt for prompt, _ in heard} == {"hi"}
    if any(names):
        assert len(set(names)) == 3
        assert all(name.startswith(f"{tenant}/") for name, tenant in zip(names, whose, strict=True))


def nested(path: str, value: str) -> dict[str, object]:
    """A body with a value at a path."""
    name, _, rest = path.partition(".")
    return {name: nested(rest, value) if rest else value}


def called(call: Call, row: Row) -> str:
    """What the server hears in a row; "" for nothing."""
    if row.place is Place.HEADER:
        return next((call.headers[name] for name in spellings(row) if name in call.headers), "")
    found: object = call.fields
    for name in row.name.split("."):
        found = found.get(name, "") if isinstance(found, dict) else ""
    return str(found)

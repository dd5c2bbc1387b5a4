"""The proxy over real sockets: bytes as they are, sessions in headers and tags, and every error of its own."""

import asyncio
import hashlib
import json

import anthropic
import openai
import pytest

from agentcache import wire
from agentcache.router.settings import RouterSettings
from agentcache.router.tenants import Tenant, Tenants, load_tenants
from agentcache.store.api import Closing, SessionRef
from tests.routing import Call, Upstream, plain_answer, raw_client, routed_to, routing, streamed

pytestmark = pytest.mark.asyncio


async def test_a_stream_is_passed_on_byte_for_byte() -> None:
    async with routed_to(streamed) as (routed, (worker,)):
        async with routed.http.stream("POST", "/v1/completions", json={"stream": True}) as through:
            got = b"".join([part async for part in through.aiter_raw()])
        async with routed.http.stream("POST", f"{worker.url}/v1/completions", json={}) as direct:
            wanted = b"".join([part async for part in direct.aiter_raw()])
    assert got == wanted
    assert got.endswith(b"data: [DONE]\n\n")
    assert through.headers["content-type"] == "text/event-stream"


async def test_events_arrive_one_by_one_as_the_worker_sends_them() -> None:
    step = asyncio.Event()

    async def slow(call: Call) -> None:
        await call.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        await call.chunk(b"data: 1\n\n")
        await step.wait()
        await call.chunk(b"data: 2\n\n")
        await call.chunk(b"")

    async with (
        routed_to(slow) as (routed, _),
        routed.http.stream("POST", "/v1/completions", json={}) as answer,
    ):
        parts = answer.aiter_raw()
        assert await anext(parts) == b"data: 1\n\n"
        step.set()
        assert await anext(parts) == b"data: 2\n\n"


async def test_the_body_goes_on_as_it_came_and_keys_and_claims_do_not() -> None:
    body = b'{ "prompt" : "h\\u00e9",\n"seed": 1e3, "seed": 1000 }'
    async with routed_to(plain_answer) as (routed, (worker,)):
        told = {
            "content-type": "application/json; charset=utf-8",
            "authorization": "Bearer sk-client",
            "x-api-key": "sk-client",
            "cookie": "a=b",
            "x-agentcache-tag": "forged",
            "x-agentcache-session": "s",
            "x-request-id": "theirs",
            "accept-encoding": "br",
            "connection": "x-secret-hop",
            "x-secret-hop": "1",
            "x-other": "kept, é",
        }
        answer = await routed.http.post(
            "/v1/completions?beta=true",
            content=body,
            headers={name.encode(): value.encode() for name, value in told.items()},
        )
        call = worker.heard[0]
    assert call.body == body
    assert call.target == "/v1/completions?beta=true"
    assert answer.headers["x-request-id"] not in ("theirs", "")
    assert call.headers["x-request-id"] == f"{answer.headers['x-request-id']}.1"
    assert (call.headers["x-other"], call.headers["accept-encoding"]) == ("kept, é", "br")
    assert call.headers["content-type"] == "application/json; charset=utf-8"
    for name in ("authorization", "x-api-key", "cookie", "x-agentcache-session", "x-secret-hop"):
        assert name not in call.headers
    assert call.tag("w1").session == "s"


async def test_a_session_is_tagged_placed_and_told() -> None:
    async with routed_to(plain_answer) as (routed, (worker,)):
        first = await routed.post(x_agentcache_session="agent", x_agentcache_parent="nobody")
        second = await routed.post(x_session_id="agent")
        await routed.settled()
        record = await routed.store.look(SessionRef("default", "agent"))
        tags = [call.tag("w1") for call in worker.heard]
    generation = first.headers[wire.GENERATION]
    assert first.headers[wire.SESSION] == second.headers[wire.SESSION] == "agent"
    assert second.headers[wire.GENERATION] == generation
    assert (first.headers[wire.STATE], first.headers[wire.WHY]) == ("open", "full hit")
    assert (first.headers[wire.PARENT], wire.PARENT in second.headers) == ("ignored", False)
    assert first.headers[wire.WORKER] == "w1"
    assert first.headers[wire.ROUTED].endswith("; id from x-agentcache-session")
    assert second.headers[wire.ROUTED] == "by sticky; id from x-session-id"
    assert {(tag.session, str(tag.generation), tag.placement, tag.tenant) for tag in tags} == {
        ("agent", generation, record.placement, "default")
    }
    assert len({tag.request_id for tag in tags}) == 2
    assert (record.worker, record.in_flight, record.holders) == ("w1", 0, ("w1",))


async def test_a_request_without_a_session_is_tagged_all_the_same() -> None:
    async with routed_to(plain_answer) as (routed, (worker,)):
        answer = await routed.post()
        tag = worker.heard[0].tag("w1")
    assert (tag.session, tag.generation, tag.tenant) == ("", 0, "default")
    assert wire.SESSION not in answer.headers
    assert answer.headers[wire.ROUTED] == "by only worker; no session id"


async def test_a_salt_is_derived_from_the_tenant_and_never_the_clients() -> None:
    tenants = load_tenants("", "a=key-of-tenant-a;b=key-of-tenant-b")
    async with routed_to(plain_answer, tenants=tenants) as (routed, (worker,)):
        for key, salt in (("a", ""), ("a", ""), ("b", ""), ("a", "mine"), ("b", "mine")):
            body = {"prompt": "hi", **({"cache_salt": salt} if salt else {})}
            answer = await routed.post(body=body, authorization=f"Bearer key-of-tenant-{key}")
            assert answer.status_code == 200
        salts = [call.tag("w1").salt for call in worker.heard]
    assert salts[0] == salts[1]
    assert len(set(salts)) == 4
    assert "mine" not in salts


async def test_two_tenants_with_one_session_id_are_two_sessions() -> None:
    tenants = load_tenants("", "a=key-of-tenant-a;b=key-of-tenant-b")
    async with routed_to(plain_answer, tenants=tenants) as (routed, (worker,)):
        mine = await routed.post(x_session_id="s", authorization="Bearer key-of-tenant-a")
        await routed.store.close(SessionRef("a", "s"), Closing())
        theirs = await routed.post(x_session_id="s", x_api_key="key-of-tenant-b")
        again = await routed.post(x_session_id="s", authorization="Bearer key-of-tenant-a")
        tags = [call.tag("w1") for call in worker.heard]
        refused = [
            await routed.post(x_session_id="s"),
            await routed.post(authorization="Bearer nobody-knows"),
        ]
    assert mine.headers[wire.GENERATION] != theirs.headers[wire.GENERATION]
    assert [(tag.tenant, tag.session) for tag in tags] == [("a", "s"), ("b", "s"), ("a", "")]
    assert again.headers[wire.STATE] == "closed"
    assert {answer.status_code for answer in refused} == {401}
    assert len(worker.heard) == 3


async def test_a_closed_session_is_served_unreferenced_and_says_so_and_refused_if_it_insists() -> None:
    async with routed_to(plain_answer) as (routed, (worker,)):
        first = await routed.post(x_session_id="s")
        await routed.store.close(SessionRef("default", "s"), Closing())
        late = await routed.post(x_session_id="s")
        strict = await routed.post(x_session_id="s", x_agentcache_strict="1")
        fenced = await routed.post(x_session_id="s", x_agentcache_generation=first.headers[wire.GENERATION])
    assert (late.status_code, late.headers[wire.STATE]) == (200, "closed")
    assert late.headers[wire.WHY] == "session closed: served without a reference"
    assert late.headers[wire.GENERATION] == first.headers[wire.GENERATION]
    assert worker.heard[1].tag("w1").session == ""
    for refused in (strict, fenced):
        assert (refused.status_code, refused.headers[wire.STATE]) == (409, "closed")
        assert refused.json()["error"]["code"] == "session_closed"
    assert len(worker.heard) == 2


async def test_a_fence_holds_only_for_the_current_generation() -> None:
    async with routed_to(plain_answer) as (routed, (worker,)):
        first = await routed.post(x_session_id="s")
        current = first.headers[wire.GENERATION]
        right = await routed.post(x_session_id="s", x_agentcache_generation=current)
        wrong = await routed.post(x_session_id="s", x_agentcache_generation="7")
        unknown = await routed.post(x_session_id="other", x_agentcache_generation="7")
    assert right.status_code == 200
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (409, "session_stale")
    assert (wrong.headers[wire.STATE], wrong.headers[wire.GENERATION]) == ("stale", current)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "session_unknown")
    assert len(worker.heard) == 2


async def test_sessions_beyond_the_tenants_limit_are_served_without_and_strict_ones_refused() -> None:
    digest = hashlib.sha256(b"key-of-tenant-a").digest()
    tenants = Tenants({digest: Tenant("a", session_limit=1)})
    async with routed_to(plain_answer, tenants=tenants) as (routed, (worker,)):
        key = "Bearer key-of-tenant-a"
        await routed.post(x_session_id="one", authorization=key)
        more = await routed.post(x_session_id="two", authorization=key)
        strict = await routed.post(x_session_id="two", authorization=key, x_agentcache_strict="1")
    assert (more.status_code, more.headers[wire.STATE]) == (200, "none")
    assert more.headers[wire.WHY] == "session limit: served without a reference"
    assert worker.heard[1].tag("w1").session == ""
    assert (strict.status_code, strict.json()["error"]["code"]) == (429, "session_limit")


async def test_a_last_request_closes_its_session_after_its_answer() -> None:
    async with routed_to(streamed, settings=RouterSettings(close_wait_s=0, refresh_s=30)) as (routed, _):
        answer = await routed.post(x_dynamo_session_id="s", x_dynamo_session_final="true")
        await routed.settled()
        record = await routed.store.look(SessionRef("default", "s"))
    assert (answer.status_code, answer.headers[wire.STATE]) == (200, "open")
    assert record.state == "closed"


async def test_errors_of_the_router_have_the_shape_of_their_api() -> None:
    async with routing() as routed:
        chat = await routed.post("/v1/chat/completions")
        messages = await routed.post("/v1/messages")
        broken = await routed.http.post("/v1/messages/count_tokens", content=b"{")
        for path in ("/v1/embeddings", "/v1/messages/nothing", "/"):
            gone = await routed.http.post(path, json={})
            assert gone.status_code == 404
            assert path in gone.json()["error"]["message"]
        wrong = await routed.http.get("/v1/completions")
    assert (chat.status_code, chat.headers["retry-after"]) == (503, "1")
    assert chat.json()["error"]["code"] == "no_worker"
    assert messages.status_code == 503
    assert messages.json()["type"] == "error"
    assert messages.json()["error"]["type"] == "overloaded_error"
    assert messages.json()["request_id"] == messages.headers["x-request-id"]
    assert (broken.status_code, broken.json()["error"]["type"]) == (400, "invalid_request_error")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")


async def test_clients_of_both_makers_understand_a_refusal() -> None:
    async with routing() as routed:
        ours = openai.AsyncOpenAI(base_url=f"{routed.url}/v1", api_key="none", max_retries=0)
        with pytest.raises(openai.APIStatusError) as caught:
            await ours.completions.create(model="tiny", prompt="hi")
        assert caught.value.status_code == 503
        theirs = anthropic.AsyncAnthropic(base_url=routed.url, api_key="none", max_retries=0)
        said: list[anthropic.types.MessageParam] = [{"role": "user", "content": "hi"}]
        with pytest.raises(anthropic.APIStatusError) as also:
            await theirs.messages.create(model="tiny", max_tokens=3, messages=said)
        assert also.value.status_code == 503
        await ours.close()
        await theirs.close()


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"a": NaN}', b"\xff", b'{"cache_salt": 3}', b"[" * 200_000])
async def test_a_body_that_is_no_request_is_refused_before_anybody_is_asked(body: bytes) -> None:
    async with routed_to(plain_answer) as (routed, (worker,)):
        answer = await routed.http.post("/v1/completions", content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
    assert worker.heard == []


async def test_a_body_over_the_limit_is_refused_declared_or_not() -> None:
    settings = RouterSettings(body_limit_bytes=1000, refresh_s=30)

    async def pieces() -> object:
        for _ in range(3):
            yield b"x" * 500

    async with routed_to(plain_answer, settings=settings) as (routed, (worker,)):
        declared = await routed.http.post("/v1/completions", content=b"x" * 1001)
        chunked = await routed.http.post("/v1/completions", content=pieces())  # type: ignore[arg-type]
        messages = await routed.http.post("/v1/messages", content=b"x" * 1001)
    assert {declared.status_code, chunked.status_code, messages.status_code} == {413}
    assert declared.json()["error"]["code"] == "body_too_large"
    assert messages.json()["error"]["type"] == "request_too_large"
    assert worker.heard == []


async def test_a_large_body_goes_through_whole() -> None:
    body = json.dumps({"prompt": "x" * 3_000_000}).encode()
    async with routed_to(plain_answer) as (routed, (worker,)):
        answer = await routed.http.post("/v1/completions", content=body)
    assert (answer.status_code, worker.heard[0].body == body) == (200, True)


async def test_an_error_of_the_worker_passes_as_it_is() -> None:
    async def refusing(call: Call) -> None:
        await call.whole(400, b'{"error": {"message": "no", "code": "x"}}', {"x-why": "because"})

    async with routed_to(refusing) as (routed, (worker,)):
        answer = await routed.post(x_session_id="s")
        await routed.settled()
        record = await routed.store.look(SessionRef("default", "s"))
    assert (answer.status_code, answer.content) == (400, b'{"error": {"message": "no", "code": "x"}}')
    assert answer.headers["x-why"] == "because"
    assert len(worker.heard) == 1
    assert record.in_flight == 0


async def test_what_a_client_writes_cannot_split_the_headers_of_an_answer() -> None:
    async with routed_to(plain_answer) as (routed, _):
        pinned = {"model": "a\r\nx-evil: 1", "prompt": "hi"}
        answer = await routed.post(body=pinned, x_session_id="s\u00e9 \u4e2d")
    assert answer.status_code == 200
    assert "x-evil" not in answer.headers
    assert dict(answer.headers.raw)[wire.SESSION.encode()].decode() == "s\u00e9 \u4e2d"


async def test_no_redirect_is_followed_and_no_cookie_kept() -> None:
    async def redirecting(call: Call) -> None:
        await call.whole(307, b"{}", {"location": "/v1/elsewhere", "set-cookie": "a=b"})

    async with routed_to(redirecting) as (routed, (worker,)):
        answers = [await routed.post(), await routed.post()]
    assert {answer.status_code for answer in answers} == {307}
    assert [call.target for call in worker.heard] == ["/v1/completions"] * 2
    assert "cookie" not in worker.heard[1].headers


async def test_models_of_all_workers_are_one_list() -> None:
    async with routed_to(plain_answer, plain_answer) as (routed, _):
        listed = (await routed.http.get("/v1/models")).json()
        one = await routed.http.get("/v1/models/tiny")
        none = await routed.http.get("/v1/models/huge")
    assert [model["id"] for model in listed["data"]] == ["tiny"]
    assert one.json()["id"] == "tiny"
    assert (none.status_code, none.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_client_that_sends_half_a_body_and_leaves_is_nobodys_fault() -> None:
    async with routed_to(plain_answer) as (routed, (worker,)):
        host, port = routed.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: r\r\ncontent-length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await routed.post()).status_code == 200
    assert len(worker.heard) == 1


async def test_counting_tokens_is_no_turn_of_a_session() -> None:
    async with routed_to(plain_answer) as (routed, (worker,)):
        answer = await routed.post("/v1/messages/count_tokens", x_claude_code_session_id="s")
        record = await routed.store.look(SessionRef("default", "s"))
    assert (answer.status_code, record.state) == (200, "none")
    assert worker.heard[0].tag("w1").session == ""


async def test_raw_bytes_of_an_answer_have_one_of_each_header() -> None:
    async with (
        Upstream(streamed).serving() as worker,
        routing() as routed,
    ):
        await routed.register("w1", worker.url)
        async with raw_client(routed.url, "/v1/completions", {}, connection="close") as (reader, _):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    names = [line.split(":")[0] for line in head[1:] if line]
    assert len(names) == len(set(names))

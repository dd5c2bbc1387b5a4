"""Headers in and out, and a request's own words in them."""

import json

import pytest

from agentcache.router.forwarding import (
    answer_headers,
    header_value,
    plain_body,
    plain_headers,
    worker_headers,
)
from agentcache.router.upstream import end_to_end


def test_headers_of_one_connection_end_there_named_or_known() -> None:
    headers = [
        (b"Connection", b"close, X-Mine"),
        (b"x-mine", b"1"),
        (b"keep-alive", b"5"),
        (b"transfer-encoding", b"chunked"),
        (b"te", b"trailers"),
        (b"upgrade", b"h2c"),
        (b"x-other", b"2"),
    ]
    assert end_to_end(headers) == [(b"x-other", b"2")]


def test_a_worker_gets_a_tag_and_a_request_id_of_ours_once() -> None:
    sent = [(b"x-agentcache-tag", b"forged"), (b"x-request-id", b"theirs"), (b"x-agentcache-reuse", b"0")]
    assert worker_headers(sent, "tag", "id.1") == [
        (b"x-agentcache-reuse", b"0"),
        (b"x-agentcache-tag", b"tag"),
        (b"x-request-id", b"id.1"),
    ]


def test_our_words_take_the_place_of_the_same_names() -> None:
    upstream = [
        (b"X-Agentcache-State", b"open"),
        (b"Date", b"then"),
        (b"content-type", b"a"),
        (b"x-request-id", b"1"),
    ]
    told = {"x-agentcache-state": "closed", "x-request-id": "2"}
    assert answer_headers(upstream, told, ours=True) == [
        (b"content-type", b"a"),
        (b"x-agentcache-state", b"closed"),
        (b"x-request-id", b"2"),
    ]


def test_only_our_workers_speak_in_our_names() -> None:
    upstream = [(b"x-agentcache-cached-tokens", b"9"), (b"x-other", b"1")]
    assert answer_headers(upstream, {}, ours=True) == upstream
    assert answer_headers(upstream, {}, ours=False) == [(b"x-other", b"1")]


def test_a_value_is_one_line_whatever_a_client_wrote() -> None:
    assert header_value("by model a\r\nset-cookie: b\0") == b"by model a  set-cookie: b "
    assert header_value("s\u00e9ance \u4e2d") == "s\u00e9ance \u4e2d".encode()


def test_a_body_that_needs_no_change_is_the_same_bytes() -> None:
    body = b'{ "prompt": "hi" }'
    assert plain_body("openai", "a", body, {"prompt": "hi"}, "salt", "s") is body
    assert (
        plain_body("vllm", "a", body, {"prompt": "hi"}, "salt", "s") == b'{"prompt":"hi","cache_salt":"salt"}'
    )


MACHINERY = (
    "session_params",
    "kv_hints",
    "kv_transfer_params",
    "rid",
    "request_id",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "data_parallel_rank",
)


@pytest.mark.parametrize("kind", ["openai", "sglang", "vllm"])
@pytest.mark.parametrize("name", MACHINERY)
def test_words_of_the_machinery_between_servers_are_no_clients(kind: str, name: str) -> None:
    values = {"prompt": "hi", name: {"id": "b/victim"}}
    told = json.loads(plain_body(kind, "a", json.dumps(values).encode(), values, "salt", ""))
    assert name not in told
    assert told["prompt"] == "hi"


def test_what_is_kept_back_in_an_object_leaves_the_rest_of_it_and_of_the_request_alone() -> None:
    values = {"vllm_xargs": {"session_id": "s", "other": 1}, "nvext": {"agent_context": {"x": 1}, "y": 2}}
    told = json.loads(plain_body("vllm", "a", b"", values, "salt", ""))
    assert (told["vllm_xargs"], told["nvext"]) == ({"other": 1}, {"y": 2})
    told = json.loads(plain_body("openai", "a", b"", values, "salt", ""))
    assert (told["vllm_xargs"], told["nvext"]) == ({"session_id": "a/s", "other": 1}, values["nvext"])
    assert values["vllm_xargs"]["session_id"] == "s"
    odd = {"vllm_xargs": ["session_id"], "metadata": {"session_id": 7, "z": None}}
    assert json.loads(plain_body("openai", "a", b"", odd, "salt", "")) == {
        "vllm_xargs": ["session_id"],
        "metadata": {"z": None},
    }


@pytest.mark.parametrize(
    "name",
    [
        "authorization",
        "x-api-key",
        "api-key",
        "x-goog-api-key",
        "anthropic-auth-token",
        "anthropic-api-key",
        "openai-organization",
        "openai-project",
        "ocp-apim-subscription-key",
        "cf-aig-authorization",
        "x_api_key",
    ],
)
def test_keys_and_accounts_of_any_vendor_stay_here_unless_they_are_meant_to_go_on(name: str) -> None:
    sent = [(name.encode(), b"secret"), (b"anthropic-version", b"1"), (b"x-max-tokens", b"")]
    rest = [(b"anthropic-version", b"1"), (b"x-max-tokens", b""), (b"x-request-id", b"id.1")]
    assert plain_headers("openai", "a", sent, "id.1", with_keys=False) == rest
    assert plain_headers("openai", "a", sent, "id.1", with_keys=True) == [sent[0], *rest]
    assert sent[0] not in worker_headers(sent, "tag", "id.1")


def test_a_header_that_chooses_a_part_of_a_server_is_no_clients() -> None:
    assert plain_headers("vllm", "a", [(b"x-data-parallel-rank", b"1")], "id.1", True)[:-1] == []

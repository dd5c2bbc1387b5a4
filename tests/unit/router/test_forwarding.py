"""Headers in and out, and a request's own words in them."""

from agentcache.router.forwarding import answer_headers, header_value, plain_body, worker_headers
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
    assert plain_body("openai", body, {"prompt": "hi"}, "salt", "s") is body
    assert plain_body("vllm", body, {"prompt": "hi"}, "salt", "s") == b'{"prompt":"hi","cache_salt":"salt"}'

"""What `agentcache top` makes of what servers say: looks, screens, JSON, and one error where nobody is."""

import io
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agentcache.errors import CacheError, Kind
from agentcache.top.command import Way, World, show, top
from agentcache.top.fetching import Fetch, Said, checked_url, fetching
from agentcache.top.looking import Look, look
from agentcache.top.showing import look_json

URL, OTHER = "http://router:8000", "http://worker:8100"
WORKER_METRICS = """
# TYPE agentcache_sessions_open gauge
agentcache_sessions_open 2.0
# TYPE agentcache_prompt_tokens counter
agentcache_prompt_tokens_total 1000.0
# TYPE agentcache_cached_tokens counter
agentcache_cached_tokens_total{cache_source="device"} 500.0
agentcache_cached_tokens_total{cache_source="host"} 200.0
agentcache_cached_tokens_total{cache_source="external"} 0.0
# TYPE agentcache_pool_slots gauge
agentcache_pool_slots{component="FULL",tier="device",state="size"} 100.0
agentcache_pool_slots{component="FULL",tier="device",state="free"} 25.0
agentcache_pool_slots{component="FULL",tier="device",state="referenced"} 10.0
# TYPE agentcache_num_running_reqs gauge
agentcache_num_running_reqs 1.0
"""
ROUTER_METRICS = """
# TYPE agentcache_router_workers gauge
agentcache_router_workers{state="usable"} 1.0
# TYPE agentcache_router_prompt_tokens counter
agentcache_router_prompt_tokens_total 300.0
# TYPE agentcache_router_reused_tokens counter
agentcache_router_reused_tokens_total 60.0
"""
SESSION: dict[str, Any] = {
    "session_id": "fix-the-parser",
    "state": "open",
    "running": 1,
    "queued": 0,
    "idle_s": 0.0,
    "ttl_s": 1800.0,
    "parent": None,
    "paused": None,
    "held": [{"component": "FULL", "tier": "device", "tokens": 12_345}],
}
PAUSED = {
    **SESSION,
    "session_id": "waits",
    "running": 0,
    "idle_s": 65.0,
    "paused": {"tool": "pytest", "expected_s": 90},
}


def web(**said: Any) -> Fetch:
    """Servers that answer what is given by path; at OTHER too, where it is `other_…`."""

    def fetch(base: str, path: str) -> Said:
        name = path.partition("?")[0].strip("/").replace("/", "_")
        found = said.get(name if base == URL else f"other_{name}", 404)
        if isinstance(found, CacheError):
            raise found
        if isinstance(found, int):
            return Said(found, "")
        return Said(200, found if isinstance(found, str) else json.dumps(found))

    return fetch


def a_worker(**more: Any) -> Fetch:
    return web(metrics=WORKER_METRICS, v1_sessions={"data": [PAUSED, SESSION]}, **more)


def a_router(**more: Any) -> Fetch:
    seen = {"id": "w1", "url": OTHER, "kind": "agentcache", "alive": True, "state": "alive", "running": 3}
    sessions = {"data": [{**SESSION, "worker": "w1", "in_flight": 1}], "open_sessions": 7}
    told: dict[str, Any] = {
        "metrics": ROUTER_METRICS,
        "v1_workers": {"data": [seen]},
        "v1_sessions": sessions,
    }
    return web(**{**told, **more})


def drawn(fetch: Fetch, way: Way = Way(once=True), looks: int = 1, terminal: bool = False) -> str:  # noqa: B008
    """What is shown until the reader has seen so many looks."""
    text = io.StringIO()
    left = iter(range(looks - 1))

    def sleep(_seconds: float) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    console = Console(file=text, width=160, height=24, force_terminal=terminal, highlight=False)
    seconds: Iterator[float] = iter(range(100, 1000, 10))
    world = World(fetch, lambda: next(seconds), sleep, console)
    if way.once:
        assert show(world, URL, way) == 0
    else:
        with pytest.raises(KeyboardInterrupt):
            show(world, URL, way)
    return text.getvalue()


def seen(fetch: Fetch) -> Look:
    return look(fetch, URL, 0.0)


def test_a_worker_is_seen_with_sessions_pools_and_hits_by_tier() -> None:
    now = seen(a_worker())
    assert (now.kind, now.open_sessions, now.counts.rate(), now.counts.rate("host")) == (
        "worker",
        2,
        0.7,
        0.2,
    )
    (worker,) = now.workers or ()
    (pool,) = worker.pools
    assert (pool.share("used"), pool.share("referenced"), worker.running) == (0.75, 0.1, 1)


def test_a_router_is_seen_with_its_workers_own_numbers() -> None:
    now = seen(a_router(other_metrics=WORKER_METRICS))
    assert (now.kind, now.open_sessions, now.counts.rate()) == ("router", 7, 0.7)
    assert [(worker.id, worker.reached, worker.running) for worker in now.workers or ()] == [("w1", True, 1)]


@pytest.mark.parametrize("role", ["prefill", "both", ""])
def test_a_worker_that_does_half_of_it_is_shown_with_its_role(role: str) -> None:
    one = {"id": "w1", "url": OTHER, "kind": "agentcache", "alive": True, "state": "alive", "role": role}
    fetch = a_router(v1_workers={"data": [one]}, other_metrics=WORKER_METRICS)
    assert look_json(seen(fetch), None)["workers"][0]["role"] == (role or None)
    assert ("alive, prefill" in drawn(fetch)) == (role == "prefill")


@pytest.mark.parametrize("away", [500, "not metrics {{{", CacheError(Kind.UNREACHABLE, "nobody")])
def test_a_worker_that_cannot_be_reached_is_shown_as_its_router_says(away: Any) -> None:
    fetch = a_router(other_metrics=away)
    now = seen(fetch)
    (worker,) = look_json(now, None)["workers"]
    assert (worker["reached"], worker["running"], worker["open_sessions"]) == (False, 3, None)
    assert now.counts.rate() == 0.2, "the router's own count"
    (row,) = (line for line in drawn(fetch).splitlines() if line.startswith("w1 "))
    assert row.split() == ["w1", "alive", "–", "3", "0", "not", "reached"]


def test_what_needs_a_key_is_said_and_the_rest_is_shown() -> None:
    fetch = a_router(v1_sessions=401, v1_workers=401)
    told = look_json(seen(fetch), None)
    assert [note.partition(":")[0] for note in told["notes"]] == ["sessions", "workers"]
    assert (told["sessions"], told["open_sessions"], told["workers"]) == (None, None, None)
    assert told["hit_rate"] == {"all": 0.2}
    text = drawn(fetch)
    assert "– open sessions, – running, – waiting\n" in text
    assert text.count("--key-file") == 2


def test_how_many_sessions_are_open_is_said_by_the_workers_where_the_router_does_not() -> None:
    fetch = a_router(v1_sessions=401, other_metrics=WORKER_METRICS)
    told = look_json(seen(fetch), None)
    assert (told["sessions"], told["open_sessions"]) == (None, 2)
    assert "2 open sessions at workers, 1 running" in drawn(fetch)
    tenants = a_router(v1_workers=401)
    assert (look_json(seen(tenants), None)["open_sessions"], seen(tenants).workers) == (7, None)
    assert "7 open sessions, – running" in drawn(tenants)


@pytest.mark.parametrize(
    ("fetch", "by", "words"),
    [
        (a_worker(), "worker", "since the worker's start 70.0%"),
        (a_router(other_metrics=WORKER_METRICS), "workers", "since the workers' start 70.0%"),
        (a_router(), "router", "since the router's start 20.0%"),
        (a_router(v1_workers=401), "router", "since the router's start 20.0%"),
    ],
)
def test_whose_hit_rate_it_is_is_said(fetch: Fetch, by: str, words: str) -> None:
    assert look_json(seen(fetch), None)["counted_by"] == by
    assert words in drawn(fetch)


def test_a_screen_has_all_of_it_and_fits() -> None:
    text = drawn(a_worker())
    for word in ("worker http://router:8000", "2 open sessions", "70.0%", "device 50.0%", "75%", "12.3k"):
        assert word in text, word
    assert "waits for pytest, 90s" in text
    assert text.index("fix-the-parser") < text.index("waits")
    many = [{**SESSION, "session_id": f"s{number}"} for number in range(500)]
    crowd = web(metrics=WORKER_METRICS, v1_sessions={"data": many})
    assert "s499" in drawn(crowd), "plain text is not cut"
    shown = drawn(crowd, Way(), terminal=True)
    assert "more" in shown
    assert "s499" not in shown


def test_plain_text_has_no_codes_and_a_terminal_is_left_as_it_was() -> None:
    assert "\x1b" not in drawn(a_worker(), Way(interval_s=1), looks=3)
    shown = drawn(a_worker(), Way(), looks=2, terminal=True)
    assert shown.count("\x1b[?1049h") == shown.count("\x1b[?1049l") == 1
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l"), "the cursor is back"


@pytest.mark.parametrize(
    ("expected_s", "words"), [(4.25, "4.2s"), (59, "59s"), (119, "119s"), (180, "3m"), (7200, "2.0h")]
)
def test_times_are_told_as_exactly_as_they_matter(expected_s: float, words: str) -> None:
    waits = {**PAUSED, "paused": {"tool": "pytest", "expected_s": expected_s}}
    assert f"waits for pytest, {words} " in drawn(web(metrics=WORKER_METRICS, v1_sessions={"data": [waits]}))


def test_names_move_no_cursor_and_are_no_markup() -> None:
    odd = {**SESSION, "session_id": "[red]a\x1b[2J\n[/red]"}
    text = drawn(web(metrics=WORKER_METRICS, v1_sessions={"data": [odd]}))
    assert "[red]a·[2J·[/red]" in text


def test_json_is_one_object_a_look(capsys: pytest.CaptureFixture[str]) -> None:
    drawn(a_worker(), Way(json=True), looks=2)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["hit_rate"] == {"all": 0.7, "device": 0.5, "host": 0.2, "external": 0.0}
    assert (first["hit_rate_lately"], second["hit_rate_lately"]["all"]) == (None, None)
    assert [session["session_id"] for session in first["sessions"]] == ["waits", "fix-the-parser"]
    assert first["workers"][0]["pools"][0]["size"] == 100


def test_who_goes_away_later_is_a_note_and_who_comes_back_is_shown() -> None:
    answers = iter([WORKER_METRICS, CacheError(Kind.UNREACHABLE, "gone"), WORKER_METRICS])

    def fetch(base: str, path: str) -> Said:
        return web(metrics=next(answers) if path == "/metrics" else "", v1_sessions={"data": []})(base, path)

    text = drawn(fetch, Way(), looks=3)
    assert text.count("nobody answers at http://router:8000 since 20 s") == 1
    assert text.count("open sessions") == 3


@pytest.mark.parametrize("metrics", [404, "", "up 1\n", "agentcache_sessions"])
def test_who_is_neither_router_nor_worker_is_told_so(metrics: Any) -> None:
    with pytest.raises(CacheError) as refused:
        seen(web(metrics=metrics))
    assert refused.value.kind is Kind.UNREACHABLE
    assert "neither a router nor a worker" in refused.value.message


@pytest.mark.parametrize(
    "odd",
    [
        {"data": "x"},
        {"data": [3]},
        [],
        "{",
        {"data": [{"held": [3], "paused": 4, "idle_s": "?", "running": None}]},
    ],
)
def test_answers_of_another_shape_are_no_faults(odd: Any) -> None:
    assert "0 " in drawn(web(metrics=WORKER_METRICS, v1_sessions=odd)) or odd


def test_nobody_there_is_one_clear_error(tmp_path: Path) -> None:
    with socket.socket() as held:  # bound, so that nobody else gets the port, and not listening
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(CacheError) as refused:
            top(url, once=True, as_json=False, interval_s=1, key_file=None)
    assert refused.value.kind is Kind.UNREACHABLE
    assert refused.value.message.startswith(f"nobody answers at {url} (Connection refused)")
    for wrong in ("127.0.0.1:8000", "ftp://x", "http://", "file:///etc/passwd", "http://a b"):
        with pytest.raises(CacheError, match="--url must look like"):
            checked_url(wrong)
    for content in (b"\xff", b"two keys", "schlüssel".encode()):
        file = tmp_path / "key"
        file.write_bytes(content)
        with pytest.raises(CacheError, match="--key-file"):
            top(url, once=True, as_json=False, interval_s=1, key_file=file)


def test_who_listens_and_never_answers_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(CacheError, match="nobody answers"):
            fetching(url, "", timeout_s=0.05)(url, "/metrics")


@contextmanager
def recording() -> Iterator[tuple[str, list[str]]]:
    """A server that sends everybody elsewhere, and what it was sent as keys."""
    keys: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys.append(self.headers.get("authorization", ""))
            self.send_response(302)
            self.send_header("location", f"{self.path}/on")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", keys
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_key_goes_to_the_address_that_was_named_and_nobody_is_followed() -> None:
    with recording() as (named, its), recording() as (other, others):
        fetch = fetching(named, "a-key")
        assert [fetch(named, "/metrics").status, fetch(other, "/metrics").status] == [302, 302]
    assert (its, others) == (["Bearer a-key"], [""])

"""What a worker says when it starts, and why it does not start."""

import json
import shutil
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from agentcache.engine.api import Answers
from agentcache.engine.capability import ReuseClass
from agentcache.errors import CacheError, Kind
from agentcache.web.leaving import leaving_early
from agentcache.web.listening import bind, url_of
from agentcache.worker.banner import banner
from agentcache.worker.context import Worker
from agentcache.worker.serve import serve
from tests.chosen import CORE
from tests.serving import tiny_settings


@pytest.fixture
def quiet_logs() -> Iterator[None]:
    """`serve` sets the process's logger up; put it back."""
    yield
    structlog.reset_defaults()


def refusal(model: Path | str, **changes: object) -> CacheError:
    """Why a worker does not start."""
    with pytest.raises(CacheError) as caught:
        serve(tiny_settings(Path(model), **changes))
    return caught.value


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.usefixtures("quiet_logs")
def test_a_checkpoint_with_missing_files_is_named(checkpoint: Path, tmp_path: Path, missing: str) -> None:
    shutil.copytree(checkpoint, tmp_path / "broken", ignore=shutil.ignore_patterns(missing))
    error = refusal(tmp_path / "broken", port=0)
    assert error.kind is Kind.BAD_CHECKPOINT
    assert missing in str(error) or "weights" in str(error)


@pytest.mark.usefixtures("quiet_logs")
def test_an_unsupported_model_is_named(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoint, tmp_path / "foreign")
    (tmp_path / "foreign" / "config.json").write_text(json.dumps({"model_type": "no-such-family"}))
    error = refusal(tmp_path / "foreign", port=0)
    assert error.kind is Kind.UNSUPPORTED_MODEL
    assert "no-such-family" in str(error)


@pytest.mark.usefixtures("quiet_logs")
def test_a_model_that_nobody_knows_is_named() -> None:
    error = refusal("tiny-nothing", port=0)
    assert error.kind is Kind.BAD_CHECKPOINT
    assert "tiny-all" in str(error)


@pytest.mark.usefixtures("quiet_logs")
def test_a_taken_port_is_refused_before_the_model_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        error = refusal("no-such-model", port=taken.getsockname()[1])
    assert error.kind is Kind.BAD_CONFIG
    assert "--port" in error.message


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("localhost", "127.0.0.1")]
)
def test_the_url_is_one_that_a_client_here_can_use(host: str, shown: str) -> None:
    with bind(host, 0) as listener:
        assert url_of(listener) == f"http://{shown}:{listener.getsockname()[1]}"


def test_the_banner_says_what_is_served_and_ends_with_the_url(shared_worker: Worker) -> None:
    text = banner(shared_worker.info, "http://127.0.0.1:1", "device only")
    assert "FULL + SWA + MAMBA" in text
    assert "FULL 1,024 pages = 4,096 tokens" in text
    assert f"\n  tiers       device only\n  core        {CORE}\n" in text
    assert "curl -s http://127.0.0.1:1/v1/chat/completions" in text
    assert text.splitlines()[-1] == "listening on http://127.0.0.1:1"
    assert "noise" not in text


def test_the_banner_of_a_worker_behind_a_router_has_no_line_to_try_that_it_would_refuse(
    shared_worker: Worker,
) -> None:
    text = banner(shared_worker.info, "http://127.0.0.1:1", "device only", guarded=True)
    assert "curl" not in text
    assert "\n  clients     send requests to the router: this worker takes them from routers only\n" in text


def test_the_banner_says_that_random_weights_answer_noise(shared_worker: Worker) -> None:
    assert "answers are noise" in banner(replace(shared_worker.info, answers=Answers.NOISE), "http://x", "")


def test_the_banner_says_why_reuse_is_impossible(shared_worker: Worker) -> None:
    info = replace(shared_worker.info, reuse=ReuseClass.NOT_REUSABLE.value, reason="not reusable: it hides")
    assert "not reusable: it hides; every prompt is computed in full" in banner(info, "http://x", "")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_server_runs_ends_the_process_well(sent: signal.Signals) -> None:
    before = signal.getsignal(sent)
    left: list[str] = []
    with leaving_early(lambda: left.append("now")):
        signal.raise_signal(sent)
    assert left == ["now"]
    assert signal.getsignal(sent) is before

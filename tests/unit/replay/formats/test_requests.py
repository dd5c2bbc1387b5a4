"""Traces of services: Mooncake's requests and Azure's arrivals, each a session of one call."""

from datetime import UTC, datetime
from pathlib import Path

from agentcache.replay.readers import open_trace
from agentcache.replay.trace import Call, Facts, Origin, Session
from tests.traces import GOLDEN, golden, written


def test_requests_of_one_bucket_are_spread_over_it() -> None:
    """Three in the bucket of 3 s, two in the last one, which is as wide; a partial block is not told."""
    sessions = golden("mooncake.jsonl")
    assert [session.origin.start_s for session in sessions] == [0.0, 3.0, 4.0, 5.0, 6.0, 7.5]
    assert [session.calls[0].blocks for session in sessions] == [(0, 1), (0, 1), (0, 3, 4), (), (0,), (0,)]
    assert sessions[2] == Session(
        "mooncake-3",
        (Call(0, blocks=(0, 3, 4), facts=Facts(prompt_tokens=1536, output_tokens=7)),),
        sessions[2].place,
        block_tokens=512,
        origin=Origin(start_s=4.0),
    )
    assert open_trace(GOLDEN / "mooncake.jsonl").count() == 6


def test_arrivals_have_no_content() -> None:
    first, second = golden("azure.csv")
    began = datetime(2023, 11, 16, 18, 15, 46, 680590, tzinfo=UTC).timestamp()
    assert first == Session(
        "azure-2",
        (Call(0, facts=Facts(prompt_tokens=374, output_tokens=44)),),
        first.place,
        origin=Origin(start_s=began),
    )
    assert list(second.prompts()) == [[]]
    assert open_trace(GOLDEN / "azure.csv").count() == 2


def test_an_only_bucket_is_one_moment(tmp_path: Path) -> None:
    """Nothing says how wide it is."""
    row = {"timestamp": 1_700_000_000_000, "input_length": 512, "output_length": 1, "hash_ids": [1]}
    sessions = open_trace(written(tmp_path, "t.jsonl", row, row)).sessions()
    assert [session.origin.start_s for session in sessions] == [1.7e9, 1.7e9]

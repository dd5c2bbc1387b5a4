"""Traces of services: Mooncake's requests and Azure's arrivals, each a session of one call."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentcache.replay.formats.azure import AzureReader
from agentcache.replay.formats.mooncake import MooncakeReader
from agentcache.replay.readers import open_trace
from agentcache.replay.sources import Document
from agentcache.replay.trace import Call, Facts, Place, Session
from tests.traces import GOLDEN, complaint, golden, written


def test_requests_of_one_bucket_are_spread_over_it() -> None:
    """Three in the bucket of 3 s, two in the last one, which is as wide; a partial block is not told."""
    sessions = golden("mooncake.jsonl")
    assert [session.among.start_s for session in sessions] == [0.0, 3.0, 4.0, 5.0, 6.0, 7.5]
    assert [session.calls[0].blocks for session in sessions] == [(0, 1), (0, 1), (0, 3, 4), (), (0,), (0,)]
    assert sessions[2] == Session(
        "mooncake-3",
        (Call(0, blocks=(0, 3, 4), facts=Facts(prompt_tokens=1536, output_tokens=7)),),
        sessions[2].place,
        block_tokens=512,
        among=Place(start_s=4.0),
    )
    assert open_trace(GOLDEN / "mooncake.jsonl").count() == 6


def test_arrivals_have_no_content() -> None:
    first, second = golden("azure.csv")
    began = datetime(2023, 11, 16, 18, 15, 46, 680590, tzinfo=UTC).timestamp()
    assert first == Session(
        "azure-2",
        (Call(0, facts=Facts(prompt_tokens=374, output_tokens=44)),),
        first.place,
        among=Place(start_s=began),
    )
    assert list(second.prompts()) == [[]]
    assert open_trace(GOLDEN / "azure.csv").count() == 2


def request(**changes: Any) -> dict[str, Any]:
    return {"timestamp": 5, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2], **changes}


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ([], "line 2 is not an object"),
        (request(timestamp=4.5), "line 2: timestamp is 4.5, earlier than the one before it (5)"),
        (request(timestamp="6"), "line 2: timestamp is '6', not a number"),
        (request(timestamp=None), "line 2: timestamp is missing"),
        (request(input_length=-4), "line 2: input_length is -4, not a whole number from 0 on"),
        (request(output_length="x"), "line 2: output_length is 'x', not a whole number from 0 on"),
        (request(hash_ids="12"), "line 2: hash_ids is '12', not a list"),
        (request(hash_ids=[1]), "line 2: hash_ids has 1 blocks, too few for 1024 tokens"),
        (request(hash_ids=[1, None]), "line 2: hash_ids holds something that is not a whole number"),
    ],
)
def test_a_wrong_field_of_a_request_is_named(tmp_path: Path, row: Any, wrong: str) -> None:
    path = written(tmp_path, "t.jsonl", request(), row)
    assert complaint(path) == f", {wrong}. Repair or remove it"


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ("noon,1,2", "TIMESTAMP is 'noon', not a time as 2026-01-31T12:00:00Z"),
        ("2023-11-16 18:15:46.6,1,2", "TIMESTAMP is '2023-11-16 18:15:46.6', earlier than the one before it"),
        ("2023-11-16 18:15:48.0,-1,2", "ContextTokens is '-1', not a whole number from 0 on"),
        ("2023-11-16 18:15:48.0,1,", "GeneratedTokens is '', not a whole number from 0 on"),
        ("2023-11-16 18:15:48.0,1,2.5", "GeneratedTokens is '2.5', not a whole number from 0 on"),
    ],
)
def test_a_wrong_field_of_an_arrival_is_named(tmp_path: Path, row: str, wrong: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:47.0,1,2\n{row}\n")
    assert complaint(path) == f", line 3: {wrong}. Repair or remove it"


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        (request(), True),
        (request(chat_id=3, parent_chat_id=-1), False),
        (request(session_id="s"), False),
        ({"timestamp": 1}, False),
        ([], False),
    ],
)
def test_mooncake_is_recognised_by_its_first_document(value: Any, accepted: bool) -> None:
    """What other formats made of it is left to readers of theirs."""
    assert MooncakeReader().accepts(Document(value, Path("t"), 1)) is accepted


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        ({"TIMESTAMP": "", "ContextTokens": "", "GeneratedTokens": ""}, True),
        ({"Timestamp": "", "Request tokens": ""}, False),
        ([], False),
    ],
)
def test_azure_is_recognised_by_its_columns(value: Any, accepted: bool) -> None:
    assert AzureReader().accepts(Document(value, Path("t"), 1)) is accepted

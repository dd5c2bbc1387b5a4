"""An object is what was asked for, bit by bit, or nothing."""

import hashlib

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from agentcache import keys
from agentcache.tiers.stores import objects
from agentcache.tiers.stores.objects import HEADER, pack, unpack
from agentcache.types import FULL, MAMBA, ComponentName

NAME = "agentcache/1/00ff/FULL"
LAYOUT = "float32 16x2x64"

payloads = st.binary(max_size=300)
texts = st.text(max_size=20)


@given(name=texts, component=texts, layout=texts, payload=payloads)
def test_objects_unpack_gives_the_payload(name: str, component: str, layout: str, payload: bytes) -> None:
    which = ComponentName(component)
    raw = pack(name, which, layout, payload)
    assert unpack(name, which, layout, len(payload), raw) == memoryview(payload)
    assert pack(name, which, layout, memoryview(payload)) == raw


def test_objects_unpack_does_not_copy() -> None:
    raw = pack(NAME, FULL, LAYOUT, b"payload")
    payload = unpack(NAME, FULL, LAYOUT, 7, raw)
    assert payload is not None
    assert payload.obj is raw
    assert len(raw) == HEADER.size + 7


@given(payload=payloads, bit=st.integers(min_value=0))
def test_objects_any_flipped_bit_is_a_miss(payload: bytes, bit: int) -> None:
    raw = bytearray(pack(NAME, FULL, LAYOUT, payload))
    bit %= 8 * len(raw)
    raw[bit // 8] ^= 1 << bit % 8
    assert unpack(NAME, FULL, LAYOUT, len(payload), bytes(raw)) is None


@given(payload=payloads, data=st.data())
def test_objects_cut_short_or_longer_are_a_miss(payload: bytes, data: st.DataObject) -> None:
    raw = pack(NAME, FULL, LAYOUT, payload)
    short = data.draw(st.integers(0, len(raw) - 1))
    assert unpack(NAME, FULL, LAYOUT, len(payload), raw[:short]) is None
    assert unpack(NAME, FULL, LAYOUT, max(0, short - HEADER.size), raw[:short]) is None
    assert unpack(NAME, FULL, LAYOUT, len(payload), raw + data.draw(st.binary(min_size=1))) is None


@given(payload=payloads, other=payloads)
def test_objects_another_payload_under_this_header_is_a_miss(payload: bytes, other: bytes) -> None:
    assume(payload != other)
    raw = pack(NAME, FULL, LAYOUT, payload)[: HEADER.size] + other
    assert unpack(NAME, FULL, LAYOUT, len(other), raw) is None


@given(raw=st.binary(max_size=200))
@example(raw=b"")
def test_objects_any_other_bytes_are_a_miss(raw: bytes) -> None:
    assert unpack(NAME, FULL, LAYOUT, max(0, len(raw) - HEADER.size), raw) is None


@pytest.mark.parametrize(
    ("name", "component", "layout", "length"),
    [
        pytest.param("agentcache/1/00fe/FULL", FULL, LAYOUT, 7, id="name"),
        pytest.param(NAME, MAMBA, LAYOUT, 7, id="component"),
        pytest.param(NAME, FULL, "float16 16x2x64", 7, id="layout"),
        pytest.param(NAME, FULL, LAYOUT, 6, id="shorter slot"),
        pytest.param(NAME, FULL, LAYOUT, 8, id="longer slot"),
        pytest.param(NAME + FULL, ComponentName(""), LAYOUT, 7, id="one field runs into the next"),
    ],
)
def test_objects_of_another_kind_are_a_miss(
    name: str, component: ComponentName, layout: str, length: int
) -> None:
    assert unpack(name, component, layout, length, pack(NAME, FULL, LAYOUT, b"payload")) is None


@pytest.mark.parametrize("version", [keys.FORMAT_VERSION - 1, keys.FORMAT_VERSION + 1])
def test_objects_of_another_format_version_are_a_miss(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = pack(NAME, FULL, LAYOUT, b"payload")
    monkeypatch.setattr(objects, "FORMAT_VERSION", version)
    assert unpack(NAME, FULL, LAYOUT, 7, raw) is None
    assert unpack(NAME, FULL, LAYOUT, 7, pack(NAME, FULL, LAYOUT, b"payload")) == memoryview(b"payload")


def test_objects_format_is_written_down() -> None:
    """What is on the disk of users. A change here needs another FORMAT_VERSION."""
    raw = pack(NAME, FULL, LAYOUT, b"payload")
    fields = [NAME, FULL, LAYOUT]
    identity = b"".join(len(field).to_bytes(8, "little") + field.encode() for field in fields)
    assert raw == (
        b"\xacKV\n"
        + (1).to_bytes(2, "little")
        + hashlib.sha256(identity).digest()[:16]
        + (7).to_bytes(8, "little")
        + hashlib.sha256(b"payload").digest()[:16]
        + b"payload"
    )

"""The binding of the native core: what a test of the contract on both cores cannot see."""

import dataclasses
import gc
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from agentcache import types, views
from agentcache.errors import CacheError, Kind
from agentcache.keys import Key, Namespace
from agentcache.tree.api import CoreConfig, UnifiedTreeCore
from agentcache.tree.native import NativeCore
from agentcache.types import (
    FULL,
    NO_SLOTS,
    Boundary,
    ComponentName,
    ComponentSpec,
    Insert,
    Lease,
    NodeRef,
    Region,
    ReleaseMode,
    Slots,
    TierName,
    Turn,
    full_spec,
)
from tests.builders import HOME, config_of, interval, key_of, pages_of, slots_of, state
from tests.contract.reading import refused

pytestmark = pytest.mark.native

DEVICE, HOST = TierName.DEVICE, TierName.HOST


def core_of(kinds: str = "SM", **config: Any) -> NativeCore:
    return NativeCore(config_of(kinds, page=4, **config))


def offer_of(pages: int, first: int = 0) -> Insert:
    """FULL, a window and a state for a key of so many pages, in slots from `first`."""
    slots, end = range(first, first + pages), 4 * pages
    return Insert(slots_of(slots), (interval(0, end, slots), state(end, first)))


def answers() -> Iterator[object]:
    """One call of each method at least, with every kind of effect among the results."""
    core: UnifiedTreeCore = core_of(host_tier=True, write_back=True, emit_events=True)
    key = pages_of("abc", 4)
    yield core.match(key, 12, 1)
    yield core.insert(key, offer_of(3), 2)
    yield core.insert(pages_of("ax", 4), offer_of(2, first=10), 3)
    found = core.match(key, 12, 4)
    yield core.peek(pages_of("abd", 4), 12)
    locked = core.lock(found.device, 5)
    yield locked
    yield core.reference(types.SessionId("s"), 1, Turn(found.device, found.any_tier, 1, 2), 6)
    yield core.snapshot()
    yield core.stats()
    core.unlock(locked.lease, None, 7)
    planned = core.plan_backup(found.device, DEVICE, HOST, 8)
    yield planned
    assert planned.job is not None
    yield core.commit(planned.job, planned.job.pieces, 9)
    yield core.release(types.SessionId("s"), 1, ReleaseMode.PREVIEW, 10)
    yield core.evict(FULL, DEVICE, 3, {}, 11)
    yield core.plan_load(core.match(key, 12, 12).any_tier, HOST, DEVICE, 13)
    other = core_of(emit_events=True)
    other.insert(key, offer_of(3), 1)
    yield other.clear(None, 2)


def dataclasses_in(value: object) -> Iterator[Any]:
    if dataclasses.is_dataclass(value):
        yield value
        for field in dataclasses.fields(value):
            yield from dataclasses_in(getattr(value, field.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from dataclasses_in(item)


def plain(value: object) -> object:
    """All that a value holds, with the exact types of what it holds."""
    if dataclasses.is_dataclass(value):
        held = [plain(getattr(value, field.name)) for field in dataclasses.fields(value)]
        return (type(value), held)
    if isinstance(value, tuple):
        return (tuple, [plain(item) for item in value])
    if isinstance(value, np.ndarray):
        return (value.dtype, value.shape, value.flags.writeable, value.tolist())
    return (type(value), value)


# -- results


def test_results_are_as_if_built_by_their_classes() -> None:
    for value in (part for answer in answers() for part in dataclasses_in(answer)):
        normal = type(value)(*(getattr(value, field.name) for field in dataclasses.fields(value)))
        assert value == normal
        assert repr(value) == repr(normal)
        assert plain(pickle.loads(pickle.dumps(value))) == plain(value)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, 0)


def test_handles_hash_as_their_equals() -> None:
    core = core_of()
    core.insert(pages_of("a", 4), offer_of(1), 1)
    device = core.match(pages_of("a", 4), 4, 2).device
    assert {device} == {Boundary(NodeRef(device.node.index, device.node.generation), 4, device.epoch)}
    lease = core.lock(device, 3).lease
    assert {lease} == {Lease(lease.number)}


def test_all_that_a_field_may_hold_is_of_its_type() -> None:
    """Names are texts, tiers and kinds members, positions plain integers, slots flat writable int32 arrays."""
    seen = set()
    for part in (part for answer in answers() for part in dataclasses_in(answer)):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            seen.add((type(part), field.name, type(value)))
            if isinstance(value, np.ndarray):
                assert (value.dtype, value.ndim) == (np.int32, 1)
                assert value.flags.writeable
                assert value is NO_SLOTS or value.size
    kinds = {kind for _, _, kind in seen if kind.__module__ == "agentcache.types" and issubclass(kind, str)}
    assert kinds == {TierName, types.MissReason, ReleaseMode, types.EventKind}
    built = {kind for kind, _, _ in seen}
    of_results = {types.Miss, types.Free, types.Move, types.Emit, types.Held, types.Piece, types.Job}
    assert built >= of_results | {views.MarkerView, views.PageView, views.PoolCount}


def test_many_slots_outlive_the_core_and_are_the_callers_to_write() -> None:
    """Large arrays are handed over, not copied: their memory is nobody else's."""
    core = NativeCore(config_of(page=1))
    count = 5000
    core.insert(key_of(range(count), 1), Insert(np.arange(count, dtype=np.int32)), 1)
    device = core.match(key_of(range(count), 1), count, 2).device
    pieces = [core.lock(device, 3).pieces[0].slots for _ in range(2)]
    del core
    pieces[0][:] = -1
    assert pieces[1].tolist() == list(range(count))


def test_no_slots_are_the_shared_ones() -> None:
    core = core_of()
    root = core.match(pages_of("a", 4), 4, 1).device
    assert all(piece.slots is NO_SLOTS for piece in core.lock(root, 2).pieces)


def test_a_class_with_other_fields_is_refused_at_import() -> None:
    """A field that the binding does not know would stay unset."""
    script = (
        "import agentcache.types as types, dataclasses\n"
        "types.Held = dataclasses.make_dataclass('Held', ['component', 'tier', 'tokens', 'slots', 'more'],"
        " frozen=True, slots=True)\n"
        "import agentcache._native\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("ImportError: the native core knows Held with the fields")


# -- arguments


def test_texts_equal_to_names_and_members_are_as_good() -> None:
    core = core_of()
    core.insert(pages_of("a", 4), offer_of(1), 1)
    name, tier = ComponentName("".join("FULL")), TierName("device")
    assert core.evict(name, "".join(["dev", "ice"]), 1, {name: 2}, 2).freed == 1  # type: ignore[arg-type]
    assert core.evict(name, tier, 1, {}, 2).freed == 0


BAD_ARRAYS: dict[str, Callable[[Slots], object]] = {
    "wider": lambda good: good.astype(np.int64),
    "unsigned": lambda good: good.astype(np.uint32),
    "real": lambda good: good.astype(np.float32),
    "big-endian": lambda good: good.astype(">i4"),
    "two-dimensional": lambda good: good.reshape(-1, 2),
    "of no dimension": lambda good: good[0].reshape(()),
    "every second": lambda good: np.repeat(good, 2)[::2],
    "backwards": lambda good: good[::-1],
    "a list": lambda good: good.tolist(),
    "bytes": lambda good: good.tobytes(),
    "nothing": lambda _: None,
}


@pytest.mark.parametrize("form", BAD_ARRAYS)
def test_tokens_and_slots_of_another_form_are_refused(form: str) -> None:
    core, key = core_of(), pages_of("ab", 4)
    core.insert(key, offer_of(2), 1)
    before = core.snapshot()
    bad_key = Key(BAD_ARRAYS[form](key.tokens), HOME)  # type: ignore[arg-type]
    bad_slots: Any = BAD_ARRAYS[form](slots_of([7, 8]))
    assert refused(lambda: core.match(bad_key, 8, 2)) is Kind.BAD_REQUEST
    assert refused(lambda: core.peek(bad_key, 8)) is Kind.BAD_REQUEST
    assert refused(lambda: core.insert(bad_key, offer_of(2, 4), 2)) is Kind.BAD_REQUEST
    other = pages_of("xy", 4)
    assert refused(lambda: core.insert(other, Insert(bad_slots), 2)) is Kind.BAD_INSERT
    piece = types.Piece(types.SWA, 0, 8, bad_slots)
    assert refused(lambda: core.insert(other, Insert(slots_of([7, 8]), (piece,)), 2)) is Kind.BAD_INSERT
    assert core.snapshot() == before


def test_arrays_are_read_where_they_lie() -> None:
    """Read-only ones too, and parts of larger ones."""
    core, whole = core_of(""), np.arange(100, 124, dtype=np.int32)
    whole.flags.writeable = False
    core.insert(Key(whole[4:12], HOME), Insert(slots_of([1, 2])), 1)
    assert core.match(Key(whole[4:20].copy(), HOME), 16, 2).device.length == 8


def test_numbers_beyond_64_bits_are_the_largest() -> None:
    core, key = core_of(), pages_of("ab", 4)
    core.insert(key, offer_of(2), 1)
    found = core.match(key, 2**80, 2)
    assert found.device.length == 8
    assert core.peek(key, -(2**80)).device.length == 0
    far = dataclasses.replace(found.device, length=2**80)
    assert refused(lambda: core.lock(far, 3)) is Kind.STALE_BOUNDARY
    assert refused(lambda: core.unlock(Lease(2**80), None, 3)) is Kind.LEASE_REUSED
    assert core.evict(FULL, DEVICE, 2**80, {FULL: 2**80}, 3).freed == 2
    with pytest.raises(TypeError):
        core.peek(key, 1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [types.MAMBA, "full", None, 3])
def test_what_is_no_component_is_unknown(name: Any) -> None:
    with pytest.raises(CacheError) as refusal:
        core_of("S").evict(name, DEVICE, 1, {}, 1)
    assert refusal.value.kind is Kind.UNKNOWN_COMPONENT
    assert refusal.value.facts == {"asked": name, "known": "FULL, SWA"}


def test_equal_namespaces_are_one_and_many_are_not_kept() -> None:
    core, first = core_of(""), Namespace("tenant")
    before = sys.getrefcount(first)
    core.insert(pages_of("a", 4, first), offer_of_full(1), 1)
    assert core.match(pages_of("a", 4, Namespace("tenant")), 4, 2).device.length == 4
    equals = [Namespace("tenant") for _ in range(2000)]
    assert all(core.peek(pages_of("a", 4, equal), 4).device.length == 4 for equal in equals)
    assert sys.getrefcount(first) == before
    assert core.peek(pages_of("a", 4, first), 4).device.length == 4


def test_a_look_at_an_unknown_namespace_leaves_no_trace() -> None:
    core, stranger = core_of(""), Namespace("stranger")
    before = sys.getrefcount(stranger)
    core.insert(pages_of("a", 4), offer_of_full(1), 1)
    key = pages_of("a", 4, stranger)
    assert core.peek(key, 4).device.length == core.match(key, 4, 2).device.length == 0
    assert core.clear(stranger, 3).held == ()
    del key
    assert sys.getrefcount(stranger) == before
    assert core.peek(pages_of("a", 4), 4).device.length == 4


def offer_of_full(pages: int) -> Insert:
    return Insert(slots_of(range(pages)))


def test_only_what_cannot_change_is_remembered() -> None:
    """A namespace of another class says each time what it is."""
    core, calls = core_of(""), list[int]()
    space: Any = Reentrant(lambda: calls.append(1))
    for _ in range(3):
        core.peek(Key(pages_of("a", 4).tokens, space), 4)
    assert len(calls) == 3


def test_calls_keep_no_references() -> None:
    core, key, offer = core_of(""), pages_of("a", 4), offer_of_full(1)
    core.insert(key, offer, 1)
    device = core.match(key, 4, 2).device
    things = [key.tokens, offer, device, DEVICE, FULL, HOME, Boundary]

    def call() -> None:
        core.match(key, 4, 3)
        core.unlock(core.lock(device, 3).lease, None, 3)
        refused(lambda: core.insert(key, offer, 3))
        core.evict(FULL, DEVICE, 0, {FULL: 1}, 3)
        core.stats()

    def counted() -> list[int]:
        gc.collect()  # exceptions live in cycles
        return [sys.getrefcount(thing) for thing in things]

    call()
    before = counted()
    for _ in range(100):
        call()
    assert counted() == before


# -- one call at a time


class Reentrant:
    """A namespace whose digest calls back into the core."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def digest(self) -> bytes:
        self._call()
        return HOME.digest()


def test_a_call_from_an_arguments_own_code_is_refused() -> None:
    core, key = core_of(""), pages_of("a", 4)
    core.insert(key, offer_of_full(1), 1)
    inner: Any = Reentrant(core.stats)
    assert refused(lambda: core.match(Key(key.tokens, inner), 4, 2)) is Kind.IN_USE
    assert core.stats().pools[0].cached == 1


def test_a_call_from_another_thread_meanwhile_is_refused() -> None:
    core, key = core_of(""), pages_of("a", 4)
    core.insert(key, offer_of_full(1), 1)
    inside, seen, done = threading.Event(), [], threading.Event()

    def wait() -> None:
        inside.set()
        done.wait(60)

    def other() -> None:
        inside.wait(60)
        try:
            core.stats()
        except CacheError as error:
            seen.append(error.kind)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    slow: Any = Reentrant(wait)
    assert core.match(Key(key.tokens, slow), 4, 2).device.length == 4
    thread.join()
    assert seen == [Kind.IN_USE]


# -- what it refuses to be


@dataclasses.dataclass(frozen=True, slots=True)
class Odd:
    """A rule of somebody's own."""

    def region(self, boundary: int, page_tokens: int) -> Region:
        return Region(0, boundary)


def test_a_rule_of_ones_own_is_for_the_reference_core() -> None:
    spec: Any = ComponentSpec(ComponentName("ODD"), Odd())  # type: ignore[arg-type]
    with pytest.raises(CacheError, match='core="reference"') as refusal:
        NativeCore(CoreConfig(4, (full_spec(), spec)))
    assert refusal.value.kind is Kind.BAD_CONFIG


@pytest.mark.parametrize("page", [0, -1, 2**32, 2**80])
def test_a_page_that_cannot_be_is_refused(page: int) -> None:
    assert refused(lambda: NativeCore(CoreConfig(page, (full_spec(),)))) is Kind.BAD_CONFIG


def test_config_is_the_one_given() -> None:
    config = config_of("SM", page=4)
    assert NativeCore(config).config is config


def test_a_panic_is_an_assertion_error_then_and_ever_after() -> None:
    core = core_of("")
    with pytest.raises(AssertionError, match=r"bug of the native core.*(?s:.)*lost count"):
        core._panic("lost count")
    with pytest.raises(AssertionError, match="lost count"):
        core.stats()
    assert core_of("").stats().pools[0].cached == 0

"""The tree benchmark measures what it says, on shapes so small that their times mean nothing."""

import json

import numpy as np
import pytest
from rich.console import Console

from agentcache.bench import tree
from agentcache.bench.tree import OPS, Scale, measure, plan_of, shapes_of
from agentcache.bench.tree_evictions import demote_rows, evict_rows, grow_leaves
from agentcache.bench.tree_lookups import lookup_rows, memcmp_rows
from agentcache.bench.tree_memory import memory_rows
from agentcache.bench.tree_rounds import round_rows, summarize
from agentcache.bench.tree_rows import BYTES, REFERENCED, UNREFERENCED, Place, Row, row
from agentcache.bench.tree_sessions import session_rows
from agentcache.bench.tree_world import STEPS, World, specs_of
from agentcache.build import CORES
from agentcache.errors import CacheError, Kind
from agentcache.tree.api import Order
from agentcache.types import FULL, MAMBA, SWA, Checkpoint, SessionId, Window
from tests import builders

ALWAYS = (
    "op",
    "components",
    "page",
    "tokens",
    "leaves",
    "sessions",
    "core",
    "best_us",
    "median_us",
    "n",
)
ALL = "FULL+SWA128+MAMBA"
QUIET = Console(quiet=True)


@pytest.fixture(params=builders.CORES)
def core(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def by_op(rows: list[Row]) -> dict[str, Row]:
    assert len({one.op for one in rows}) == len(rows)
    assert all(0 <= one.best_us <= one.median_us for one in rows)
    return {one.op: one for one in rows}


def test_component_names_are_specs() -> None:
    full, window, state = specs_of(ALL, 16)
    assert (full.name, window.name, state.name) == (FULL, SWA, MAMBA)
    assert (window.rule, state.rule) == (Window(128), Checkpoint(16))


def test_rows_hold_best_and_median_in_microseconds() -> None:
    made = row("evict_1", Place("native", "FULL", 16), [3e-6, 1e-6, 2e-6], 80, 10_000, UNREFERENCED)
    assert made == Row("evict_1", "FULL", 16, 80, 10_000, UNREFERENCED, "native", 1.0, 2.0, 3)


@pytest.mark.parametrize("page", [1, 16])
def test_rounds_have_their_steps(core: str, page: int) -> None:
    rows = by_op(list(round_rows(Place(core, ALL, page), rounds=3, passes=2)))
    assert tuple(rows) == OPS["rounds"]
    assert {(one.tokens, one.n, one.sessions) for one in rows.values()} == {(600, 2, REFERENCED)}
    steps = sum(rows[f"round_{step}"].best_us for step in STEPS)
    assert rows["round"].best_us == pytest.approx(steps, abs=0.01)


def test_a_round_is_the_least_of_the_passes_step_by_step() -> None:
    first = [(1e-6, 5e-6, 0.0, 0.0, 1e-6), (9e-6, 1e-6, 0.0, 0.0, 0.0)]
    second = [(3e-6, 2e-6, 0.0, 0.0, 1e-6), (7e-6, 1e-6, 0.0, 0.0, 0.0)]
    third = [(4e-6, 2e-6, 0.0, 0.0, 1e-6), (7e-6, 3e-6, 0.0, 0.0, 0.0)]
    rows = by_op(list(summarize(Place("native", "FULL", 1), [first, second, third])))
    assert (rows["round"].best_us, rows["round"].median_us) == (6.0, 7.0)
    assert (rows["round_match"].best_us, rows["round_match"].median_us) == (4.0, 5.0)
    assert (rows["round"].tokens, rows["round"].n) == (400, 3)


def test_rounds_leave_one_session_at_the_end_of_all_that_was_said(core: str) -> None:
    world = World(Place(core, ALL, 16))
    context = world.tokens(640)
    at = world.grow(context, 160)
    assert at.length == 640
    world.core.check()
    (marker,) = world.core.snapshot().markers
    assert (marker.frontier, marker.alternate) == (640, 480)
    assert world.core.stats().leases == 0


def test_offers_are_all_of_full_the_end_of_the_window_and_the_last_state(core: str) -> None:
    world = World(Place(core, ALL, 16))
    first, next_ = world.offer(0, 320, None), world.offer(320, 352, None)
    assert [(p.component, p.start, p.end, len(p.slots)) for p in first.pieces] == [
        (SWA, 192, 320, 8),
        (MAMBA, 320, 320, 1),
    ]
    assert [(p.start, len(p.slots)) for p in next_.pieces] == [(320, 2), (352, 1)]
    assert not set(first.full.tolist()) & set(next_.full.tolist())


@pytest.mark.parametrize("shape", ["one", "chain"])
def test_lookups_find_everything_and_branch_off(
    core: str, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcache.bench.tree_rows.BUDGET_S", 0)
    rows = by_op(list(lookup_rows(Place(core, "FULL+MAMBA", 16, shape), 1024)))
    assert tuple(rows) == OPS["lookups"]
    assert {(one.tokens, one.shape) for one in rows.values()} == {(1024, shape)}
    assert (rows["match"].n, rows["insert"].n) == (5, 60)


def test_the_floor_compares_bytes() -> None:
    (floor,) = memcmp_rows(1024)
    assert (floor.op, floor.tokens) == ("memcmp", 1024)


@pytest.mark.parametrize("sessions", [UNREFERENCED, REFERENCED])
@pytest.mark.parametrize("components", ["FULL", "FULL+SWA128", "FULL+MAMBA"])
def test_evictions_say_how_many_leaves_and_whose(core: str, components: str, sessions: str) -> None:
    place = Place(core, components, 16)
    rows = by_op(list(evict_rows(place, 40, sessions, Order.SESSION, {1: 6, 10: 2})))
    assert list(rows) == ["evict_1", "evict_10"]
    assert {(one.leaves, one.sessions) for one in rows.values()} == {(40, sessions)}
    assert (rows["evict_1"].n, rows["evict_10"].n) == (6, 2)


def test_leaves_hang_under_parents_of_four_pages(core: str) -> None:
    world = World(Place(core, "FULL", 4))
    grow_leaves(world, 101, REFERENCED)
    pages = world.core.snapshot().pages
    assert len(pages) == 2 * 4 + 101
    assert sum(len(page.path) == 20 for page in pages) == 101
    assert all(page.references for page in pages)


def test_siblings_all_go_to_the_host(core: str) -> None:
    rows = by_op(list(demote_rows(Place(core, "FULL", 4, "wide"), 8)))
    assert tuple(rows) == OPS["siblings"]
    assert {one.leaves for one in rows.values()} == {8}


def test_sessions_open_refer_and_close(core: str) -> None:
    rows = by_op(list(session_rows(Place(core, "FULL+SWA4096", 16), 2)))
    assert tuple(rows) == OPS["sessions"]
    assert [one.n for one in rows.values()] == [2, 18, 2]
    assert rows["close"].tokens == 3024


def test_a_session_lives_on_the_prompt_of_all(core: str) -> None:
    world = World(Place(core, "FULL", 16))
    context = world.tokens(64)
    world.turn(SessionId("a"), np.concatenate([context, world.tokens(32)]), 80, 0)
    world.turn(SessionId("b"), np.concatenate([context, world.tokens(32)]), 80, 0)
    assert len(world.core.snapshot().pages) == 4 + 2 + 2


def test_memory_is_counted_a_node(core: str) -> None:
    (found,) = memory_rows(Place(core, "FULL", 64), 5_000, UNREFERENCED)
    assert (found.op, found.unit, found.tokens, found.n) == ("bytes_per_node", BYTES, 64, 1)
    assert 64 * 4 < found.best_us == found.median_us, "the tokens alone are that large"


def test_where_memory_cannot_be_measured_the_reason_comes_through(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="it said why"):
        memory_rows(Place("reference", "FULL", -1), 10, UNREFERENCED)
    assert capfd.readouterr().err == "agentcache: bad_config: a page has at least one token, not -1\n"


def test_the_whole_plan_has_every_shape_of_the_design() -> None:
    shapes = list(shapes_of("reference", Scale(), Order.SESSION))
    counts = {family: sum(shape.family == family for shape in shapes) for family in OPS}
    assert counts == {
        "memcmp": 0,
        "rounds": 5 * 3,
        "lookups": 3 * 2 * 4 + 2 * 2,
        "evictions": 3 * 2 * 2,
        "sessions": 3,
        "siblings": 1,
        "memory": 4 * 3,
    }


def test_only_what_is_asked_for_runs() -> None:
    plan = plan_of(["reference"], quick=True, order=Order.SESSION)
    assert {one.op for one in measure(plan, ["memcmp"], QUIET)} == {"memcmp"}


def test_command_prints_one_json_object_with_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--core", "reference", "--quick", "--op", "memcmp", "demote_last"]
    assert tree.main([*words, "--json"]) == 0
    out, err = capsys.readouterr()
    printed = json.loads(out)
    assert list(printed) == ["rows"]
    assert [one["op"] for one in printed["rows"]] == ["memcmp", "demote_last"]
    assert all(tuple(one)[: len(ALWAYS)] == ALWAYS for one in printed["rows"])
    assert "siblings FULL page 16 reference" in err
    assert tree.main(words) == 0
    assert "demote_last" in capsys.readouterr().out


def test_a_core_that_is_not_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(CORES, "native", raising=False)
    with pytest.raises(CacheError) as refused:
        tree.main(["--core", "native"])
    assert refused.value.kind is Kind.BAD_CONFIG

"""The contract of a session store, over every store: what is open, under which generation, and on which worker."""

import asyncio
import random

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.store.api import (
    CloseVerdict,
    Closing,
    Done,
    Note,
    NoteKind,
    Opening,
    OpenVerdict,
    Placed,
    SessionRecord,
    SessionRef,
    Tagged,
    TagVerdict,
    Use,
)
from tests.sessionstores import RULES, START_MS, A, B, C, D, Scene, every_store

pytestmark = pytest.mark.asyncio


@every_store
async def test_a_session_opens_once_and_a_fence_raises_its_generation(scene: Scene) -> None:
    store = scene.store
    first = await store.open(A, Opening())
    assert (first.verdict, first.open_sessions) == (OpenVerdict.CREATED, 1)
    assert first.generation == START_MS * 1000, "the first generation is the store's clock in µs"
    again = await store.open(A, Opening(ttl_s=5, on_close="drop"))
    assert (again.verdict, again.generation) == (OpenVerdict.UNCHANGED, first.generation)
    fenced = await store.open(A, Opening(fence=True))
    assert (fenced.verdict, fenced.generation) == (OpenVerdict.FENCED, first.generation + 1)
    record = await store.look(A)
    assert (record.generation, record.ttl_s, record.on_close) == (fenced.generation, 100, "release")


@every_store
async def test_what_was_opened_is_seen_as_it_is(scene: Scene) -> None:
    await scene.store.open(A, Opening(ttl_s=7.5, on_close="demote"))
    opened = await scene.store.open(B, Opening(parent="a"))
    await scene.tag(B, "w1")
    scene.hours.pass_s(2)
    assert await scene.store.look(B) == SessionRecord(
        B, "open", opened.generation, "w1", 1, ("w1",), "a", 0, 1, 100, 2, "release"
    )
    seen = await scene.store.look(A)
    assert (seen.children, seen.ttl_s, seen.idle_s, seen.on_close) == (1, 7.5, 2, "demote")
    assert await scene.store.look(C) == SessionRecord(C, "none")
    assert await scene.store.look(SessionRef("u", "a")) == SessionRecord(SessionRef("u", "a"), "none")


@every_store
async def test_parents_must_be_open_and_may_not_descend_from_their_children(scene: Scene) -> None:
    store = scene.store
    assert (await store.open(B, Opening(parent="a"))).verdict is OpenVerdict.NO_PARENT
    assert (await store.open(A, Opening(parent="a"))).verdict is OpenVerdict.CYCLE
    await store.open(A, Opening())
    await store.open(B, Opening(parent="a"))
    await store.open(C, Opening(parent="b"))
    assert (await store.open(A, Opening(parent="c"))).verdict is OpenVerdict.CYCLE
    await store.close(C, Closing())
    assert (await store.open(D, Opening(parent="c"))).verdict is OpenVerdict.PARENT_CLOSED
    assert await scene.state(D) == "none"


@every_store
async def test_an_open_session_without_a_parent_takes_the_one_that_it_is_given(scene: Scene) -> None:
    await scene.store.open(A, Opening())
    await scene.store.open(B, Opening())
    adopted = await scene.tag(B, parent="a")
    assert (adopted.parent, adopted.parent_ignored) == ("a", False)
    await scene.store.open(C, Opening())
    kept = await scene.tag(B, parent="c")
    assert (kept.parent, kept.parent_ignored) == ("a", True)
    for parent in ("zz", "a", "b"):
        ignored = await scene.tag(A, parent=parent)
        assert (ignored.parent, ignored.parent_ignored) == ("", True)
    assert (await scene.tag(D, parent="zz")).verdict is TagVerdict.OPENED


@every_store
async def test_tag_opens_joins_and_counts(scene: Scene) -> None:
    opened = await scene.store.tag(A, Use("r1"))
    assert (opened.verdict, opened.worker, opened.placement) == (TagVerdict.OPENED, "", 0)
    assert opened.referenced
    joined = await scene.store.tag(A, Use("r2", worker="w1"))
    assert (joined.verdict, joined.generation) == (TagVerdict.JOINED, opened.generation)
    assert (joined.worker, joined.placement) == ("w1", 1)
    assert (await scene.store.tag(A, Use("r3", worker="w2"))).worker == "w1"
    assert (await scene.store.look(A)).in_flight == 3
    assert opened.epoch == joined.epoch != ""


@every_store
async def test_a_repeated_tag_is_the_same_tag(scene: Scene) -> None:
    first = await scene.store.tag(A, Use("r1", worker="w1"))
    assert await scene.store.tag(A, Use("r1", worker="w1")) == first
    assert (await scene.store.look(A)).in_flight == 1
    await scene.store.tag(A, Use("r2"))
    assert (await scene.store.tag(A, Use("r2"))).verdict is TagVerdict.JOINED


@every_store
async def test_a_request_whose_router_died_counts_for_a_while(scene: Scene) -> None:
    await scene.tag(A)
    scene.hours.pass_s(49)
    await scene.tag(A)
    assert (await scene.store.look(A)).in_flight == 2
    scene.hours.pass_s(2)
    assert (await scene.store.look(A)).in_flight == 1


@every_store
async def test_a_fence_is_for_one_generation(scene: Scene) -> None:
    unknown = await scene.tag(A, fence=5)
    assert (unknown.verdict, unknown.referenced) == (TagVerdict.UNKNOWN, False)
    assert await scene.state(A) == "none"
    opened = await scene.tag(A)
    assert (await scene.tag(A, fence=opened.generation)).verdict is TagVerdict.JOINED
    stale = await scene.tag(A, fence=opened.generation - 1)
    assert (stale.verdict, stale.generation) == (TagVerdict.STALE, opened.generation)
    assert (await scene.store.look(A)).in_flight == 2


@every_store
async def test_a_closed_session_is_closed_for_a_while_and_comes_back_above(scene: Scene) -> None:
    """Unfenced requests that arrive late open the next generation; an explicit open does so at once."""
    opened = await scene.tag(A)
    await scene.store.close(A, Closing())
    scene.hours.pass_s(20)
    closed = await scene.tag(A)
    assert (closed.verdict, closed.generation) == (TagVerdict.CLOSED, opened.generation)
    assert await scene.store.look(A) == SessionRecord(A, "closed", opened.generation)
    scene.hours.pass_s(1)
    assert (await scene.tag(A, fence=opened.generation)).verdict is TagVerdict.CLOSED
    again = await scene.tag(A)
    assert again.verdict is TagVerdict.OPENED
    assert again.generation > opened.generation
    await scene.store.close(A, Closing())
    assert (await scene.store.open(A, Opening())).generation > again.generation


@every_store
async def test_generations_rise_over_everything_that_was_seen(scene: Scene) -> None:
    """A clock that goes back, a close, a tombstone that is forgotten, a worker that has seen a higher one."""
    seen = [(await scene.tag(A)).generation]
    scene.hours.pass_s(-3600)
    seen.append((await scene.store.open(A, Opening(fence=True))).generation)
    await scene.store.close(A, Closing())
    seen.append((await scene.store.open(A, Opening())).generation)
    worker = await scene.worker("w1")
    await worker.beat(highest=seen[-1] + 10**9)
    seen.append((await scene.tag(B)).generation - 10**9)
    seen.append((await scene.store.raise_above(A, seen[-1] + 2 * 10**9)) - 2 * 10**9)
    assert seen == sorted(set(seen))
    assert await scene.store.raise_above(A, 5) == (await scene.store.look(A)).generation, (
        "it is above already"
    )
    assert await scene.store.raise_above(C, 5) == 0


@every_store
async def test_a_tenant_has_as_many_sessions_as_it_may(scene: Scene) -> None:
    for ref in (A, B):
        assert (await scene.store.open(ref, Opening(limit=2))).verdict is OpenVerdict.CREATED
    assert (await scene.store.open(C, Opening(limit=2))).verdict is OpenVerdict.LIMITED
    assert (await scene.tag(C, limit=2)).verdict is TagVerdict.LIMITED
    assert (await scene.store.open(A, Opening(limit=2))).verdict is OpenVerdict.UNCHANGED
    assert (await scene.store.open(SessionRef("u", "x"), Opening(limit=2))).verdict is OpenVerdict.CREATED
    await scene.store.close(A, Closing())
    assert (await scene.tag(C, limit=2)).verdict is TagVerdict.OPENED


@every_store
async def test_the_first_to_place_wins_and_the_others_adopt(scene: Scene) -> None:
    """R021, R161: however many routers place at once, the session is on one worker."""
    tagged = await scene.tag(A)
    workers = [f"w{number}" for number in range(50)]
    placed = await asyncio.gather(
        *(scene.store.assign(A, tagged.generation, 0, worker) for worker in workers)
    )
    assert set(placed) == {Placed(placed[0].worker, 1, tagged.generation)}
    source = random.Random(1)
    turns = [await scene.turn(A, source.choice(workers)) for _ in range(10)]
    assert {turn.worker for turn in turns} == {placed[0].worker}


@every_store
async def test_a_move_is_made_by_who_saw_the_placement(scene: Scene) -> None:
    """R050: a router whose worker fails moves the session once; one that saw an older placement adopts."""
    tagged = await scene.tag(A, "w1")
    moved = await scene.store.assign(A, tagged.generation, 1, "w2")
    assert moved == Placed("w2", 2, tagged.generation)
    assert await scene.store.assign(A, tagged.generation, 1, "w3") == moved
    assert await scene.store.assign(A, tagged.generation - 1, 2, "w3") == moved
    assert await scene.store.assign(A, tagged.generation, 2, "w2") == moved, "it is there already"
    assert (await scene.store.look(A)).holders == ("w1", "w2")
    assert await scene.store.assign(B, 1, 0, "w1") == Placed("", 0)


@every_store
async def test_done_ends_a_request_of_the_generation_that_is_open(scene: Scene) -> None:
    """R051: a late finish revives nothing."""
    tagged = await scene.store.tag(A, Use("r1", "w1"))
    done = Done("r1", tagged.generation, "w1", 1, True)
    assert await scene.store.done(A, done)
    assert await scene.store.done(A, done)
    assert (await scene.store.look(A)).in_flight == 0
    await scene.store.tag(A, Use("r2"))
    await scene.store.open(A, Opening(fence=True))
    assert not await scene.store.done(A, Done("r2", tagged.generation, "w1", 1, True))
    assert (await scene.store.look(A)).in_flight == 0
    await scene.store.close(A, Closing())
    assert not await scene.store.done(A, done)
    assert await scene.state(A) == "closed"


@every_store
async def test_close_takes_the_family_parents_first_and_some_at_a_time(scene: Scene) -> None:
    names = ["a", *(f"a{number}" for number in range(6)), "a0x"]
    for name in names:
        parent = "" if name == "a" else name[:-1]
        await scene.store.open(SessionRef("t", name), Opening(parent=parent))
        await scene.tag(SessionRef("t", name), "w1")
    first = await scene.store.close(A, Closing())
    assert (first.verdict, first.more) == (CloseVerdict.CLOSED, True)
    assert [one.session for one in first.closed] == names[:4]
    assert {one.holders for one in first.closed} == {("w1",)}
    second = await scene.store.close(A, Closing())
    assert (second.verdict, second.generation, second.more) == (CloseVerdict.ALREADY, first.generation, False)
    assert [one.session for one in second.closed] == names[4:]
    assert [await scene.state(SessionRef("t", name)) for name in names] == ["closed"] * 8
    assert (await scene.store.list("t", "", 10)).open_sessions == 0


@every_store
async def test_a_sweep_goes_on_with_what_a_close_has_left(scene: Scene) -> None:
    """A child that was opened or fenced since is another one, and is spared."""
    await scene.store.open(A, Opening())
    children = [SessionRef("t", f"a{number}") for number in range(8)]
    for child in children:
        await scene.store.open(child, Opening(parent="a"))
    assert (await scene.store.close(A, Closing())).more
    await scene.store.open(children[-1], Opening(fence=True))
    scene.hours.pass_s(RULES.abandoned_s)
    swept = await scene.store.sweep(2)
    assert [(one.tenant, one.session) for one in swept.closed] == [("t", "a3"), ("t", "a4")]
    assert swept.again
    assert [one.session for one in (await scene.store.sweep(100)).closed] == ["a5", "a6"]
    spared = await scene.store.look(children[-1])
    assert (spared.state, spared.parent) == ("open", "")


@every_store
async def test_close_says_what_it_did(scene: Scene) -> None:
    assert (await scene.store.close(A, Closing())).verdict is CloseVerdict.UNKNOWN
    opened = await scene.store.open(A, Opening())
    stale = await scene.store.close(A, Closing(generation=opened.generation - 1))
    assert (stale.verdict, stale.generation, stale.closed) == (CloseVerdict.STALE, opened.generation, ())
    assert await scene.state(A) == "open"
    closed = await scene.store.close(A, Closing(generation=opened.generation))
    assert (closed.verdict, closed.generation) == (CloseVerdict.CLOSED, opened.generation)
    already = await scene.store.close(A, Closing())
    assert (already.verdict, already.generation, already.closed) == (
        CloseVerdict.ALREADY,
        opened.generation,
        (),
    )


@every_store
async def test_a_close_that_is_done_again_leaves_the_tombstone_that_was_lost(scene: Scene) -> None:
    again = await scene.store.close(A, Closing(generation=77, again=True))
    assert (again.verdict, again.generation) == (CloseVerdict.ALREADY, 77)
    assert (await scene.tag(A)).verdict is TagVerdict.CLOSED


@every_store
async def test_tombstones_are_bounded_and_the_oldest_go(scene: Scene) -> None:
    closed = [SessionRef("t", f"s{number:02}") for number in range(10)]
    for ref in closed:
        scene.hours.pass_s(1)
        await scene.store.open(ref, Opening())
        await scene.store.close(ref, Closing())
    assert [await scene.state(ref) for ref in closed] == ["none"] * 2 + ["closed"] * 8
    scene.hours.pass_s(200)
    await scene.store.sweep(100)
    assert {await scene.state(ref) for ref in closed} == {"none"}


@every_store
async def test_a_page_of_sessions_goes_on_where_the_last_one_ended(scene: Scene) -> None:
    names = [f"s{number}" for number in (3, 1, 4, 1, 5, 9, 2, 6)]
    for name in names:
        await scene.store.open(SessionRef("t", name), Opening())
    await scene.store.open(SessionRef("u", "other"), Opening())
    wanted = list(dict.fromkeys(names))
    page = await scene.store.list("t", "", 3)
    assert page.open_sessions == 7
    found = [record.ref.session for record in page.records]
    await scene.store.close(SessionRef("t", found[-1]), Closing())
    while page.after:
        page = await scene.store.list("t", page.after, 3)
        found += [record.ref.session for record in page.records]
    assert found == wanted
    with pytest.raises(CacheError) as refused:
        await scene.store.list("t", "no place", 3)
    assert (refused.value.kind, refused.value.facts) == (Kind.BAD_REQUEST, {"param": "after"})


@every_store
async def test_a_pause_is_noted_until_the_session_is_back(scene: Scene) -> None:
    opened = await scene.store.open(A, Opening())
    scene.hours.pass_s(50)
    paused = await scene.store.note(A, Note(NoteKind.PAUSE, tool="bash", expected_s=2.5))
    assert (paused.paused, paused.expected_s, paused.idle_s) == ("bash", 2.5, 0)
    other = await scene.store.note(A, Note(NoteKind.RESUME, opened.generation - 1))
    assert (other.paused, other.generation) == ("bash", opened.generation)
    assert (await scene.store.note(A, Note(NoteKind.TOUCH))).paused == "bash"
    assert (await scene.store.note(A, Note(NoteKind.RESUME))).paused == ""
    await scene.store.note(A, Note(NoteKind.PAUSE, tool="bash"))
    await scene.tag(A)
    assert (await scene.store.look(A)).paused == ""
    assert (await scene.store.note(B, Note(NoteKind.TOUCH))).state == "none"


@every_store
async def test_tenants_and_sessions_are_never_one_name(scene: Scene) -> None:
    """R094, R095: whatever is in an id, another tenant's session is unknown."""
    mine, theirs = SessionRef("t", "a/b\u00e9|c {x}:*"), SessionRef("u", "a/b\u00e9|c {x}:*")
    tagged = await scene.tag(mine, "w1")
    assert await scene.state(theirs) == "none"
    assert (await scene.store.close(theirs, Closing())).verdict is CloseVerdict.UNKNOWN
    assert not await scene.store.done(theirs, Done("r1", tagged.generation, "w1", 1, True))
    assert (await scene.store.list("u", "", 10)).records == ()
    assert [record.ref for record in (await scene.store.list("t", "", 10)).records] == [mine]
    assert (await scene.store.open(SessionRef("u", "x"), Opening(parent=mine.session))).verdict is (
        OpenVerdict.NO_PARENT
    )


@every_store
async def test_two_routers_race_and_agree(scene: Scene) -> None:
    """R110: two first requests of one session are one session, on one worker."""
    both = await asyncio.gather(
        *(scene.store.tag(A, Use(f"r{number}", worker=f"w{number}")) for number in range(2))
    )
    assert {tagged.generation for tagged in both} == {both[0].generation}
    assert len({tagged.worker for tagged in both}) == 1
    assert sorted(tagged.verdict for tagged in both) == [TagVerdict.JOINED, TagVerdict.OPENED]
    assert isinstance(both[0], Tagged)


@every_store
async def test_a_close_that_is_done_again_closes_what_was_brought_back_from_before(scene: Scene) -> None:
    """But nothing that was opened since."""
    older = await scene.store.open(A, Opening())
    again = await scene.store.close(A, Closing(generation=older.generation + 5, again=True))
    assert (again.verdict, again.generation) == (CloseVerdict.CLOSED, older.generation + 5)
    since = await scene.store.open(A, Opening())
    stale = await scene.store.close(A, Closing(generation=older.generation + 5, again=True))
    assert (stale.verdict, stale.generation) == (CloseVerdict.STALE, since.generation)
    assert since.generation > older.generation + 5

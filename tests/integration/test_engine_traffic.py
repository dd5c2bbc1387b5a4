"""Shapes of agent traffic on a small engine: what a parked, a busy, a forked or a compacted session finds again."""

import pytest

from agentcache.clock import ManualClock
from agentcache.engine.api import Admitted, Finished, FinishReason
from agentcache.engine.engine import Engine
from agentcache.types import MAMBA, SWA, SessionId, SessionTag
from tests.engines import GRID, ask, at_rest, drain, of, prompt_of, run, small_engine, tag


def roomy(**changes: object) -> Engine:
    """An engine whose pools hold everything but what `changes` makes scarce."""
    return small_engine(**{"full_slots": 1024, "swa_slots": 512, "mamba_slots": 128, **changes})  # type: ignore[arg-type]


def turn(engine: Engine, session: str, tokens: tuple[int, ...], **tagged: bool) -> int:
    """One turn of a session that ends with its user's message; answers its hit."""
    said_by = SessionTag(SessionId(session), **tagged)  # type: ignore[arg-type]
    return cached(engine, tokens, session=said_by, user_end_tokens=len(tokens))


def cached(engine: Engine, tokens: tuple[int, ...], **fields: object) -> int:
    events = run(engine, ask("one", tokens, 1, **fields))
    assert of(Finished, events)[0].reason is FinishReason.LENGTH
    return of(Admitted, events)[0].cached_tokens


def grown(session: int, turns: int) -> tuple[int, ...]:
    """A session's prompt at its n-th turn: 70 tokens, then 27 more a turn."""
    return sum((prompt_of(27, 100 * session + number) for number in range(turns)), prompt_of(70, session))


def whole_chunks(tokens: int) -> int:
    return tokens // GRID * GRID


@pytest.mark.parametrize("scarce", [{"swa_slots": 56}, {"mamba_slots": 8}], ids=str)
def test_a_parked_session_keeps_its_last_window_and_state(scarce: dict[str, int]) -> None:
    """R019, R074: others' windows and states that no session wants back go first, however recent."""
    engine = roomy(**scarce)
    turn(engine, "parked", grown(9, 4))
    for turns in range(6):
        for session in range(3):
            turn(engine, f"busy{session}", grown(session, turns))
    assert engine.cache.stats().turns.evicted_slots[SWA if "swa_slots" in scarce else MAMBA]
    assert turn(engine, "parked", grown(9, 5)) == whole_chunks(len(grown(9, 4)))


def test_a_long_tool_loop_takes_its_own_old_states_first() -> None:
    """R155: ten turns of one session in a pool of six states; the other session's is still there."""
    engine = roomy(mamba_slots=6)
    turn(engine, "quiet", grown(1, 2))
    hits = [turn(engine, "loop", grown(2, turns)) for turns in range(10)]
    assert hits[1:] == [whole_chunks(len(grown(2, turns))) for turns in range(9)]
    assert turn(engine, "quiet", grown(1, 3)) == whole_chunks(len(grown(1, 2)))


def test_cold_sessions_that_nobody_closes_make_room_for_hot_ones() -> None:
    """R053, R201: references are soft, the longest idle session goes first, and coming back is no error."""
    engine = roomy(full_slots=120)
    for session in range(10, 15):
        turn(engine, f"cold{session}", grown(session, 1))
    for turns in range(4):
        for session in range(2):
            hit = turn(engine, f"hot{session}", grown(session, turns))
            assert hit == (whole_chunks(len(grown(session, turns - 1))) if turns else 0)
    assert turn(engine, "cold10", grown(10, 2)) == 0
    assert engine.cache.stats().sessions.open == 7
    assert at_rest(engine)


def test_the_second_fork_leaves_a_boundary_where_the_third_will_fork() -> None:
    """R178, R179, R082: prompts that share their first 45 tokens only; no regular boundary lies there."""
    engine = small_engine()
    shared = prompt_of(45)
    forks = [shared + prompt_of(60, seed) for seed in range(1, 5)]
    assert [cached(engine, fork) for fork in forks] == [0, 0, 32, 32]


def test_an_edited_last_message_falls_back_to_the_boundary_before_it() -> None:
    """R175, R237: the prompt differs a few tokens before the last boundary; the one before it serves."""
    engine = small_engine()
    first, second = prompt_of(100), prompt_of(60, 1)
    turn(engine, "s", first)
    turn(engine, "s", first + second)
    assert turn(engine, "s", first + second[:40] + prompt_of(30, 2)) == 128
    assert turn(engine, "s", first + second[:10] + prompt_of(30, 3)) == 96


def test_a_declared_compaction_gives_up_the_branch_before_it() -> None:
    """R234, R243: what only the old branch holds goes before what any session wants; the shared head stays."""
    engine = roomy(full_slots=100)
    head, long = prompt_of(40), prompt_of(40) + prompt_of(160, 1)
    turn(engine, "other", grown(2, 1))
    turn(engine, "s", long)
    summary = head + prompt_of(60, 5)
    turn(engine, "s", summary, superseded=True)
    turn(engine, "new", grown(3, 3))
    assert turn(engine, "other", grown(2, 2)) == whole_chunks(len(grown(2, 1)))
    assert turn(engine, "s", summary + prompt_of(20, 6)) == whole_chunks(len(summary))
    assert cached(engine, long) < whole_chunks(len(long))


def test_a_burst_of_sub_agents_in_half_the_room_ends_and_is_closed() -> None:
    """Twelve children, two turns each, all at once, in pools for about six of them."""
    engine = small_engine(full_slots=150, swa_slots=60, mamba_slots=14, prefill_tokens=64)
    turn(engine, "parent", grown(0, 2))
    for turns in range(2):
        for child in range(1, 13):
            by = SessionTag(SessionId(f"child{child}"), parent=SessionId("parent"))
            engine.submit(ask(f"{child}", grown(0, 2) + grown(child, turns), 3, session=by))
        ends = of(Finished, drain(engine))
        assert [end.reason for end in ends] == [FinishReason.LENGTH] * 12
    closed = engine.cache.close_session("parent", subtree=True)
    assert len(closed.children) == 12
    stats = engine.cache.stats()
    assert (stats.open_references, stats.sessions.open) == (0, 0)
    assert at_rest(engine)


def test_more_agents_than_seats_are_all_warm_from_the_second_round_on() -> None:
    """R187: what is reused belongs to the path, not to the seat that computed it."""
    engine = roomy(max_running=2)
    for turns in range(3):
        for agent in range(3):
            engine.submit(ask(str(agent), grown(agent, turns), 1, session=tag(str(agent))))
        hits = {event.request_id: event.cached_tokens for event in of(Admitted, drain(engine))}
        warm = whole_chunks(len(grown(0, turns - 1))) if turns else 0
        assert hits == {str(agent): warm for agent in range(3)}


def test_a_turn_that_waits_for_slots_is_matched_and_counted_once() -> None:
    """R055, R191: looked at in every step, it holds one lease and counts one hit."""
    engine = small_engine(full_slots=40, swa_slots=40, mamba_slots=8, prefill_tokens=256)
    turn(engine, "s", prompt_of(40))
    engine.submit(ask("runs", prompt_of(100, 1), 30))
    engine.step()
    before = engine.cache.stats().turns
    engine.submit(ask("waits", prompt_of(40) + prompt_of(80, 2), 1))
    for _ in range(6):
        assert of(Admitted, engine.step(), "waits") == []
    waiting = engine.cache.stats()
    assert (waiting.turns.turns - before.turns, waiting.turns.hits - before.hits) == (1, 1)
    assert waiting.active_turns == 2
    assert of(Admitted, drain(engine), "waits")[0].cached_tokens == 32
    assert engine.cache.stats().turns.turns == waiting.turns.turns
    assert engine.load().cached_tokens_total == 32
    assert at_rest(engine)


def test_a_session_left_on_a_tool_call_expires_like_any_other() -> None:
    """R114: nothing is kept for ever for an answer that never comes; the late result finds its data if still there."""
    clock = ManualClock()
    engine = roomy(clock=clock, ttl_s=60)
    for session in range(20):
        turn(engine, f"gone{session}", prompt_of(40, session))
    clock.advance(61_000_000_000)
    engine.step()
    stats = engine.cache.stats()
    assert (stats.sessions.open, stats.open_references) == (0, 0)
    assert turn(engine, "gone3", prompt_of(40, 3) + prompt_of(20, 50)) == 32


def test_a_request_that_opts_out_computes_each_token_once_and_leaves_nothing() -> None:
    """R113, R115: only publication stops; the prompt advances chunk by chunk, and what was cached stays."""
    engine = small_engine(prefill_tokens=32)
    cached(engine, prompt_of(64))
    before = engine.cache.stats().pools
    assert cached(engine, prompt_of(200), reuse=False) == 0
    assert engine.load().prefill_tokens_total == 64 + 200
    assert engine.cache.stats().pools == before
    assert cached(engine, prompt_of(64)) == 48


def test_chunks_computed_beside_decoding_requests_are_whole() -> None:
    """R007: a prompt prefilled in small steps between others' tokens is restored as if it had run alone."""
    engine = small_engine("qwen3_5", prefill_tokens=GRID)
    engine.submit(ask("talks", prompt_of(40, 1), 40))
    engine.step()
    prompt = prompt_of(150)
    engine.submit(ask("reads", prompt, 1))
    drain(engine)
    warm = run(engine, ask("warm", prompt, 4, digest_logits=True))
    cold = run(engine, ask("cold", prompt, 4, digest_logits=True, reuse=False))
    assert of(Admitted, warm)[0].cached_tokens == 144
    assert of(Finished, warm)[0].first_logits == of(Finished, cold)[0].first_logits

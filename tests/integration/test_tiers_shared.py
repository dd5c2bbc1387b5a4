"""One store under several engines: whoever computes the same finds all of it, whoever does not finds nothing."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from agentcache import keys
from agentcache.clock import SystemClock
from agentcache.config import EngineSettings
from agentcache.engine.engine import Engine
from agentcache.engine.loading import NamedModel, assemble
from agentcache.tiers.stores.api import BlobStore
from agentcache.tiers.stores.faulty import Call, FaultyStore
from agentcache.tiers.stores.file import open_file_store
from agentcache.tiers.stores.memory import MemoryStore
from tests.chosen import CORE
from tests.engines import GRID, PAGE, PATIENT, ask, prompt_of, tag
from tests.faults import (
    FAMILY,
    ONE_SESSION,
    ROOMY,
    SCRIPT,
    SMALL_HOST,
    engine_over,
    golden,
    nothing_left,
    only_hits_were_lost,
)
from tests.golden import Said, serve, totals
from tests.zoo import ZOO

pytestmark = pytest.mark.timeout(300)

MIB = 1 << 20
PROMPT = prompt_of(100, 1)
TIERS = pytest.mark.parametrize("host_mib", [None, SMALL_HOST], ids=["direct", "host"])


@contextmanager
def engine_of(store: BlobStore, nudge: float = 0.0, **changes: Any) -> Iterator[Engine]:
    """An engine of its own model, whose first weight is moved by `nudge`."""
    fields = {"threads": 1, "core": CORE, "page_tokens": PAGE, "grid_tokens": GRID, **ROOMY, **changes}
    settings = EngineSettings.model_validate({"prefetch": "wait_complete", **PATIENT, **fields})
    model = ZOO[FAMILY].build(settings.dtype)
    with torch.no_grad():
        next(iter(model.parameters()))[5, 5] += nudge
    engine = assemble(NamedModel(model, FAMILY, random_weights=True), settings, SystemClock())
    try:
        engine.attach(store)
        yield engine
        nothing_left(engine)
    finally:
        engine.close()


def said_by(store: BlobStore, salt: str = "", nudge: float = 0.0, **changes: Any) -> Said:
    """What an engine that has just started says to the prompt, and what it writes down for the next."""
    with engine_of(store, nudge, **changes) as engine:
        return serve(engine, ask("r", PROMPT, 4, session=tag("s"), tenant_salt=salt, digest_logits=True))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"salt": "tenant"}, id="salt"),
        pytest.param({"nudge": 1e-3}, id="weights"),
        pytest.param({"dtype": "bfloat16"}, id="dtype"),
        pytest.param({"page_tokens": 8}, id="page"),
        pytest.param({"grid_tokens": 32}, id="grid"),
    ],
)
@TIERS
def test_another_identity_finds_nothing_and_the_same_finds_all(
    other: dict[str, Any], host_mib: float | None
) -> None:
    """R001, R023, R045, R046, R047, R105, R210: in both directions, and each finds its own afterwards."""
    store = MemoryStore(64 * MIB)
    first = said_by(store, host_mib=host_mib)
    assert first.cached.total == 0
    stranger = said_by(store, host_mib=host_mib, **other)
    assert stranger.cached.total == 0
    own = said_by(store, host_mib=host_mib, **other)
    assert (own.tokens, own.first_logits) == (stranger.tokens, stranger.first_logits)
    assert own.cached.external == own.cached.total == 96
    again = said_by(store, host_mib=host_mib)
    assert (again.tokens, again.first_logits) == (first.tokens, first.first_logits)
    assert again.cached.external == again.cached.total == 96


def test_another_format_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """R146: names are made of the format's number, the namespace and the tokens, and of nothing else."""
    store = MemoryStore(64 * MIB)
    said_by(store)
    with monkeypatch.context() as later:
        later.setattr(keys, "FORMAT_VERSION", keys.FORMAT_VERSION + 1)
        assert said_by(store).cached.total == 0
        assert said_by(store).cached.external == 96
    assert said_by(store).cached.external == 96


def test_sizes_and_limits_are_no_part_of_an_identity() -> None:
    """R241: what is said to be there is what the next request finds, in pools of any size."""
    store = MemoryStore(64 * MIB)
    said_by(store)
    assert said_by(store, max_running=2, seed=5, host_mib=8.0, **ONE_SESSION).cached.external == 96


@TIERS
def test_a_salt_within_one_engine(host_mib: float | None) -> None:
    """R001, R023: what one tenant's prompt brought in is filed under its own salt."""
    with engine_over(MemoryStore(64 * MIB), host_mib=host_mib) as engine:
        for salt in ("", "x", "y"):
            first = serve(engine, ask(f"1{salt}", PROMPT, 4, tenant_salt=salt))
            assert first.cached.total == 0
            engine.cache.flush()
        for salt in ("", "x", "y"):
            again = serve(engine, ask(f"2{salt}", PROMPT, 4, tenant_salt=salt))
            assert (again.tokens, again.cached.external) == (first.tokens, 96)


@TIERS
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_two_engines_take_turns_over_one_store(kind: str, host_mib: float | None, tmp_path: Path) -> None:
    """R142: each turn of the trace runs on the other engine; they have nothing in common but the store."""
    store = MemoryStore(64 * MIB) if kind == "memory" else open_file_store(tmp_path / "store", 64 * MIB)
    shared = Shared(store)
    with (
        engine_over(shared, host_mib=host_mib) as one,
        engine_over(shared, host_mib=host_mib) as other,
    ):
        answers = SCRIPT.play(lambda turn: (one, other)[turn % 2])
    store.close()
    only_hits_were_lost(answers)
    assert totals(answers) == totals(golden())
    assert all(answer.cached.external > 0 for answer in answers[SCRIPT.sessions :])


def test_an_engine_that_goes_takes_nothing_from_the_others() -> None:
    """R142: detached in the middle of the trace; the other one reads on what it wrote."""
    shared = Shared(MemoryStore(64 * MIB))
    with engine_over(shared) as one, engine_over(shared) as other:

        def engine_of_turn(turn: int) -> Engine:
            if turn == 2:
                one.detach()
            return one if turn < 2 else other

        answers = SCRIPT.play(engine_of_turn)
    only_hits_were_lost(answers)
    assert all(answer.cached.external > 0 for answer in answers[2 * SCRIPT.sessions : 3 * SCRIPT.sessions])


class Shared:
    """A store that outlives the engines that close it."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def close(self) -> None:
        """Others have it."""


def test_what_two_engines_write_at_once_is_written_whole() -> None:
    """R105, R107: the same pages, from both at the same time, held at the store's door together."""
    store = FaultyStore(MemoryStore(64 * MIB), random.Random(1))
    shared = Shared(store)
    with engine_over(shared, **ROOMY) as one, engine_over(shared, **ROOMY) as other:
        with store.hold(Call.PUT) as gate:
            for engine in (one, other):
                engine.submit(ask("r", PROMPT, 4))
                while not engine.idle():
                    engine.step()
            gate.wait_for(2)
        for engine in (one, other):
            while not engine.cache.tiers.idle:
                engine.step()
                engine.rest()
    answer = said_by(store)
    assert answer.cached.external == 96
    assert answer.tokens == said_by(MemoryStore(64 * MIB)).tokens

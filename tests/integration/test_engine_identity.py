"""What an engine's namespace holds: whatever changes the bytes of a page changes the name of it."""

import torch

from agentcache.engine.engine import Engine
from agentcache.engine.identity import weights_digest
from tests.engines import small_engine
from tests.zoo import ZOO


def digest(engine: Engine, salt: str = "") -> bytes:
    return engine.namespace(salt).digest()


def test_model_dtype_layout_and_tenant_name_a_page() -> None:
    """R045, R105: another model, dtype, page or grid gives another namespace, and the same settings the same."""
    engines = [
        small_engine(),
        small_engine("gemma3"),
        small_engine(dtype="bfloat16"),
        small_engine(page_tokens=8),
        small_engine(grid_tokens=32),
    ]
    spaces = {digest(engine, salt) for engine in engines for salt in ("", "tenant")}
    assert len(spaces) == 2 * len(engines)
    assert digest(small_engine(full_slots=300, max_running=2, seed=5)) == digest(engines[0])


def test_weights_and_configuration_name_a_model_and_its_name_does_not() -> None:
    """R046, R047, R210: what was computed with other weights is nobody's, wherever it is kept."""
    build = ZOO["qwen3"].build
    one, same, other, bent = build("float32"), build("float32"), build("float32"), build("float32")
    with torch.no_grad():
        next(other.parameters())[0, 0] += 1e-3
    bent.config.rope_parameters = {"rope_type": "default", "rope_theta": 77.0}
    same.config._name_or_path = "elsewhere"
    assert weights_digest(one) == weights_digest(same)
    assert len({weights_digest(model) for model in (one, other, bent)}) == 3


def test_no_field_of_the_namespace_that_we_know_is_left_blank() -> None:
    space = small_engine().namespace("tenant")
    assert len(space.model) == 64, "a digest of the weights"
    assert (space.tenant_salt, space.dtype) == ("tenant", "float32")
    assert "page=4" in space.layout
    assert "grid=16" in space.layout

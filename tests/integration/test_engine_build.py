"""From a model's name to an engine: what is found, and what is said about what is not."""

from pathlib import Path

import pytest

from agentcache.config import EngineSettings
from agentcache.engine import loading
from agentcache.engine.adapter import build_random, load_model, make_config
from agentcache.engine.api import Finished, FinishReason
from agentcache.engine.build import build_engine, load_tokenizer_for
from agentcache.engine.loading import locate
from agentcache.engine.models import BUILT_IN, CONTEXT_TOKENS
from agentcache.engine.tokenizer import ASSETS, load_tokenizer, packed_tokenizer
from agentcache.errors import CacheError, Kind
from tests.chosen import CORE
from tests.engines import ask, of, prompt_of, run, small_engine
from tests.serving import save_tiny_checkpoint

SMALL = {"core": CORE, "full_slots": 32, "swa_slots": 64, "mamba_slots": 8, "threads": 1}


@pytest.mark.parametrize(
    ("name", "components"),
    [
        ("tiny-full", ("FULL",)),
        ("tiny-swa", ("FULL", "SWA")),
        ("tiny-hybrid", ("FULL", "MAMBA")),
        ("tiny-all", ("FULL", "SWA", "MAMBA")),
    ],
)
def test_built_in_models_are_what_their_names_say(name: str, components: tuple[str, ...]) -> None:
    engine = build_engine(EngineSettings.model_validate({"model": name, **SMALL}))
    info = engine.info
    assert (info.model, info.components, info.reuse) == (name, components, "reusable")
    assert 15e6 < info.parameters < 21e6
    assert (info.context_tokens, info.random_weights, info.prompt_only) == (CONTEXT_TOKENS, True, False)
    assert load_tokenizer_for(EngineSettings(model=name)).vocab_size == info.vocab_size
    assert of(Finished, run(engine, ask("1", prompt_of(9), 2)))[0].reason is FinishReason.LENGTH


def test_weights_depend_on_the_seed_only() -> None:
    recipe = BUILT_IN["tiny-all"]
    config = make_config(
        recipe.family, {**recipe.fields, "num_hidden_layers": 1, "layer_types": ["full_attention"]}
    )
    first, same, other = (
        [float(parameter.detach().sum()) for parameter in build_random(config, seed).parameters()]
        for seed in (3, 3, 4)
    )
    assert first == same != other


def test_seeds_do_not_share_pages() -> None:
    engines = [build_engine(EngineSettings.model_validate({"seed": seed, **SMALL})) for seed in (0, 1)]
    assert engines[0].namespace("t").digest() != engines[1].namespace("t").digest()
    assert engines[0].namespace("t").digest() != engines[0].namespace("u").digest()


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(CacheError, match="cannot be put on cuda:99") as refused:
        build_engine(EngineSettings.model_validate({"device": "cuda:99", **SMALL}))
    assert refused.value.kind is Kind.BAD_CONFIG


def test_loading_a_checkpoint_leaves_stderr_to_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = save_tiny_checkpoint(tmp_path / "checkpoint")
    load_model(folder)
    assert capfd.readouterr() == ("", "")


def test_a_checkpoint_directory_with_its_own_tokenizer(tmp_path: Path) -> None:
    folder = save_tiny_checkpoint(tmp_path / "checkpoint")
    settings = EngineSettings.model_validate({"model": str(folder), "grid_tokens": 32, **SMALL})
    info = build_engine(settings).info
    assert (info.model, info.random_weights) == ("checkpoint", False)
    assert load_tokenizer_for(settings).stop_tokens == (0, 2)


def test_a_model_that_is_nowhere(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="tiny-all") as missing:
        build_engine(EngineSettings(model=str(tmp_path / "nothing")))
    assert missing.value.kind is Kind.BAD_CHECKPOINT


@pytest.mark.parametrize("packages", [("no_such_package",), ("json",)], ids=["not there", "without weights"])
def test_smollm2_without_its_packages_says_what_to_run(
    packages: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "SMOLLM2_PACKAGES", packages)
    with pytest.raises(CacheError, match="make smollm2") as missing:
        locate("smollm2")
    assert missing.value.kind is Kind.BAD_CHECKPOINT


def test_a_packed_tokenizer_is_like_one_from_files() -> None:
    template = (ASSETS / "chat_template.jinja").read_text()
    names = {"bos_token": "", "eos_token": "<|im_end|>"}
    packed = packed_tokenizer((ASSETS / "tokenizer.json").read_text(), template, names)
    chat = [{"role": "user", "content": "Hello <|im_end|>"}]
    assert packed.render(chat) == load_tokenizer().render(chat)
    assert packed.stop_tokens == (2,)
    first = packed_tokenizer(
        (ASSETS / "tokenizer.json").read_text(), template, {"eos_token": "<|endoftext|>"}
    )
    assert first.stop_tokens == (0,)
    with pytest.raises(CacheError, match="no chat template"):
        packed_tokenizer((ASSETS / "tokenizer.json").read_text(), "", names).render(chat)


def test_a_packed_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"not a gguf file")
    with pytest.raises(CacheError, match=r"model\.gguf") as broken:
        load_tokenizer_for(EngineSettings(model=str(tmp_path / "model.gguf")))
    assert broken.value.kind is Kind.BAD_CHECKPOINT


@pytest.mark.parametrize(
    ("family", "page", "noted"), [("lara_mini", 4, True), ("lara_mini", 16, False), ("qwen3", 4, False)]
)
def test_an_expert_model_says_what_pages_below_the_chunk_cost(family: str, page: int, noted: bool) -> None:
    assert ("--page-tokens 16 keeps every bit" in small_engine(family, page_tokens=page).info.reason) is noted

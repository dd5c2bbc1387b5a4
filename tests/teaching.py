"""A tiny model that learns one answer by heart, so that a test knows what it will say."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from agentcache.engine.adapter import build_random, make_config
from agentcache.engine.models import FULL
from agentcache.engine.tokenizer import ASSETS, load_tokenizer

STEPS = 300
GOOD_LOSS = 0.01
_FIELDS: dict[str, object] = {
    "vocab_size": 4096,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    "num_hidden_layers": 2,
    "layer_types": [FULL] * 2,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 2,
}


def save_taught_checkpoint(
    folder: Path, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], answer: str
) -> Path:
    """A checkpoint that says `answer` to this chat, and then ends. Cost: a few seconds."""
    tokenizer = load_tokenizer()
    prompt = tokenizer.render(messages, tools).tokens
    said = tokenizer.render([*messages, {"role": "assistant", "content": ""}], tools).tokens
    end = said[-1:] if said[-1] in tokenizer.stop_tokens else tokenizer.stop_tokens[-1:]
    target = tokenizer._tokenizer.encode(answer, add_special_tokens=False).ids  # markup as a model writes it
    model = build_random(make_config("qwen3", _FIELDS), seed=3)
    _learn(model, torch.tensor([[*prompt, *target, *end]]), len(prompt))
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"):
        shutil.copy(ASSETS / name, folder / name)
    return folder


def _learn(model: Any, tokens: torch.Tensor, prompt_tokens: int) -> None:
    labels = tokens.clone()
    labels[:, :prompt_tokens] = -100
    model.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        loss = model(input_ids=tokens, labels=labels, use_cache=False).loss
        if loss.item() < GOOD_LOSS:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < GOOD_LOSS, loss.item()

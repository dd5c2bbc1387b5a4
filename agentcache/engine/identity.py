"""What makes a model's cached data its own: its weights, not its name."""

import hashlib
import json
from typing import Any

import torch
from torch import Tensor

NAMES = frozenset({"_name_or_path", "name_or_path", "transformers_version"})
"""Parts of a configuration that change no bit of an answer."""


@torch.inference_mode()
def weights_digest(model: Any) -> str:
    """sha256 over the configuration and every weight and buffer as loaded: name, type, shape, bytes.

    Two models of one digest compute the same, wherever their files lie and whatever they are called.
    Cost  one pass over the weights, about 1 GB/s
    """
    config = {name: value for name, value in model.config.to_dict().items() if name not in NAMES}
    seen = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, tensor in sorted([*model.named_parameters(), *model.named_buffers()]):
        seen.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        seen.update(_bytes(tensor))
    return seen.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data

"""A loaded model's forward on our working memory."""

import torch
from torch import Tensor

from agentcache.engine.adapter import LayerPlan, Model, read_layers
from agentcache.engine.rows import Rows

UNKNOWN_CONTEXT_TOKENS = 131_072


class ModelAdapter:
    """A loaded model that runs on `Rows`. Stateless itself.

    `chunk_bound`: it has experts, which gather tokens of a forward, so a token rounds by what else is in its forward.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.device = model.device
        text = model.config.get_text_config(decoder=True)
        self.vocab_size = int(text.vocab_size)
        self.context_tokens = int(getattr(text, "max_position_embeddings", 0) or UNKNOWN_CONTEXT_TOKENS)
        self.chunk_bound = any("experts" in name for name, _ in model.named_modules())
        self.dtype = str(model.dtype).removeprefix("torch.")

    def layers(self) -> tuple[LayerPlan, ...]:
        """Errors: CacheError(UNSUPPORTED_MODEL) as `read_layers`."""
        return read_layers(self.model.config)

    def forward(self, tokens: Tensor, rows: Rows, keep: int = 1) -> Tensor:
        """Run `n` new tokens of every row; logits of the last `keep`.

        Shapes  tokens: int64[rows, n] -> [rows, keep, vocab] in the model's type
        A single row runs without a mask, the exact path. Several rows run with the mask of their padding, which
        only attention needs: a purely recurrent model would multiply its input by it.
        """
        count = tokens.shape[1]
        pads = torch.tensor(rows.pads, device=self.device)[:, None]
        places = torch.arange(rows.end + count, device=self.device)[None]
        masked = bool(rows.slabs) and rows.pads != [0]
        output = self.model(
            input_ids=tokens,
            attention_mask=(places >= pads).long() if masked else None,
            position_ids=places[:, rows.end :] - pads,
            cache=rows.cache,
            use_cache=True,
            logits_to_keep=keep,
        )
        rows.end += count
        return _last(output.logits, keep)

    def forward_without_cache(self, tokens: Tensor, keep: int = 1) -> Tensor:
        """The model itself: all tokens in one forward, nothing kept. Shapes: int64[1, n] -> [1, keep, vocab]."""
        positions = torch.arange(tokens.shape[1], device=self.device)[None]
        output = self.model(input_ids=tokens, position_ids=positions, use_cache=False, logits_to_keep=keep)
        return _last(output.logits, keep)


def _last(logits: Tensor, keep: int) -> Tensor:
    return logits[:, -keep:]

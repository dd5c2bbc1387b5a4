"""Train the built-in models' tokenizer: `python -m agentcache.engine.train_tokenizer OUT`.

A byte-level BPE over the standard library's sources and the English text in assets/, both of which everybody has.
Another Python version has slightly other sources and gives a slightly other vocabulary; the committed one is fixed.
"""

import random
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from agentcache.engine.tokenizer import ASSETS

ENTRIES = 4096
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKUP = ("<tools>", "</tools>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
SOURCE_FILES = 220
ENGLISH_REPEATS = 24
WORDS = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def corpus(seed: int) -> Iterator[str]:
    """English and a sample of the standard library, the same for the same Python."""
    english = (ASSETS / "english.txt").read_text(encoding="utf-8")
    for _ in range(ENGLISH_REPEATS):
        yield english
    library = Path(sysconfig.get_paths()["stdlib"])
    sources = sorted(path for path in library.glob("*.py"))
    for path in random.Random(seed).sample(sources, min(SOURCE_FILES, len(sources))):
        yield path.read_text(encoding="utf-8")


def train(seed: int = 0) -> Tokenizer:
    """The tokenizer: special tokens first, then the byte alphabet, then merges. Takes a few seconds."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(WORDS, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=ENTRIES - len(MARKUP),
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(seed), trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in MARKUP])
    return tokenizer


def main(arguments: list[str]) -> int:
    """Write tokenizer.json to the path given."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m agentcache.engine.train_tokenizer OUT.json\n")
        return 2
    tokenizer = train()
    tokenizer.save(arguments[0], pretty=False)
    sys.stderr.write(f"{tokenizer.get_vocab_size()} entries\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

